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
#include <utility>

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

/// What is exchanged parameter by parameter is needed, or made, by one part of
/// a layer, and has the work of its neighbours beside it, which is uneven: of
/// all of the work so much counts. From the replay of plans whose communication
/// takes as long as their work, Llama 3 70B on 512 and 1,024 H100 with ZeRO 2
/// and 3: they are predicted 0.97 to 1.08 of it, others 1.01 to 1.03.
constexpr double kNeighbours = 0.75;

/// Overlapped communication is cut into buckets; what the last one needs is
/// always exposed, because no work is left then, and at least `alone` seconds.
static Overlap overlap(double seconds, double window, const Context &context,
                       double alone = 0) {
  constexpr double buckets = 16;
  double most = seconds - std::max(seconds / buckets, alone);
  double hidden = std::min(most, window);
  Group group = context.replicaGroup();
  const Fabric &fabric = group.perNode == group.ranks ? context.cluster.intra
                                                      : context.cluster.inter;
  return {seconds - hidden, hidden * fabric.computeLoss};
}

/// A collective over the ranks that hold the same parameters. Where they are
/// not one group, gradients are summed over the axis that divides state first
/// and what each rank then has over the others; parameters are gathered over
/// that axis alone, since the others hold them alike.
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
  const Mesh &mesh = context.configuration.mesh;
  double rest = kind == CollectiveKind::ReduceScatter
                    ? bytes / double(mesh.product(&AxisFacts::dividesState))
                    : bytes;
  for (const AxisFacts &facts : kAxes)
    if (facts.splitsTokens() && !facts.dividesState)
      seconds += collectiveSeconds(CollectiveKind::AllReduce, rest,
                                   context.group(facts.axis), context.cluster);
  return seconds;
}

/// Of gradients that are reduced in fewer bytes: rounded before, and widened
/// again where they are needed. It happens where the sums do, beside the
/// backward pass.
static double roundingSeconds(double parameters, const Context &context) {
  double gradient = context.gradientBytes(), reduced = context.reducedBytes();
  if (reduced >= gradient)
    return 0;
  double shards = context.configuration.zero >= 1 ? context.divisions() : 1;
  double bytes = (gradient + reduced) * (1 + 1 / shards);
  return memoryCost(parameters * bytes, context.cluster.device).seconds;
}

/// A copy of a tied table lives on the rank of the first and on that of the
/// last stage; their gradients are added up between the two.
static double getTiedSeconds(const StepLoad &load, const Context &context) {
  if (load.tied == 0)
    return 0;
  Group pair = context.group(2, context.configuration.mesh.stride(Axis::PP));
  if (context.stagesCrossNodes())
    pair.perNode = 1;
  return collectiveSeconds(CollectiveKind::AllReduce,
                           load.tied * context.reducedBytes(), pair,
                           context.cluster);
}

namespace {

/// What ZeRO 2 and 3 divide, and how long it takes to gather all of it, what
/// the backward pass reads, and to reduce it.
struct Divided {
  double elements = 0, gather = 0, gatherBackward = 0, reduce = 0;
  // Of the largest parameter, mostly the table of embeddings: nothing is beside
  // what is gathered first and reduced last.
  double largestGather = 0, largestReduce = 0;
};

} // namespace

/// How many blocks of the rank read a tied table.
static int countReaders(const StepLoad &load, const Context &context) {
  int readers = 0;
  for (const StageBlocks *stage : load.stages)
    for (const StageBlocks::Entry &entry : stage->entries)
      for (const ParameterGroup &group :
           context.work.blocks[entry.block].parameters)
        readers += group.tied;
  return readers;
}

