//===- Boxes.h - Boxes of global tensors ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A checkpoint cuts every tensor into boxes. What a rank holds of a tensor is a
// list of runs of row-major indices (see Slices.h), whatever split it: mesh
// axes, views, parts of packs. Runs that lie as a box does become one box, and
// the elements of the boxes, one after another and each row-major, are those of
// the runs in their order. So writing copies runs, and a box is a tensor that
// any reader of safetensors understands.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_BOXES_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_BOXES_H

#include "plait/Support/Status.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace plait::runtime {

using Shape = std::vector<int64_t>;

/// The elements whose index in dimension d is from begin[d] to begin[d] +
/// shape[d], excluded. Of no dimensions: the one element.
struct Box {
  Shape begin, shape;

  int64_t count() const;
  bool contains(std::span<const int64_t> point) const;
  bool overlaps(const Box &other) const;
  bool operator==(const Box &) const = default;
};

/// "[2:4, 0:3]": how messages show a box.
std::string formatBox(const Box &box);

/// Joins runs of row-major indices of a tensor to boxes.
class BoxBuilder {
public:
  explicit BoxBuilder(Shape shape) : shape(std::move(shape)) {}

  /// Adds elements [begin, begin + count). They lie behind those added before.
  void add(int64_t begin, int64_t count);

  const std::vector<Box> &boxes() const { return list; }

private:
  Shape shape;
  std::vector<Box> list;
};

/// Calls `visit(begin, count)` for the runs of row-major indices that `box` is
/// in a tensor of `shape`, in the order of its elements.
void forEachRun(const Box &box, const Shape &shape,
                const std::function<void(int64_t begin, int64_t count)> &visit);

/// Disjoint boxes of one tensor, to be found by what is in them.
class BoxMap {
public:
  /// Fails, with the end of a sentence, where a box is not inside of `shape` or
  /// shares elements with another one.
  static Result<BoxMap> create(const Shape &shape, std::vector<Box> boxes);

  /// All elements together.
  int64_t count() const { return elements; }

  /// A run of elements of the tensor that is one in a box, too.
  struct Found {
    uint32_t box;  // as create() had them
    int64_t begin; // in the box, row-major
    int64_t count; // from `begin` on
  };
  /// The run that begins with element `index` of the tensor, of at most `most`
  /// elements; `box` is UINT32_MAX where no box has it. `hint` makes looking
  /// for neighbours fast: keep it, one for each thread.
  Found find(int64_t index, int64_t most, uint32_t &hint) const;

private:
  uint32_t findBox(std::span<const int64_t> point, uint32_t hint) const;

  Shape shape;
  std::vector<Box> boxes;
  // By the first index of one dimension, and how far boxes up to there reach.
  size_t along = 0;
  std::vector<uint32_t> order;
  std::vector<int64_t> reach;
  int64_t elements = 0;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_BOXES_H
