//===- Knowledge.cpp - What a search has estimated and placed -------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Estimates that explorations of one search share, and what placing some of
// their configurations has told about the others.
//
//===----------------------------------------------------------------------===//

#include "Search/Explore.h"
#include "Simulator/Estimator.h"
#include "plait/Planner/Abilities.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

using namespace plait;
using namespace plait::planner;

void Knowledge::refuse(const Configuration &configuration,
                       const PerPlace<double> &missed) {
  refused.push_back({configuration, missed});
}

/// Whether all but layers, replicas and what these divide is the same, and
/// where the optimizer's state lies: then ranks run the same passes, and the
/// estimates miss the same.
static bool runsAlike(const Configuration &a, const Configuration &b) {
  auto key = [](const Configuration &c) {
    return std::make_tuple(withOneReplica(c.mesh), std::cref(c.schedule),
                           c.chunks, c.sequenceParallel, c.contextParallel,
                           c.expertExchange, c.microBatch,
                           offloadsActivations(c.offload));
  };
  return key(a) == key(b) && (a.zero == 3) == (b.zero == 3) &&
         a.recompute.getUniform() == b.recompute.getUniform();
}

/// Whether the same layers run on as many sequences, in whatever pipeline.
static bool hasSameLayers(Configuration a, const Configuration &b) {
  a.mesh[Axis::PP] = b.mesh[Axis::PP];
  a.schedule = b.schedule;
  a.chunks = b.chunks;
  return runsAlike(a, b);
}

/// The part of what was missed of `known` that is missed of `other` as well.
static double getMissedShare(const Configuration &known,
                             const Configuration &other) {
  if (runsAlike(known, other))
    return 0.9;
  return hasSameLayers(known, other) ? 0.5 : 0;
}

Knowledge::Refusal Knowledge::getRefusal(const Configuration &configuration,
                                         const PerPlace<double> &needs) const {
  // What was placed and fits needs no guess from what is like it.
  if (isAccepted(configuration))
    return Refusal::None;
  Refusal refusal = Refusal::None;
  const Device &device = input.cluster.device;
  for (const Refused &known : refused) {
    if (known.configuration == configuration)
      return Refusal::Placed;
    double share = getMissedShare(known.configuration, configuration);
    PerPlace<double> likely = needs;
    for (const MemoryPlaceFacts &facts : memoryPlaces)
      likely[facts.place] += share * known.missed[facts.place];
    if (share > 0 && findShort(likely, device))
      refusal = Refusal::Inferred;
  }
  return refusal;
}

double Knowledge::getMissed(const Configuration &configuration) const {
  double most = 0;
  for (const Refused &known : refused)
    if (runsAlike(known.configuration, configuration))
      most = std::max(most, known.missed[MemoryPlace::Arena]);
  return most;
}

/// Seconds that any order takes, where that is known to be too long for what is
/// asked.
static std::optional<double> findSlowOrder(const Context &context) {
  if (context.configuration.recompute.isAuto)
    return std::nullopt;
  Result<double> least = Estimator(context).runLeastOrder();
  if (!least.ok()) // estimate() will say why
    return std::nullopt;
  double seconds = boundRounding * *least;
  return seconds >= context.cutoff ? std::optional(seconds) : std::nullopt;
}

Estimated Knowledge::makeEstimate(const Node &node,
                                  const Configuration &configuration,
                                  double withheld, double limit) {
  Estimated result;
  result.limit = limit;
  Cluster cluster = input.cluster;
  cluster.device.memoryBytes -= withheld;
  Context context{*node.work, cluster, input.training, configuration};
  context.blockTimes = &bounds.getBlockTimes();
  context.partLists = &bounds.getPartLists();
  context.cutoff = limit;
  if (node.schedule->searches) {
    // The rest of the step takes its part of the limit, and so does the slowest
    // replica.
    context.cutoff -=
        input.training.framework.stepSeconds +
        bounds.getStepSeconds(*node.work, *node.probe, configuration, limit);
    context.cutoff /= 1 + getWaitShare(configuration, input.training);
    result.cutoff = context.cutoff;
    if (std::optional<double> slow = findSlowOrder(context)) {
      result.isSlow = true;
      result.pipeline = *slow;
      return result;
    }
  }
  Result<Estimate> estimate = planner::estimate(context);
  if (!estimate.ok()) {
    result.refusal = estimate.status().message();
    return result;
  }
  // As it stands: a cut by cost and an even one may be the same.
  Configuration whole = configuration;
  whole.recompute = estimate->recompute;
  whole.layers = estimate->layers;
  Status able =
      getAbilities(input.training.framework).check(whole, input.training);
  if (!able.ok()) {
    result.refusal = able.message();
    return result;
  }
  const Device &device = input.cluster.device;
  for (const StageMemory &memory : estimate->memory)
    result.resident =
        std::max(result.resident, memory.resident() + memory.activations);
  result.pipeline = estimate->pipelineSeconds + estimate->overheadSeconds;
  PerPlace<double> needs = estimate->getNeeds();
  result.fits = !findShort(needs, device);
  result.leaf = {estimate->iterationSeconds,
                 estimate->dataSeconds + estimate->optimizerSeconds, needs,
                 findShort(needs, device, otherPlaces).has_value(),
                 std::move(whole)};
  return result;
}

/// Estimates are made outside of the lock: they take far longer than a look-up.
/// One that was made for a lower limit counts unless it is above that.
Estimated Knowledge::estimate(const Node &node,
                              const Configuration &configuration, double limit,
                              double withheld) {
  Key key(node.work, node.mesh, node.microBatch, node.recompute,
          node.contextParallel, node.schedule, node.even, node.offload,
          configuration.zero, withheld);
  if (!node.schedule->searches)
    limit = std::numeric_limits<double>::max();
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto found = known.find(key);
        found != known.end() && (limit <= found->second.limit ||
                                 found->second.pipeline < found->second.cutoff))
      return found->second;
  }
  Estimated made = makeEstimate(node, configuration, withheld, limit);
  std::lock_guard<std::mutex> lock(mutex);
  return known.insert_or_assign(std::move(key), std::move(made)).first->second;
}
