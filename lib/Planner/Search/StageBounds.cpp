//===- StageBounds.cpp - Lower bounds of cut stages -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bounds that know how layers are cut into stages. Bounds.cpp says why they
// hold.
//
//===----------------------------------------------------------------------===//

#include "Search/Bounds.h"
#include "Simulator/Estimator.h"
#include "plait/Schedule/Generators.h"

#include <algorithm>
#include <limits>

using namespace plait;
using namespace plait::planner;

/// Sums up what isBeaten needs of the virtual stages of each rank.
static void fillRanks(StageProbe &probe, Estimator &estimator,
                      const Context &context) {
  const schedule::Generator &generator = estimator.getGenerator();
  schedule::Problem problem;
  problem.stages = uint32_t(context.configuration.mesh[Axis::PP]);
  problem.chunks = uint32_t(context.configuration.chunks);
  problem.placement = generator.placement;
  const std::vector<StageTime> &times = estimator.getResult().stages;
  // From the beginning of a stage's forward to the gradient of its input.
  std::vector<double> round(times.size() + 1, 0);
  for (size_t stage = times.size(); stage-- > 0;)
    round[stage] =
        round[stage + 1] + times[stage].round(generator.splitsBackward);
  double passed = 0;
  HoldingsFinder finder(context);
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    double work = 0, held = 0, heldSeconds = 0;
    std::vector<const StageBlocks *> stages;
    for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk) {
      uint32_t stage = problem.stageOf(rank, chunk);
      stages.push_back(&estimator.getStages()[stage]);
      work += times[stage].sum();
      double bytes = heldBytes(*stages.back(), context, /*splits=*/false).whole;
      held += bytes;
      heldSeconds += bytes * round[stage];
    }
    probe.work.push_back(work);
    probe.outside.push_back(passed);
    // What the ranks behind this one wait for: a forward of its first stage,
    // and, where backwards are whole, its backward at the end.
    const StageTime &first = times[problem.stageOf(rank, 0)];
    passed += generator.splitsBackward ? first.forward : first.sum();
    Holdings own = finder.find(stages);
    auto known = std::ranges::find(probe.holdings, own);
    probe.holds.push_back(uint32_t(known - probe.holdings.begin()));
    if (known == probe.holdings.end())
      probe.holdings.push_back(own);
    if (own.parameters.all() > probe.parameters.all())
      probe.parameters = own.parameters;
    probe.held.push_back(held);
    probe.heldSeconds.push_back(heldSeconds);
  }
}

/// Null where estimate() refuses.
std::shared_ptr<const StageProbe>
Bounds::makeStageProbe(const Work &work, const Configuration &configuration) {
  Training step = training;
  step.globalBatch = configuration.microBatch * configuration.mesh.batchParts();
  Context context{work, cluster, step, configuration};
  context.blockTimes = &blockTimes;
  context.boundsCuts = copiesBesideGathers(configuration, /*splits=*/false);
  Estimator estimator(context);
  if (!estimator.runStages().ok())
    return nullptr;
  auto probe = std::make_shared<StageProbe>();
  probe->layers = estimator.getResult().layers;
  fillRanks(*probe, estimator, context);
  return probe;
}

/// Kept for all numbers of microbatches and replicas, which are left out of the
/// key, and for all schedules that place stages alike and split backwards
/// alike. Two threads may make the same one; the first to be entered is used.
std::shared_ptr<const StageProbe>
Bounds::getStageProbe(const Work &work, const Configuration &configuration,
                      bool splits) {
  Configuration one = configuration;
  one.mesh = withOneReplica(one.mesh);
  one.zero = copiesBesideGathers(configuration, splits) ? 3 : 0;
  // One chunk lies the same way in every placement.
  if (one.chunks == 1)
    one.schedule = splits ? "zb-h1" : "1f1b";
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(one.schedule);
  if (!generator.ok())
    return nullptr;
  StageKey key(&work, one.mesh[Axis::CP], one.contextParallel,
               one.mesh[Axis::PP], one.chunks, one.microBatch, one.recompute,
               (*generator)->placement, splits, one.layers,
               one.offload.activations, one.zero);
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = stageProbes.find(key);
    if (found != stageProbes.end())
      return found->second;
  }
  // Made outside of the lock: a cut of many layers takes longer than all
  // look-ups.
  std::shared_ptr<const StageProbe> probe = makeStageProbe(work, one);
  std::lock_guard<std::mutex> lock(mutex);
  return stageProbes.try_emplace(std::move(key), std::move(probe))
      .first->second;
}

