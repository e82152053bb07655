//===- TensorBound.cpp - Work that has not been asked for -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a degree of tensor parallelism takes at least, told from the work of
// another one: the compiler is only asked for degrees that may win.
//
//===----------------------------------------------------------------------===//

#include "Search/Bounds.h"
#include "plait/Planner/Cost.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

/// Seconds of one sequence: no tile is faster than the best one, no wave is
/// fuller than full, and a shorter contraction has more ramp, not less.
static double getLeastMatmul(const Operation &op, const Device &device,
                             const Training &training) {
  if (op.scaled == Operation::Scaled::None)
    return 0;
  const MatrixUnit &unit = device.matrix;
  double efficiency = 0;
  for (const Tile &tile : unit.tiles)
    efficiency = std::max(efficiency, tile.efficiency);
  // Where the contraction grows with the microbatch, its ramp vanishes.
  double trips = std::max(1.0, double(op.k) / unit.tileK);
  if (op.scaled != Operation::Scaled::K)
    efficiency *= trips / (trips + unit.rampTrips);
  double flops = 2.0 * double(op.joined) * double(op.batch) * double(op.m) *
                 double(op.n) * double(op.k);
  double peak = device.peak(training.precision) *
                std::min(efficiency, unit.sustainedFraction);
  return flops / peak;
}

/// Fused, at the best efficiency of the table for any head size; otherwise at
/// the peak, which two matmuls with a softmax in between do not reach.
static double getLeastAttention(const Operation &op, const Device &device,
                                const Training &training) {
  bool forward = op.isForward();
  const auto &table =
      forward ? device.attention.forward : device.attention.backward;
  bool fused = training.flashAttention && !table.empty();
  double efficiency = 1;
  if (fused) {
    efficiency = 0;
    for (auto [headSize, reached] : table)
      efficiency = std::max(efficiency, reached);
    efficiency *= training.framework.getAttentionFraction(device.target);
  }
  // Fused attention computes the scores again; a causal mask leaves half of
  // them.
  double matmuls = forward ? 2 : fused ? 5 : 4;
  double scores = double(op.heads) * double(op.queries) * double(op.keys) *
                  (op.causal ? 0.5 : 1);
  return matmuls * 2 * scores * op.headSize /
         (device.peak(training.precision) * efficiency);
}

/// Seconds of one sequence without communication, at the very least.
static double getLeastSeconds(const Operation &op, const Device &device,
                              const Training &training) {
  if (op.kind == OperationKind::Collective)
    return 0;
  if (op.kind == OperationKind::Matmul)
    return getLeastMatmul(op, device, training);
  if (op.kind == OperationKind::Attention)
    return getLeastAttention(op, device, training);
  if (op.sumsSequences)
    return 0; // of one sequence
  double bytes = op.elementsPerSequence * elementBytes(training.precision) +
                 op.fourBytePerSequence * sizeof(float);
  return bytes / getMemoryRate(device);
}

static bool isGather(const Operation &op) {
  return op.kind == OperationKind::Collective &&
         op.collective == CollectiveKind::AllGather;
}

/// Counts of a forward pass all but what is cut into pieces: beside each other
/// rows may be computed. What hides hides behind work that nothing else
/// hides behind, so that all of them together take no longer than the passes.
/// Of gradients of weights nothing counts: what was gathered before may be
/// there. Nor does what may be gathered in one launch with what is before it.
ExchangeBound planner::getExchangeBound(const Work &work, int tensor,
                                        const Cluster &cluster,
                                        const Training &training) {
  Group group{tensor, std::min(tensor, cluster.devicesPerNode)};
  double element = elementBytes(training.precision);
  double batch = double(training.globalBatch);
  bool cuts = training.cutsCollectives(cluster.device.isProcessor);
  ExchangeBound bound;
  for (int block : work.order)
    for (const Operation *before = nullptr;
         const Operation &op : work.blocks[block].operations) {
      bool isJoined = before && isGather(*before) && isGather(op);
      before = &op;
      if (op.kind != OperationKind::Collective || op.axis != Axis::TP ||
          op.pass == Pass::BackwardWeight || isJoined)
        continue;
      double bytes = op.collectiveElements(batch) * element;
      double seconds =
          collectiveSeconds(op.collective, bytes, group, cluster) / batch;
      bound.all += seconds;
      if (op.pass == Pass::Forward && !cuts)
        bound.exposed += seconds;
    }
  return bound;
}

/// Bounds as if every operation could be split: work scales with a rank's
/// share, collectives are those of the new group. What the backward pass
/// communicates may be hidden.
double planner::getTensorBound(const Work &work, int tensor, int ranks,
                               const Cluster &cluster,
                               const Training &training) {
  double share = double(work.tensorParallel) / tensor;
  double seconds = 0;
  for (int block : work.order)
    for (const Operation &op : work.blocks[block].operations)
      seconds += share * getLeastSeconds(op, cluster.device, training);
  ExchangeBound exchange = getExchangeBound(work, tensor, cluster, training);
  return boundRounding * std::max(seconds + exchange.exposed, exchange.all) *
         double(training.globalBatch) * tensor / ranks;
}
