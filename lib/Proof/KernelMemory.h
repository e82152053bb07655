//===- KernelMemory.h - Tensors of drawn numbers ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Memory to run kernels on. What a kernel reads are the same few pages of drawn
// numbers, mapped one behind the other, so that a tensor of gigabytes costs
// nothing; what it writes is shared with the process that runs it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_KERNELMEMORY_H
#define PLAIT_LIB_PROOF_KERNELMEMORY_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace plait::proof {

/// Pages of numbers that repeat: multiples of 1/16 up to 2, which f32 and bf16
/// hold exactly and whose sums f32 mostly does.
class DrawnPages {
public:
  DrawnPages() = default;
  DrawnPages(const DrawnPages &) = delete;
  ~DrawnPages();

  struct Pages {
    int file = -1;
    size_t bytes = 0;  // a prime number of pages: rows do not repeat with them
    size_t rounds = 0; // how often the file has them, one behind the other
  };
  /// For a tensor of `bytes`. No file: there is no memory.
  Pages get(bool isHalf, bool isPositive, size_t bytes);

private:
  struct Drawn {
    std::vector<char> data; // of one round
    Pages pages;
  };
  std::map<std::array<bool, 2>, Drawn> drawn;
};

/// The memory of one tensor, which ends with the page that it ends in.
class TensorMemory {
public:
  /// Of an operand or a result of a cluster, with its pitch.
  explicit TensorMemory(mlir::Value value);
  TensorMemory(TensorMemory &&other);
  ~TensorMemory();

  /// Fills it with numbers that repeat, to read only; tensors of another
  /// `number` begin with others. False: there is no memory.
  bool draw(DrawnPages &pages, bool isPositive, unsigned number);
  /// Zeros that other processes see and may change.
  bool share();

  void *getStart() const { return start; }
  size_t countMaps() const { return maps; }
  /// The element of this row-major number; integers as they are.
  double load(int64_t element) const;
  void store(int64_t element, double value);
  /// Marks an element that is to be written.
  void mark(int64_t element);
  bool isMarked(int64_t element) const;

private:
  bool reserve();
  char *find(int64_t element) const;

  enum class Kind { Float, Half, Integer };
  Kind kind;
  int64_t row, pitch; // elements
  size_t bytes, mapped = 0, maps = 0;
  char *map = nullptr, *start = nullptr;
};

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_KERNELMEMORY_H
