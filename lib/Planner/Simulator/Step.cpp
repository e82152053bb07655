//===- Step.cpp - Costs of the end of a step ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a step takes beside its pipeline: the wait for the slowest replica, the
// sum of gradients and the exchange of parameters over replicas, the optimizer.
// All of it is of the rank that holds the most parameters, since the others are
// done sooner and wait. What frameworks do differently (what overlaps, when
// gradients are reduced, who shares state) is in Framework, not here.
//
//===----------------------------------------------------------------------===//

#include "Step.h"

#include <algorithm>
#include <cmath>

using namespace plait;
using namespace plait::planner;

/// The usual approximation of how many standard deviations the largest of many
/// normal samples is expected above the mean.
double planner::getWaitShare(int replicas, const Framework &framework) {
  return std::sqrt(2 * std::log(double(replicas))) * framework.spread;
}

namespace {

/// Communication that runs beside `window` seconds of work.
struct Overlap {
  double exposed = 0;
  double slowdown = 0; // of the work
};

} // namespace

/// Overlapped communication is cut into buckets; what the last one needs is
/// always exposed, because no work is left then.
static Overlap overlap(double seconds, double window, const Context &context) {
  constexpr double buckets = 16;
  double hidden = std::min(seconds * (1 - 1 / buckets), window);
  Group group = context.replicaGroup();
  const Fabric &fabric = group.perNode == group.ranks ? context.cluster.intra
                                                      : context.cluster.inter;
  return {seconds - hidden, hidden * fabric.computeLoss};
}

/// A collective over the ranks that hold the same parameters. Where dp and cp
/// are not one group, gradients are summed over dp first and what each rank
/// then has over cp; parameters are gathered over dp alone, since cp holds them
/// alike.
static double replicaSeconds(CollectiveKind kind, double bytes,
                             const Context &context) {
  Group group = context.replicaGroup();
  double seconds = collectiveSeconds(kind, bytes, group, context.cluster);
  bool crosses = group.perNode < group.ranks;
  bool strided =
      group.perNode > 1 && group.perNode < context.cluster.devicesPerNode;
  if (crosses && strided)
    seconds /= context.framework().stridedFraction;
  if (context.framework().joinsReplicas || kind == CollectiveKind::AllGather)
    return seconds;
  // What is left after dp is reduced over cp.
  double rest = kind == CollectiveKind::ReduceScatter
                    ? bytes / context.configuration.data
                    : bytes;
  return seconds + collectiveSeconds(CollectiveKind::AllReduce, rest,
                                     context.contextGroup(), context.cluster);
}

/// Of gradients that are reduced in fewer bytes: rounded before, and widened
/// again where they are needed. It happens where the sums do, beside the
/// backward pass.
static double roundingSeconds(const StepLoad &load, const Context &context) {
  double gradient = context.gradientBytes(), reduced = context.reducedBytes();
  if (reduced >= gradient)
    return 0;
  double shards = context.configuration.zero >= 1 ? context.divisions() : 1;
  double bytes = (gradient + reduced) * (1 + 1 / shards);
  return memoryCost(load.parameters * bytes, context.cluster.device).seconds;
}

/// A copy of a tied table lives on the rank of the first and on that of the
/// last stage; their gradients are added up between the two.
static double getTiedSeconds(const StepLoad &load, const Context &context) {
  if (load.tied == 0)
    return 0;
  Group pair =
      context.group(2, context.configuration.tensor * context.replicas());
  if (context.stagesCrossNodes())
    pair.perNode = 1;
  return collectiveSeconds(CollectiveKind::AllReduce,
                           load.tied * context.reducedBytes(), pair,
                           context.cluster);
}

/// ZeRO 3: parameters are gathered for each pass over a microbatch, one block
/// ahead of the work.
static double getShardedSeconds(const StepLoad &load, const Context &context) {
  const Framework &framework = context.framework();
  double bytes = load.parameters * elementBytes(context.training.precision);
  double gather = replicaSeconds(CollectiveKind::AllGather, bytes, context);
  double reduce =
      replicaSeconds(CollectiveKind::ReduceScatter,
                     load.parameters * context.reducedBytes(), context) +
      roundingSeconds(load, context);
  bool everyTime = framework.reduceEveryMicrobatch;
  double reductions = everyTime ? double(load.microbatches) : 1;
  double m = double(load.microbatches);
  if (!framework.overlapGradients || !framework.overlapsParts)
    return 2 * m * gather + reductions * reduce;
  Overlap forward = overlap(gather, load.forward, context);
  // Parameters are needed by the first half of a backward pass that is split,
  // and gradients end in the second one.
  reduce *= reductions / m;
  double input = load.backward - load.gradients;
  Overlap first, second = overlap(gather + reduce, load.gradients, context);
  if (input > 0) {
    first = overlap(gather, input, context);
    second = overlap(reduce, load.gradients, context);
  }
  return m * (forward.exposed + forward.slowdown + first.exposed +
              first.slowdown + second.exposed + second.slowdown);
}

