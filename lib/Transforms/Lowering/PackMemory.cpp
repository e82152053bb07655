//===- PackMemory.cpp - Offsets for buffers with lifetimes ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PackMemory.h"

#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

#include <vector>

using namespace plait;

namespace {

/// A set of bytes, as ranges [begin, end) that neither overlap nor touch, in
/// order.
class Ranges {
public:
  void add(int64_t begin, int64_t end) {
    auto first = llvm::partition_point(
        ranges, [&](const Range &range) { return range.end < begin; });
    auto last = first;
    for (; last != ranges.end() && last->begin <= end; ++last) {
      begin = std::min(begin, last->begin);
      end = std::max(end, last->end);
    }
    if (first == last) {
      ranges.insert(first, {begin, end});
      return;
    }
    *first = {begin, end};
    ranges.erase(std::next(first), last);
  }

  /// The lowest offset from `offset` on at which no byte of `bytes` is in the
  /// set.
  int64_t findGap(int64_t offset, int64_t bytes) const {
    const auto *range = llvm::partition_point(
        ranges, [&](const Range &range) { return range.end <= offset; });
    for (; range != ranges.end() && range->begin < offset + bytes; ++range)
      offset = range->end;
    return offset;
  }

private:
  struct Range {
    int64_t begin, end;
  };
  llvm::SmallVector<Range, 0> ranges;
};

/// What is taken at which step: a segment tree over the steps, a node of which
/// stands for an interval of them. The steps of a buffer's life are those of a
/// few *whole* nodes. Two whole nodes have a step in common only if one is
/// above the other, so that a node needs to know what was taken for itself and
/// what was taken at it or below it. Many buffers lie side by side and become
/// one range: those of a pipeline's microbatches do.
class TakenBytes {
public:
  explicit TakenBytes(int64_t steps)
      : leaves(llvm::bit_ceil<uint64_t>(std::max<int64_t>(1, steps))),
        nodes(2 * leaves) {}

  void add(const Lifetime &life, int64_t begin, int64_t end) {
    forWholeNodes(life, [&](int64_t node) { nodes[node].own.add(begin, end); });
    forNodesAround(life,
                   [&](int64_t node) { nodes[node].below.add(begin, end); });
  }

  /// The lowest offset at which `life.bytes` are free at all its steps.
  int64_t findPlace(const Lifetime &life) {
    asked.clear();
    forWholeNodes(life,
                  [&](int64_t node) { asked.push_back(&nodes[node].below); });
    forNodesAround(life,
                   [&](int64_t node) { asked.push_back(&nodes[node].own); });
    int64_t offset = 0, before;
    do {
      before = offset;
      for (const Ranges *ranges : asked)
        offset = ranges->findGap(offset, life.bytes);
    } while (offset != before);
    return offset;
  }

private:
  /// Calls `body` for the largest nodes that only have steps of `life`.
  void forWholeNodes(const Lifetime &life,
                     llvm::function_ref<void(int64_t)> body) const {
    int64_t left = life.first + leaves, right = life.last + 1 + leaves;
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2)
        body(left++);
      if (right % 2)
        body(--right);
    }
  }

  /// Calls `body` once for each whole node and each node above one.
  void forNodesAround(const Lifetime &life,
                      llvm::function_ref<void(int64_t)> body) {
    around.clear();
    forWholeNodes(life, [&](int64_t node) {
      for (; node > 0; node /= 2)
        around.push_back(node);
    });
    llvm::sort(around);
    around.erase(llvm::unique(around), around.end());
    llvm::for_each(around, body);
  }

  struct Node {
    Ranges own, below;
  };
  int64_t leaves;
  std::vector<Node> nodes;
  std::vector<const Ranges *> asked;
  llvm::SmallVector<int64_t> around;
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
  TakenBytes taken(steps);
  total = 0;
  for (int64_t index : order) {
    const Lifetime &buffer = buffers[index];
    if (buffer.bytes == 0)
      continue;
    int64_t offset = offsets[index] = taken.findPlace(buffer);
    int64_t end = llvm::alignTo(offset + buffer.bytes, plan::kAlignment);
    total = std::max(total, end);
    taken.add(buffer, offset, end);
  }
  return offsets;
}
