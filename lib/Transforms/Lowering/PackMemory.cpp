//===- PackMemory.cpp - Offsets for buffers with lifetimes ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Packing is the offline problem of dynamic storage allocation, which is
// NP-hard; so buffers are placed greedily, one by one, and a few orders are
// tried until one leaves no gap at the peak. What decides about the time is the
// search for a free offset: a pipeline has hundreds of thousands of buffers. A
// segment tree over the steps answers it from a few sets of ranges, in which
// neighbouring buffers have become one.
//
//===----------------------------------------------------------------------===//

#include "PackMemory.h"

#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

using namespace plait;

namespace {

/// A set of bytes, as ranges [begin, end) that neither overlap nor touch, in
/// order.
class Ranges {
public:
  /// Logarithmic in the number of ranges to find the first that is touched;
  /// linear to move those behind it, of which there are few while gaps are
  /// rare.
  void add(int64_t begin, int64_t end) {
    // It mostly lies behind all that is there, or goes on from the last.
    if (ranges.empty() || begin > ranges.back().end) {
      ranges.push_back({begin, end});
      return;
    }
    if (begin >= ranges.back().begin) {
      ranges.back().end = std::max(ranges.back().end, end);
      return;
    }
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

  bool empty() const { return ranges.empty(); }

  struct Range {
    int64_t begin, end;
  };

  /// A place in a set that moves on with an offset that only grows.
  class Cursor {
  public:
    explicit Cursor(const Ranges &set)
        : range(set.ranges.begin()), end(set.ranges.end()) {}

    /// The lowest offset from `offset` on at which no byte of `bytes` is in the
    /// set. Logarithmic in the ranges that are passed (galloping search;
    /// Bentley and Yao 1976), and constant where none is.
    int64_t findGap(int64_t offset, int64_t bytes) {
      auto isPassed = [&](const Range &other) { return other.end <= offset; };
      ptrdiff_t stride = 1;
      while (range != end && isPassed(*range)) {
        stride = std::min(2 * stride, end - range);
        if (isPassed(range[stride - 1]))
          range += stride;
        else
          range = std::partition_point(range, range + stride, isPassed);
      }
      for (; range != end && range->begin < offset + bytes; ++range)
        offset = range->end;
      return offset;
    }

  private:
    const Range *range, *end;
  };

private:
  llvm::SmallVector<Range, 2> ranges; // neighbours become one: few have more
};

/// Tells what is taken at which step: a segment tree over the steps, a node of
/// which stands for an interval of them. The steps of a buffer's life are those
/// of a few *whole* nodes. Two whole nodes have a step in common only if one is
/// above the other, so that a node needs to know what was taken for itself and
/// what was taken at it or below it. Many buffers lie side by side and become
/// one range: those of a pipeline's microbatches do.
class TakenBytes {
public:
  explicit TakenBytes(int64_t steps)
      // A complete tree in an array: node i is above 2i and 2i + 1, leaves
      // begin at `leaves`, 0 is unused.
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
    forWholeNodes(life, [&](int64_t node) { ask(nodes[node].below); });
    forNodesAround(life, [&](int64_t node) { ask(nodes[node].own); });
    // A gap of one set need not be one of the next: again from where it is,
    // until all agree. The offset only grows, past a range of some set each
    // time.
    int64_t offset = 0, before;
    do {
      before = offset;
      for (Ranges::Cursor &cursor : asked)
        offset = cursor.findGap(offset, life.bytes);
    } while (offset != before);
    return offset;
  }

private:
  void ask(const Ranges &ranges) {
    if (!ranges.empty())
      asked.emplace_back(ranges);
  }