/// By ZeRO stage: 0 sums gradients; 1 and 2 reduce them into parts and gather
/// parameters after the optimizer; 3 gathers for each pass. What is hidden
/// stands beside one microbatch: gradients are whole in the last one's backward
/// pass, or the half of it that computes them, and parameters are needed from
/// the first one's forward pass on.
double planner::getDataSeconds(const StepLoad &load, const Context &context) {
  double seconds = getTiedSeconds(load, context);
  if (context.replicas() == 1)
    return seconds;
  int zero = context.configuration.zero;
  if (zero >= 3)
    return seconds + getShardedSeconds(load, context);
  const Framework &framework = context.framework();
  double gradientBytes = load.parameters * context.reducedBytes();
  double reduce = replicaSeconds(zero >= 1 ? CollectiveKind::ReduceScatter
                                           : CollectiveKind::AllReduce,
                                 gradientBytes, context) +
                  roundingSeconds(load, context);
  Overlap backward{reduce, 0};
  if (framework.overlapGradients && (zero < 2 || framework.overlapsParts))
    backward = overlap(reduce, load.gradients, context);
  // Parts that are added up are reduced after each microbatch, not once.
  double times =
      zero == 2 && framework.addsUpParts ? double(load.microbatches) : 1;
  seconds += times * (backward.exposed + backward.slowdown);
  if (zero == 0)
    return seconds;
  double bytes = load.parameters * elementBytes(context.training.precision);
  double gather = replicaSeconds(CollectiveKind::AllGather, bytes, context);
  // Parameters of ZeRO 1 and 2 are gathered once a step, for the first
  // microbatch.
  Overlap forward{gather, 0};
  if (framework.overlapParameters)
    forward = overlap(gather, load.forward, context);
  return seconds + forward.exposed + forward.slowdown;
}

/// Bound by memory: one pass over gradients, state and parameters, divided
/// where ZeRO divides them, and the norm's all-reduce of one number over all
/// ranks.
Cost planner::getOptimizerCost(const StepLoad &load, const Context &context) {
  const Training &training = context.training;
  double element = elementBytes(training.precision);
  double gradient = context.gradientBytes();
  // Gradients are read for the norm and for the update, and set to zero; the
  // state and parameters of 4 bytes are read and written; short parameters are
  // written anew.
  double bytes = 3 * gradient + 2 * (training.stateBytes + 4) +
                 (training.precision == Precision::FP32 ? 0 : element) +
                 context.framework().optimizerExtraBytes;
  double shards = context.configuration.zero >= 1 ? context.divisions() : 1;
  double norm = collectiveSeconds(
      CollectiveKind::AllReduce, 4,
      context.group(int(context.configuration.ranks()), 1), context.cluster);
  const Device &device = context.cluster.device;
  Cost cost = memoryCost(load.parameters / shards * bytes, device);
  if (offloadsOptimizer(context.configuration.offload)) {
    // State and masters come and go at once, beside the update.
    double moved =
        training.stateBytes + (training.precision == Precision::FP32 ? 0 : 4);
    cost.seconds = std::max(cost.seconds, load.parameters / shards * moved /
                                              device.hostBandwidth);
  }
  cost.seconds += norm;
  cost.launch += norm; // of four bytes: nothing but latency
  return cost;
}

/// Reads the gradient and the sum and writes the sum, for each microbatch.
Cost planner::getAccumulationCost(double parameters, const Context &context) {
  // Matmuls are charged for adding to the sum themselves.
  if (context.framework().fusedAccumulation || context.configuration.zero >= 2)
    return {};
  double bytes =
      elementBytes(context.training.precision) + 2 * context.gradientBytes();
  return memoryCost(parameters * bytes, context.cluster.device);
}
