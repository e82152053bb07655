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
#include <set>

using namespace plait;
using namespace plait::planner;

/// Returns the blocks of `stages`, each one once.
static std::vector<int> listBlocks(std::span<const StageBlocks *const> stages) {
  std::set<int> blocks;
  for (const StageBlocks *stage : stages)
    for (const StageBlocks::Entry &entry : stage->entries)
      blocks.insert(entry.block);
  return {blocks.begin(), blocks.end()};
}

/// Returns which of the holdings that differ a rank has; adds them if need be.
static uint32_t findHoldings(StageProbe &probe, const Holdings &own,
                             const std::vector<int> &blocks) {
  for (uint32_t i = 0; i < probe.holdings.size(); ++i)
    if (probe.holdings[i] == own && probe.blocks[i] == blocks)
      return i;
  probe.holdings.push_back(own);
  probe.blocks.push_back(blocks);
  return uint32_t(probe.holdings.size() - 1);
}

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
    double work = 0, heldSeconds = 0;
    std::vector<const StageBlocks *> stages;
    for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk) {
      uint32_t stage = problem.stageOf(rank, chunk);
      stages.push_back(&estimator.getStages()[stage]);
      work += times[stage].sum();
      InFlight bytes =
          heldBytes(*stages.back(), context, generator.splitsBackward);
      probe.held.push_back(bytes);
      heldSeconds += bytes.whole * round[stage];
    }
    probe.work.push_back(work);
    probe.outside.push_back(passed);
    // What the ranks behind this one wait for: a forward of its first stage,
    // and, where backwards are whole, its backward at the end.
    const StageTime &first = times[problem.stageOf(rank, 0)];
    passed += generator.splitsBackward ? first.forward : first.sum();
    Holdings own = finder.find(stages);
    probe.holds.push_back(findHoldings(probe, own, listBlocks(stages)));
    if (own.parameters.all() > probe.parameters.all())
      probe.parameters = own.parameters;
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
  // One chunk lies the same way in every placement.
  const std::string like = splits ? "zb-h1" : "1f1b";
  const std::string &schedule =
      configuration.chunks == 1 ? like : configuration.schedule;
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(schedule);
  if (!generator.ok())
    return nullptr;
  int zero = copiesBesideGathers(configuration, splits) ? 3 : 0;
  StageKey key(&work, configuration.mesh[Axis::CP],
               configuration.contextParallel, configuration.mesh[Axis::PP],
               configuration.chunks, configuration.microBatch,
               configuration.recompute, (*generator)->placement, splits,
               configuration.layers, configuration.offload.activations, zero);
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = stageProbes.find(key);
    if (found != stageProbes.end())
      return found->second;
  }
  // Made outside of the lock: a cut of many layers takes longer than all
  // look-ups.
  Configuration one = configuration;
  one.mesh = withOneReplica(one.mesh);
  one.schedule = schedule;
  one.zero = zero;
  std::shared_ptr<const StageProbe> probe = makeStageProbe(work, one);
  std::lock_guard<std::mutex> lock(mutex);
  return stageProbes.try_emplace(std::move(key), std::move(probe))
      .first->second;
}

/// Lists what a rank of `chunks` holds of one microbatch, in any order: all
/// of it whole, or, when a chunk's input gradient has just been computed, what
/// its weights need and the whole of the chunks in front.
static std::vector<InFlight> listLeastMoments(uint32_t chunks) {
  std::vector<InFlight> counts(chunks, InFlight{1, 0});
  for (uint32_t last = 0; last < chunks; ++last)
    for (uint32_t chunk = 0; chunk < chunks; ++chunk)
      counts.push_back({double(chunk < last), double(chunk == last)});
  return counts;
}

/// Counts what the schedule of `configuration` holds, by rank; the least of any
/// where it depends on costs.
static std::vector<std::vector<InFlight>>
countHeld(const Configuration &configuration, const Training &training) {
  std::vector<std::vector<InFlight>> held(
      size_t(configuration.mesh[Axis::PP]),
      listLeastMoments(uint32_t(configuration.chunks)));
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
  for (uint32_t rank = 0; pipeline.ok() && rank < held.size(); ++rank) {
    held[rank].clear();
    for (size_t moment = 0; moment < pipeline->countMoments(rank); ++moment)
      for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk)
        held[rank].push_back(pipeline->inFlight(rank, moment, chunk));
  }
  return held;
}