  /// Calls `body` for the largest nodes that only have steps of `life`.
  void forWholeNodes(const Lifetime &life,
                     llvm::function_ref<void(int64_t)> body) const {
    // From the leaves upwards; [left, right) is what is still to be covered on
    // a level. Odd ends have no parent that lies inside, and are whole nodes
    // themselves.
    int64_t left = life.first + leaves, right = life.last + 1 + leaves;
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2)
        body(left++);
      if (right % 2)
        body(--right);
    }
  }

  /// Calls `body` once for each whole node and each node above one. On each
  /// level, what is above whole nodes farther down is the one in front of
  /// `left`, where whole nodes were found at the left end, and `right`, where
  /// they were at the right end.
  void forNodesAround(const Lifetime &life,
                      llvm::function_ref<void(int64_t)> body) const {
    int64_t left = life.first + leaves, right = life.last + 1 + leaves;
    bool aboveLeft = false, aboveRight = false;
    for (int64_t level = leaves; level > 0; level /= 2) {
      if (aboveLeft)
        body(left - 1);
      if (aboveRight && !(aboveLeft && right == left - 1))
        body(right);
      if (left < right && left % 2) {
        body(left++);
        aboveLeft = true;
      }
      if (left < right && right % 2) {
        body(--right);
        aboveRight = true;
      }
      // Rounded inwards, also where nothing is left between them.
      left = (left + 1) / 2;
      right /= 2;
    }
  }

  struct Node {
    Ranges own, below;
  };
  int64_t leaves;
  std::vector<Node> nodes;
  std::vector<Ranges::Cursor> asked;
};

} // namespace

//===----------------------------------------------------------------------===//
// Orders
//===----------------------------------------------------------------------===//

namespace {

/// The key that buffers are sorted by, the least first.
using Rank = std::array<int64_t, 3>;

/// How much is live at each step.
class LiveBytes {
public:
  // Differences first, then their running sum: linear in buffers and steps.
  LiveBytes(llvm::ArrayRef<Lifetime> buffers, int64_t steps) : most(1) {
    std::vector<int64_t> &live = most.front();
    live.assign(steps + 1, 0);
    for (const Lifetime &buffer : buffers) {
      int64_t bytes = llvm::alignTo(buffer.bytes, plan::kAlignment);
      live[buffer.first] += bytes;
      live[buffer.last + 1] -= bytes;
    }
    std::partial_sum(live.begin(), live.end(), live.begin());
    live.pop_back();
    auto peak = std::max_element(live.begin(), live.end());
    auto last = std::max_element(live.rbegin(), live.rend());
    if (peak == live.end())
      return;
    bytes = *peak;
    first = peak - live.begin();
    middle = (first + (live.rend() - last - 1)) / 2;
  }

  int64_t getPeak() const { return bytes; }
  /// The first step at which the most is live.
  int64_t getFirst() const { return first; }
  /// Half way between that and the last one.
  int64_t getMiddle() const { return middle; }

  /// The most that is live during a life. `most[k]` has it for the 2^k steps
  /// from each on.
  int64_t getMost(const Lifetime &life) {
    // Two blocks of 2^k steps cover the life, and may overlap: a maximum
    // counts nothing twice (a sparse table; Bender and Farach-Colton 2000).
    // Levels are built when they are first asked for.
    size_t level = llvm::Log2_64(life.last - life.first + 1);
    while (most.size() <= level) {
      const std::vector<int64_t> &half = most.back();
      size_t width = size_t(1) << (most.size() - 1);
      std::vector<int64_t> whole(half.size() - width);
      for (size_t step = 0; step < whole.size(); ++step)
        whole[step] = std::max(half[step], half[step + width]);
      most.push_back(std::move(whole));
    }
    int64_t width = int64_t(1) << level;
    return std::max(most[level][life.first],
                    most[level][life.last + 1 - width]);
  }

private:
  std::vector<std::vector<int64_t>> most;
  int64_t bytes = 0, first = 0, middle = 0;
};

/// The orders that are tried. In all but the first, what lives throughout is
/// at the bottom.
class Orders {
public:
  Orders(llvm::ArrayRef<Lifetime> buffers, int64_t steps)
      : live(buffers, steps), steps(steps) {}

  static constexpr int kCount = 4;
  int64_t getPeak() const { return live.getPeak(); }

