//===- Attention.cpp - Time of attention ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fused attention never writes its scores (Dao 2023, FlashAttention-2): forward
// it multiplies twice, backward five times, because it computes the scores
// again. A block works on a tile of queries (forward) or of keys (backward) of
// one head; under a causal mask the blocks are of unequal length and the
// longest ones end last.
//
// Otherwise attention is batched matmuls over all scores, masked or
// not, and kernels that read and write them: a fused scale, mask and softmax,
// and dropout with a mask of one byte (Korthikanti et al. 2022, section 4.1).
//
//===----------------------------------------------------------------------===//

#include "Cost/Parts.h"

#include <algorithm>
#include <cmath>

using namespace plait;
using namespace plait::planner;

namespace {

/// Sizes on one rank.
struct Sizes {
  double batch; // heads of all sequences
  double queries, keys, headSize;
  double seen; // the part of the scores that no mask hides
};

/// Straight lines between head sizes; constant outside of the table.
double interpolate(const std::vector<std::pair<int, double>> &table, double x) {
  if (x <= table.front().first)
    return table.front().second;
  for (size_t i = 1; i < table.size(); ++i) {
    auto [x0, y0] = table[i - 1];
    auto [x1, y1] = table[i];
    if (x <= x1)
      return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
  }
  return table.back().second;
}

double roundUp(double value, double multiple) {
  return std::ceil(value / multiple) * multiple;
}

/// The longer of the arithmetic, with its uneven end, and the memory traffic.
/// Blocks are those of a tile of queries (forward) or keys (backward), each as
/// long as the part of the other that it sees.
Cost fusedCost(const Sizes &sizes, const Device &device,
               const CostOptions &options, bool forward) {
  const AttentionUnit &unit = device.attention;
  double headSize = roundUp(sizes.headSize, unit.headMultiple);
  double along = forward ? sizes.queries : sizes.keys;
  double across = forward ? sizes.keys : sizes.queries;
  double tile = forward ? unit.tileQueries : unit.tileKeys;
  double rows = roundUp(along, tile);
  // What is seen, and half of the tiles on the diagonal.
  double share = std::min(1.0, sizes.seen + tile / (2 * rows));
  double matmuls = forward ? 2 : 5;
  // Processors compute in fp32 whatever is stored.
  double unitFlops =
      device.peak(device.isProcessor ? Precision::FP32 : options.precision) *
      interpolate(forward ? unit.forward : unit.backward, headSize) /
      device.multiprocessors;
  double longest = matmuls * 2 * tile * across * headSize / unitFlops;
  double even =
      sizes.batch * (rows / tile) * longest * share / device.multiprocessors;
  // Never faster than its longest block; otherwise the work shared evenly, and
  // some of a longest block, which begins last (Graham 1969: list scheduling).
  double arithmetic = std::max(longest, even + unit.tail * longest);
  // Q, K, V and the result; backward their gradients as well.
  double bytes = elementBytes(options.precision) * sizes.batch *
                 sizes.headSize * (2 * sizes.queries + 2 * sizes.keys) *
                 (forward ? 1 : 2);
  // Backward, the sums over rows of dO and O are a kernel of their own.
  double launches = (forward ? 1 : 2) * device.launchSeconds;
  Cost cost = memoryCost(bytes, device);
  if (arithmetic >= cost.seconds)
    cost = {arithmetic};
  cost.seconds += launches;
  cost.launch += launches;
  return cost;
}

/// What it costs a GPU that queries in zig-zag order are two calls: it launches
/// twice as much, and gradients of keys and values are added up. Of one rank
/// half of them have two terms, and ranks wait for it.
Cost secondCallCost(const Operation &operation, const Device &device,
                    const CostOptions &options) {
  bool forward = operation.isForward();
  double launches = (forward ? 1 : 2) * device.launchSeconds;
  Cost cost = {launches, 0, launches};
  if (forward)
    return cost;
  double half = double(options.microBatch) * double(operation.keys) / 2 *
                double(operation.keyValueHeads) * double(operation.headSize) *
                elementBytes(options.precision);
  // Each is read twice and written once.
  cost += memoryCost(3 * half, device);
  cost += memoryCost(3 * half, device);
  return cost;
}

/// Two matmuls forward and four backward over all scores, each with what
/// softmax and dropout read and write between them; scores that are not kept
/// are computed once more. Masked scores are computed like others.
Cost unfusedCost(const Sizes &sizes, const Device &device,
                 const CostOptions &options, bool forward) {
  double bytes = elementBytes(options.precision);
  int64_t batch = std::llround(sizes.batch),
          queries = std::llround(sizes.queries),
          keys = std::llround(sizes.keys), head = std::llround(sizes.headSize);
  auto multiply = [&](int64_t m, int64_t n, int64_t k) {
    return matmulCost(batch, m, n, k, device, options.precision);
  };
  double scores = sizes.batch * sizes.queries * sizes.keys;
  // A masked score is written as zero but not read.
  double read = sizes.seen;
  Cost cost;
  if (forward) {
    cost += multiply(queries, keys, head);
    cost += multiply(queries, head, keys);
    cost += memoryCost(scores * bytes * (read + 1), device);
  } else {
    // dV and dP, then dQ and dK; softmax reads P and dP and writes dS.
    cost += multiply(keys, head, queries);
    cost += multiply(queries, keys, head);
    cost += multiply(queries, head, keys);
    cost += multiply(keys, head, queries);
    cost += memoryCost(scores * bytes * (2 * read + 1), device);
    if (!options.keepsScores) {
      cost += multiply(queries, keys, head);
      cost += memoryCost(scores * bytes * (read + 1), device);
    }
  }
  double dropout = 2 * bytes + 1; // read, write, mask
  if (options.dropout)
    cost += memoryCost(scores * dropout, device);
  return cost;
}

} // namespace

/// Gathered context parallelism leaves a rank its part of the queries and all
/// keys; exchanged, it has all queries of its part of the heads.
Cost planner::attentionCost(const Operation &operation, const Device &device,
                            const CostOptions &options) {
  Sizes sizes = {double(operation.heads) * double(options.microBatch),
                 double(operation.queries), double(operation.keys),
                 double(operation.headSize), 1};
  (options.contextHeads ? sizes.batch : sizes.queries) /= options.sequenceParts;
  // A causal mask hides half of the scores. Where context parallelism cuts the
  // sequence in blocks, the last rank sees most, and all wait for it.
  if (operation.causal)
    sizes.seen = options.balancedContext || options.contextHeads
                     ? 0.5
                     : 1 - 0.5 / options.sequenceParts;
  if (sizes.batch <= 0 || sizes.queries <= 0 || sizes.keys <= 0 ||
      sizes.headSize <= 0)
    return {};
  bool forward = operation.isForward();
  if (!options.flashAttention || device.attention.forward.empty())
    return unfusedCost(sizes, device, options, forward);
  Cost cost = fusedCost(sizes, device, options, forward);
  if (options.reorderedContext && !device.isProcessor)
    cost += secondCallCost(operation, device, options);
  return cost;
}