/// Microbatches that `rank` holds whole, of all its chunks, at one moment.
static double getHeld(const PipelineModel &pipeline, uint32_t rank) {
  double most = 0;
  for (size_t moment = 0; moment < pipeline.countMoments(rank); ++moment) {
    double least = pipeline.inFlight(rank, moment, 0).whole;
    for (uint32_t chunk = 1; chunk < pipeline.getProblem().chunks; ++chunk)
      least = std::min(least, pipeline.inFlight(rank, moment, chunk).whole);
    most = std::max(most, least);
  }
  return most;
}

/// By rank, at least: what the schedule of `configuration` holds. One
/// microbatch where that depends on costs.
static std::vector<double> countHeld(const Configuration &configuration,
                                     const Training &training) {
  std::vector<double> held(size_t(configuration.mesh[Axis::PP]), 1);
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(configuration.schedule);
  if (!generator.ok() || (*generator)->searches)
    return held;
  schedule::Problem problem;
  problem.stages = uint32_t(configuration.mesh[Axis::PP]);
  problem.chunks = uint32_t(configuration.chunks);
  problem.microbatches = uint32_t(configuration.microbatches(training));
  // The estimate asks for the same one.
  Result<PipelineModel> pipeline = PipelineModel::get(
      configuration.schedule, problem, OrderGoal(), Asked::Memory);
  for (uint32_t rank = 0; pipeline.ok() && rank < held.size(); ++rank)
    held[rank] = std::max(1.0, getHeld(*pipeline, rank));
  return held;
}

/// Cached by schedule and counts: many cells share them, and a schedule of
/// hundreds of stages takes long to generate.
Bounds::Held Bounds::getHeld(const Configuration &configuration) {
  HeldKey key(configuration.schedule, configuration.mesh[Axis::PP],
              configuration.chunks, configuration.microbatches(training));
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = heldBy.find(key);
    if (found != heldBy.end())
      return found->second;
  }
  auto held = std::make_shared<const std::vector<double>>(
      countHeld(configuration, training));
  std::lock_guard<std::mutex> lock(mutex);
  return heldBy.try_emplace(std::move(key), std::move(held)).first->second;
}

/// Auto cuts stages for one of three kinds. With each cut, what is not computed
/// again bounds its time, and what is all computed again its memory.
bool Bounds::isBeaten(const Work &work, const Configuration &configuration,
                      bool splits, double seconds, double &bytes) {
  if (!configuration.recompute.isAuto)
    return isBeatenBy(work, configuration, splits, seconds, bytes,
                      /*isMixture=*/false);
  Configuration one = configuration;
  double least = std::numeric_limits<double>::max();
  for (Recompute kind :
       {Recompute::None, Recompute::Selective, Recompute::Full}) {
    one.recompute = kind;
    one.layers = configuration.layers;
    one.offload = configuration.offload;
    // Only what holds too much, whatever it takes.
    bool isLarge =
        isBeatenBy(work, one, splits, std::numeric_limits<double>::max(), bytes,
                   /*isMixture=*/true);
    least = std::min(least, bytes);
    // Auto does not take this cut: it takes that of the first kind with which
    // all ranks fit.
    if (isLarge)
      continue;
    std::shared_ptr<const StageProbe> probe = getStageProbe(work, one, splits);
    if (!probe)
      return false;
    // A mixture of kinds with this cut takes no less time than the fastest kind
    // alone. None and selective are both tried, since computing cheap
    // operations again may be faster than keeping their results.
    one.layers = probe->layers;
    // As in makeLeastProbe.
    one.offload = Offload::None;
    for (Recompute fast : {Recompute::None, Recompute::Selective}) {
      one.recompute = fast;
      double memory = 0; // not the reason
      if (fast <= kind && (!isBeatenBy(work, one, splits, seconds, memory,
                                       /*isMixture=*/true) ||
                           memory > 0))
        return false;
    }
    least = 0;
  }
  bytes = least;
  return true;
}