/// Returns bytes at the fullest of the moments in `counts`, with `bytes` of a
/// microbatch by chunk.
static double getMost(std::span<const InFlight> counts,
                      std::span<const InFlight> bytes) {
  double most = 0;
  for (; !counts.empty(); counts = counts.subspan(bytes.size())) {
    double sum = 0;
    for (size_t chunk = 0; chunk < bytes.size(); ++chunk)
      sum += counts[chunk].whole * bytes[chunk].whole +
             counts[chunk].weights * bytes[chunk].weights;
    most = std::max(most, sum);
  }
  return most;
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
  auto held = std::make_shared<const std::vector<std::vector<InFlight>>>(
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

/// Adds the slowest replica and the fixed part to the seconds of a pipeline.
double Bounds::getFixedSeconds(double pipeline, const Context &context) const {
  double wait = 1 + getWaitShare(context.configuration, training);
  return boundRounding * (pipeline * wait + training.framework.stepSeconds);
}

/// Whether a step whose pipeline takes `pipeline` seconds takes `limit`, with
/// what the fullest rank exchanges.
bool Bounds::takesLonger(double pipeline, const StageProbe &probe,
                         const Context &context, double limit) {
  double least = getFixedSeconds(pipeline, context);
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

/// Auto cuts stages for another kind. What is copied is left out: copies make
/// nothing faster, and depend on the ZeRO stage (copiesBesideGathers).
double Bounds::getCutStageSeconds(const Work &work,
                                  const Configuration &configuration,
                                  bool splits) {
  if (configuration.mesh[Axis::PP] == 1 || configuration.recompute.isAuto)
    return 0;
  Configuration plain = configuration;
  plain.offload = Offload::None;
  std::shared_ptr<const StageProbe> probe = getStageProbe(work, plain, splits);
  if (!probe)
    return 0;
  Context context{work, cluster, training, plain};
  return getFixedSeconds(getPipelineSeconds(*probe, context, splits), context);
}

/// Returns what the ranks of `probe` hold without activations, by what is held.
/// A probe knows no replicas, and so not what ZeRO 3 gathers.
static std::vector<StageMemory> getMemories(const StageProbe &probe,
                                            const Context &context) {
  auto getMost = [&](const std::vector<int> &blocks, bool withExperts) {
    double most = 0;
    for (int block : blocks)
      most = std::max(most, gatheredBytes(context.work.blocks[size_t(block)],
                                          withExperts, context));
    return most;
  };
  bool gathers = context.configuration.zero >= 3;
  std::vector<StageMemory> memories;
  for (size_t i = 0; i < probe.holdings.size(); ++i) {
    Holdings holdings = probe.holdings[i];
    holdings.gathered = gathers ? getMost(probe.blocks[i], true) : 0;
    holdings.gatheredDense = gathers ? getMost(probe.blocks[i], false) : 0;
    memories.push_back(getMemory(holdings, context));
  }
  return memories;
}

/// Time first, then memory, which takes the order of the schedule to count.
///
/// 1. Time, where activations are copied first without that: copies make
///    nothing faster, and the stages without them are mostly known.
/// 2. The same of what each rank holds for how long, by what is free. Not of a
///    mixture: the kind at hand is then the one that takes the least time, and
///    holds more than others do.
/// 3. Each rank's bytes: what its stages hold at the fullest moment of the
///    schedule.
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
  std::vector<StageMemory> memory = getMemories(*probe, context);
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
    size_t chunks = size_t(configuration.chunks);
    own.activations = getMost(
        (*held)[rank], std::span(probe->held).subspan(rank * chunks, chunks));
    bytes = std::max(bytes, boundRounding * own.peak());
  }
  return bytes > usable;
}