  /// All fields are compared, in order; buffers with equal ranks keep the order
  /// in which they were given, which makes the result the same everywhere.
  Rank rank(int order, const Lifetime &life) {
    switch (order) {
    case 0: // the largest first
      return {-life.bytes, 0, 0};
    case 1: // outwards from the peak, what reaches least far first
      return {getClass(life), getDistance(life, live.getFirst()),
              getReach(life, live.getFirst())};
    case 2: // where the most is live first
      return {getClass(life) > 0, -live.getMost(life), -life.bytes};
    default: // outwards, what reaches farthest first
      return {getClass(life), getDistance(life, live.getMiddle()),
              -getReach(life, live.getMiddle())};
    }
  }

private:
  /// A buffer that lives for one step fits between those that live longer.
  int64_t getClass(const Lifetime &life) const {
    return life.first == 0 && life.last == steps - 1 ? 0
           : life.first == life.last                 ? 2
                                                     : 1;
  }
  /// Steps between a life and `step`; 0 where it is live then.
  static int64_t getDistance(const Lifetime &life, int64_t step) {
    return std::max<int64_t>({0, life.first - step, step - life.last});
  }
  /// Steps from `step` to the farther end of a life.
  static int64_t getReach(const Lifetime &life, int64_t step) {
    return std::max(life.last - step, step - life.first);
  }

  LiveBytes live;
  int64_t steps;
};

} // namespace

/// Places `buffers` in the order of `ranks`; returns the end of the last one,
/// or as soon as it is no better than `limit`, that.
static int64_t place(llvm::ArrayRef<Lifetime> buffers,
                     llvm::ArrayRef<PlacedBuffer> placed,
                     llvm::ArrayRef<Rank> ranks, int64_t steps, int64_t limit,
                     llvm::MutableArrayRef<int64_t> offsets) {
  auto order = llvm::to_vector(llvm::seq<int64_t>(0, buffers.size()));
  llvm::stable_sort(order,
                    [&](int64_t a, int64_t b) { return ranks[a] < ranks[b]; });
  TakenBytes taken(steps);
  int64_t total = 0;
  for (const PlacedBuffer &buffer : placed) {
    int64_t end = llvm::alignTo(buffer.offset + buffer.bytes, plan::kAlignment);
    total = std::max(total, end);
    taken.add(buffer, buffer.offset, end);
  }
  for (int64_t index : order) {
    const Lifetime &buffer = buffers[index];
    // Has offset 0, and takes nothing from others.
    if (buffer.bytes == 0)
      continue;
    int64_t offset = offsets[index] = taken.findPlace(buffer);
    int64_t end = llvm::alignTo(offset + buffer.bytes, plan::kAlignment);
    total = std::max(total, end);
    // An order that is no better need not be finished.
    if (total >= limit)
      return limit;
    taken.add(buffer, offset, end);
  }
  return total;
}

llvm::SmallVector<int64_t>
plait::packMemory(llvm::ArrayRef<Lifetime> buffers, int64_t &total,
                  llvm::ArrayRef<PlacedBuffer> placed) {
  int64_t steps = 0, least = 0;
  for (const Lifetime &buffer : buffers)
    steps = std::max(steps, buffer.last + 1);
  for (const PlacedBuffer &buffer : placed) {
    steps = std::max(steps, buffer.last + 1);
    least = std::max(least, buffer.offset + buffer.bytes);
  }
  Orders orders(buffers, steps);
  least = std::max<int64_t>(llvm::alignTo(least, plan::kAlignment),
                            orders.getPeak());
  llvm::SmallVector<int64_t> best(buffers.size(), 0), offsets = best;
  // Nothing lies in most places.
  total = least == 0 ? 0 : std::numeric_limits<int64_t>::max();
  // No order takes less than what is live at once, or has been placed:
  // whichever reaches that is the last.
  for (int order = 0; order < Orders::kCount && total > least; ++order) {
    auto ranks = llvm::map_to_vector(buffers, [&](const Lifetime &life) {
      return orders.rank(order, life);
    });
    int64_t bytes = place(buffers, placed, ranks, steps, total, offsets);
    if (bytes < total) {
      total = bytes;
      best = offsets;
    }
  }
  return best;
}