/// How often, in seconds, each rank can take a microbatch into what is free
/// beside `memory`, by what they hold. Ranks that have nothing free are left to
/// the bound on bytes.
static double getHoldingSeconds(const StageProbe &probe,
                                std::span<const StageMemory> memory,
                                double usable) {
  double seconds = 0;
  for (size_t rank = 0; rank < probe.holds.size(); ++rank)
    if (double room = usable - memory[probe.holds[rank]].peak(); room > 0)
      seconds = std::max(seconds, probe.heldSeconds[rank] / room);
  return seconds;
}

/// Whether a step whose pipeline takes `pipeline` seconds takes `limit`, with
/// the slowest replica, the fixed part and what the fullest rank exchanges.
bool Bounds::takesLonger(double pipeline, const StageProbe &probe,
                         const Context &context, double limit) const {
  double wait = 1 + getWaitShare(context.configuration, training);
  double least =
      boundRounding * (pipeline * wait + training.framework.stepSeconds);
  return least >= limit ||
         least + getStepSeconds(probe.parameters, context, limit) >= limit;
}

/// Returns what the slowest rank needs: what it waits for outside, its messages
/// and its own work m times.
double Bounds::getPipelineSeconds(const StageProbe &probe,
                                  const Context &context, bool splits) const {
  const Configuration &configuration = context.configuration;
  double microbatches = double(configuration.microbatches(training));
  // To a rank and, where it waits for the stages in front at the end, back.
  const double ways = splits ? 1 : 2;
  TransferCost transfer = getTransfer(context);
  double pipeline = 0, busy = 0, messages = 0;
  for (size_t rank = 0; rank < probe.work.size(); ++rank) {
    double work = microbatches * probe.work[rank];
    double outside = probe.outside[rank] + ways * messages;
    messages += transfer.at(uint32_t(rank), uint32_t(probe.work.size()));
    pipeline = std::max(pipeline, outside + work);
    busy += work / double(probe.work.size());
  }
  return sharedSeconds(pipeline, busy, cluster.device);
}

/// Time first, then memory, which takes the order of the schedule to count.
///
/// 1. Time, where activations are copied first without that: copies make
///    nothing faster, and the stages without them are mostly known.
/// 2. The same of what each rank holds for how long, by what is free. Not of a
///    mixture: the kind at hand is then the one that takes the least time, and
///    holds more than others do.
/// 3. Each rank's bytes: what its stages hold, as often as the schedule holds
///    them whole at one moment.
///
/// `bytes` is 0 where time was the reason: how much memory such a configuration
/// needs is not known then.
bool Bounds::isBeatenBy(const Work &work, const Configuration &configuration,
                        bool splits, double seconds, double &bytes,
                        bool isMixture) {
  bytes = 0;
  Context context{work, cluster, training, configuration};
  // 1.
  std::shared_ptr<const StageProbe> probe;
  if (offloadsActivations(configuration.offload)) {
    Configuration plain = configuration;
    plain.offload = Offload::None;
    probe = getStageProbe(work, plain, splits);
    if (probe && takesLonger(getPipelineSeconds(*probe, context, splits),
                             *probe, context, seconds))
      return true;
  }
  probe = getStageProbe(work, configuration, splits);
  if (!probe)
    return false; // estimate() will say why
  double pipeline = getPipelineSeconds(*probe, context, splits);
  if (takesLonger(pipeline, *probe, context, seconds))
    return true;
  // 2.
  double usable = cluster.device.usableBytes();
  std::vector<StageMemory> memory; // without activations, by what is held
  // A probe knows no replicas, and so not which parameters stay whole.
  bool gathersAll = configuration.zero < 3 || dividesAll(context);
  for (Holdings holdings : probe->holdings) {
    holdings.gathered *= gathersAll;
    holdings.gatheredDense *= gathersAll;
    memory.push_back(getMemory(holdings, context));
  }
  double holding = double(configuration.microbatches(training)) *
                   getHoldingSeconds(*probe, memory, usable) /
                   cluster.device.burst;
  if (!isMixture && holding > pipeline &&
      takesLonger(holding, *probe, context, seconds))
    return true;
  // 3.
  Held held = getHeld(configuration);
  for (size_t rank = 0; rank < probe->holds.size(); ++rank) {
    StageMemory &own = memory[probe->holds[rank]];
    own.activations = (*held)[rank] * probe->held[rank];
    bytes = std::max(bytes, boundRounding * own.peak());
  }
  return bytes > usable;
}