/// Many short collectives take longer than one: each has its latency. What is
/// not known one by one is gathered for no backward pass, for no more than that
/// is certain. With ZeRO 3 the gradient of a tied table is reduced once for
/// each block that reads it.
static Divided getDivided(const StepLoad &load, const Context &context) {
  double element = elementBytes(context.training.precision);
  Divided divided;
  auto add = [&](double elements, int count, bool readBackward,
                 int reductions) {
    divided.elements += count * elements;
    double gather =
        replicaSeconds(CollectiveKind::AllGather, elements * element, context);
    divided.gather += count * gather;
    divided.gatherBackward += readBackward ? count * gather : 0;
    double reduce = replicaSeconds(CollectiveKind::ReduceScatter,
                                   elements * context.reducedBytes(), context);
    divided.reduce += reductions * reduce;
    // As one collective nothing is known of its parts.
    if (count * elements < load.parameters) {
      divided.largestGather = std::max(divided.largestGather, gather);
      divided.largestReduce = std::max(divided.largestReduce, reduce);
    }
  };
  bool isFlat = !context.framework().dividesParameters;
  if (isFlat || load.stages.empty())
    add(load.parameters, 1, isFlat, 1);
  else
    forEachGroup(
        context.work, load.stages, [&](const ParameterGroup &group, int count) {
          bool isSeveral = group.tied && context.configuration.zero >= 3;
          if (context.isDivided(group))
            add(group.elements, count, group.readBackward,
                isSeveral ? countReaders(load, context) : count);
        });
  divided.reduce += roundingSeconds(divided.elements, context);
  return divided;
}

/// On processors one thread does all, unless it is told otherwise.
static bool overlapsParts(const Context &context) {
  return context.framework().overlapGradients &&
         context.framework().overlapsParts && context.hasHost();
}

/// ZeRO 3: parameters are gathered for each pass over a microbatch, one block
/// ahead of the work.
static double getShardedSeconds(const Divided &divided, const StepLoad &load,
                                const Context &context) {
  const Framework &framework = context.framework();
  double gather = divided.gatherBackward, reduce = divided.reduce;
  bool everyTime = framework.reduceEveryMicrobatch;
  double reductions = everyTime ? double(load.microbatches) : 1;
  double m = double(load.microbatches);
  if (!overlapsParts(context))
    return m * (divided.gather + gather) + reductions * reduce;
  Overlap forward = overlap(divided.gather, kNeighbours * load.forward, context,
                            divided.largestGather);
  // Parameters are needed by the first half of a backward pass that is split,
  // and gradients end in the second one.
  reduce *= reductions / m;
  double input = kNeighbours * (load.backward - load.gradients);
  double weights = kNeighbours * load.gradients;
  double last = divided.largestReduce * reductions / m;
  Overlap first, second = overlap(gather + reduce, weights, context, last);
  if (input > 0) {
    first = overlap(gather, input, context);
    second = overlap(reduce, weights, context, last);
  }
  return m * (forward.exposed + forward.slowdown + first.exposed +
              first.slowdown + second.exposed + second.slowdown);
}

/// Whether parameters of ZeRO 1 and 2 are gathered beside the forward pass.
static bool overlapsGather(const Context &context) {
  const Framework &framework = context.framework();
  bool isCopy = context.training.precision != Precision::FP32 &&
                !offloadsOptimizer(context.configuration.offload);
  return framework.overlapParameters && context.hasHost() &&
         (isCopy || !framework.overlapsCopies);
}

/// Parameters of ZeRO 1 and 2 are gathered once a step, for the first
/// microbatch.
static double getGatherSeconds(double gather, const StepLoad &load,
                               const Context &context) {
  Overlap forward{gather, 0};
  if (overlapsGather(context))
    forward = overlap(gather, load.forward, context);
  return forward.exposed + forward.slowdown;
}

/// ZeRO 2. Parts that are added up are reduced after each microbatch, not once.
static double getReducedSeconds(const Divided &divided, const StepLoad &load,
                                const Context &context) {
  const Framework &framework = context.framework();
  Overlap backward{divided.reduce, 0};
  if (overlapsParts(context))
    backward = overlap(divided.reduce, kNeighbours * load.gradients, context,
                       divided.largestReduce);
  double times = framework.addsUpParts ? double(load.microbatches) : 1;
  return times * (backward.exposed + backward.slowdown) +
         getGatherSeconds(divided.gather, load, context);
}

/// ZeRO 0 and 1: once a step, and in buckets.
static double getBucketSeconds(double parameters, bool divides,
                               const StepLoad &load, const Context &context) {
  double reduce = replicaSeconds(divides ? CollectiveKind::ReduceScatter
                                         : CollectiveKind::AllReduce,
                                 parameters * context.reducedBytes(), context) +
                  roundingSeconds(parameters, context);
  Overlap backward{reduce, 0};
  if (context.framework().overlapGradients)
    backward = overlap(reduce, load.gradients, context);
  double seconds = backward.exposed + backward.slowdown;
  if (!divides)
    return seconds;
  double bytes = parameters * elementBytes(context.training.precision);
  return seconds + getGatherSeconds(replicaSeconds(CollectiveKind::AllGather,
                                                   bytes, context),
                                    load, context);
}

