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
#include "plait/Support/PieceOverlap.h"

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

/// Seconds of one sequence on one rank of `tensor`, at the very least.
static double getLeastSeconds(const Operation &op, double share, Group group,
                              const Cluster &cluster,
                              const Training &training) {
  const Device &device = cluster.device;
  double element = elementBytes(training.precision);
  if (op.kind == OperationKind::Collective) {
    if (op.pass != Pass::Forward || op.axis != Axis::TP)
      return 0; // may be hidden, or there may be none
    // Of the pieces that it is cut into, one is not hidden.
    int pieces = training.cutsCollectives(device.isProcessor)
                     ? getMostPieces(training.tensorOverlap, /*isSum=*/false)
                     : 1;
    double batch = double(training.globalBatch);
    return collectiveSeconds(op.collective,
                             op.collectiveElements(batch) * element / pieces,
                             group, cluster) /
           batch;
  }
  if (op.kind == OperationKind::Matmul)
    return share * getLeastMatmul(op, device, training);
  if (op.kind == OperationKind::Attention)
    return share * getLeastAttention(op, device, training);
  if (op.sumsSequences)
    return 0; // of one sequence
  double bytes =
      op.elementsPerSequence * element + op.fourBytePerSequence * sizeof(float);
  return share * bytes / getMemoryRate(device);
}

/// Bounds as if every operation could be split: work scales with a rank's
/// share, collectives of the forward pass are those of the new group. What the
/// backward pass communicates may be hidden and counts as nothing.
double planner::getTensorBound(const Work &work, int tensor, int ranks,
                               const Cluster &cluster,
                               const Training &training) {
  Group group{tensor, std::min(tensor, cluster.devicesPerNode)};
  double share = double(work.tensorParallel) / tensor;
  double seconds = 0;
  for (int block : work.order)
    for (const Operation &op : work.blocks[block].operations)
      seconds += getLeastSeconds(op, share, group, cluster, training);
  return boundRounding * seconds * double(training.globalBatch) * tensor /
         ranks;
}
