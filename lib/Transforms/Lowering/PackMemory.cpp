//===- PackMemory.cpp - Offsets for buffers with lifetimes ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PackMemory.h"

#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/Support/MathExtras.h"

#include <vector>

using namespace plait;

namespace {

/// The bytes [begin, end) of a buffer.
struct Place {
  int64_t begin, end;
};

/// Finds the places of buffers that are live together with another one. A place
/// is entered at the nodes of a segment tree over the steps that cover the
/// buffer's life, and so is found from each of its steps; and at its first
/// step.
class Places {
public:
  explicit Places(int64_t steps)
      : steps(steps), nodes(2 * steps), starting(steps) {}

  void add(const Place &place, const Lifetime &life) {
    starting[life.first].push_back(place);
    int64_t left = life.first + steps, right = life.last + 1 + steps;
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2)
        nodes[left++].push_back(place);
      if (right % 2)
        nodes[--right].push_back(place);
    }
  }

  /// Leaves those that are taken at some step of `life`, by their beginnings.
  void find(const Lifetime &life, std::vector<Place> &found) const {
    found.clear();
    for (int64_t node = life.first + steps; node > 0; node /= 2)
      llvm::append_range(found, nodes[node]);
    for (int64_t step = life.first + 1; step <= life.last; ++step)
      llvm::append_range(found, starting[step]);
    llvm::sort(found, [](const Place &a, const Place &b) {
      return a.begin < b.begin;
    });
  }

private:
  int64_t steps;
  std::vector<std::vector<Place>> nodes, starting;
};

} // namespace

llvm::SmallVector<int64_t> plait::packMemory(llvm::ArrayRef<Lifetime> buffers,
                                             int64_t &total) {
  auto order = llvm::to_vector(llvm::seq<int64_t>(0, buffers.size()));
  llvm::stable_sort(order, [&](int64_t a, int64_t b) {
    return buffers[a].bytes > buffers[b].bytes;
  });
  int64_t steps = 0;
  for (const Lifetime &buffer : buffers)
    steps = std::max(steps, buffer.last + 1);
  llvm::SmallVector<int64_t> offsets(buffers.size(), 0);
  Places places(steps);
  std::vector<Place> taken;
  total = 0;
  for (int64_t index : order) {
    const Lifetime &buffer = buffers[index];
    if (buffer.bytes == 0)
      continue;
    places.find(buffer, taken);
    int64_t offset = 0;
    for (const Place &place : taken) {
      if (offset + buffer.bytes <= place.begin)
        break;
      offset =
          std::max<int64_t>(offset, llvm::alignTo(place.end, plan::kAlignment));
    }
    offsets[index] = offset;
    total = std::max(total, offset + buffer.bytes);
    places.add({offset, offset + buffer.bytes}, buffer);
  }
  total = llvm::alignTo(total, plan::kAlignment);
  return offsets;
}