/// By ZeRO stage: 0 sums gradients; 1 and 2 reduce them into parts and gather
/// parameters after the optimizer; 3 gathers for each pass. What is hidden
/// stands beside one microbatch: gradients are whole in the last one's backward
/// pass, or the half of it that computes them, and parameters are needed from
/// the first one's forward pass on. What 2 and 3 cannot divide is left to 1.
double planner::getDataSeconds(const StepLoad &load, const Context &context) {
  double seconds = getTiedSeconds(load, context);
  if (context.replicas() == 1)
    return seconds;
  int zero = context.configuration.zero;
  StepLoad rest = load;
  if (zero >= 2) {
    Divided divided = getDivided(load, context);
    seconds += zero >= 3 ? getShardedSeconds(divided, load, context)
                         : getReducedSeconds(divided, load, context);
    rest.parameters -= divided.elements;
    // Beside the same work, one behind the other.
    double taken = divided.reduce + (zero >= 3 ? divided.gatherBackward : 0);
    rest.gradients = std::max(0.0, load.gradients - taken);
  }
  if (rest.parameters > 0)
    seconds += getBucketSeconds(rest.parameters, zero >= 1, rest, context);
  return seconds;
}

/// What comes from the host and goes back, parameter by parameter: each is
/// fetched while the one before is updated, and goes into the place of the one
/// before that, which has to be back on the host by then. So a large one beside
/// small ones waits for its own copies. Buckets, and what is not known one by
/// one, are as long as each other: copies either way hide each other.
static double getCopySeconds(double perElement, const StepLoad &load,
                             const Context &context) {
  bool hasBuckets = context.configuration.zero == 1 && context.divisions() > 1;
  if (load.stages.empty() || hasBuckets)
    return load.parameters * perElement;
  double fetched = 0, back = 0, before = 0; // until when, `before` of two ago
  auto add = [&](const ParameterGroup &group) {
    double seconds = group.elements * perElement;
    fetched = std::max(fetched, before) + seconds;
    before = back;
    back = std::max(fetched, back) + seconds;
  };
  bool hasTied = false;
  for (const StageBlocks *stage : load.stages)
    for (const StageBlocks::Entry &entry : stage->entries)
      for (int i = 0; i < entry.count; ++i)
        for (const ParameterGroup &group :
             context.work.blocks[entry.block].parameters)
          if (!group.tied || !std::exchange(hasTied, true))
            add(group);
  return back;
}

/// What is done to matrices that are updated as a whole: every rank that has a
/// part of one gathers all of it, and does five Newton-Schulz iterations, each
/// of three products (lib/Transforms/Gradients/Optimizers/Muon.cpp).
static Cost getMatrixCost(const StepLoad &load, const Context &context) {
  Cost cost;
  if (context.training.matrixStateBytes == 0)
    return cost;
  const Device &device = context.cluster.device;
  constexpr double iterations = 5;
  forEachGroup(
      context.work, load.stages, [&](const ParameterGroup &group, int count) {
        int64_t least = std::min(group.rows, group.columns);
        int64_t most = std::max(group.rows, group.columns);
        if (least == 0)
          return;
        Cost one = matmulCost(1, least, least, most, device, Precision::FP32);
        one += matmulCost(1, least, least, least, device, Precision::FP32);
        one += matmulCost(1, least, most, least, device, Precision::FP32);
        cost += (count * iterations) * one;
        double bytes = 4 * double(least) * double(most);
        double gather =
            group.replicated
                ? 0
                : collectiveSeconds(CollectiveKind::AllGather, bytes,
                                    context.group(Axis::TP), context.cluster);
        if (context.configuration.zero >= 1 && context.isDivided(group))
          gather += replicaSeconds(CollectiveKind::AllGather,
                                   4 * group.elements, context);
        cost.seconds += count * gather;
      });
  return cost;
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
    cost.seconds = std::max(
        cost.seconds,
        getCopySeconds(moved / shards / device.hostBandwidth, load, context));
  }
  cost += getMatrixCost(load, context);
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
