//===- Bounds.cpp - Lower bounds of configurations ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Let T be the work of one microbatch on the whole model, W[s] that of stage s
// (they sum up to T), m the microbatches and p the stages.
//
//   any schedule        m W[s] on every rank, so m T / p; and one microbatch
//                       has to go forward and back: its F and I.
//   one chunk, whole B  Rank r cannot start before the stages in front of it
//                       have run one forward, and after its last backward they
//                       have one backward left: W[0] + … + W[r-1] + m W[r].
//                       The cut that makes the largest of these smallest makes
//                       them all equal: W[r] = W[0] (1 - 1/m)^r, which sums up
//                       to T where each of them is T / (1 - (1 - 1/m)^p).
//
// Once a cut is known, the same holds for its stages, and for several chunks r
// is the rank's first stage and W[r] the sum over its chunks. Where gradients
// of weights run apart, the last action need not be one that the stages in
// front wait for: their forward, and m W[r].
//
// Layers are whole, and that is so before a cut is known, too: in a step of S
// seconds rank r is through with no more than (S - o[r]) / (m l) of them,
// rounded down, where l is the fastest one and o[r] what the rank has to wait
// for or to do beside its layers: a layer of each stage in front, messages, and
// embedding and head m times where they are. The step takes no less than the
// least S with which all ranks together are through with all layers.
//
// Beside the pipeline: the rank with the most parameters has no fewer than the
// mean, and what it exchanges hides behind one microbatch's passes at most. In
// a step of S seconds m of them take no longer than S (S burst where ranks
// share a processor, which is all that sharing shortens), so that there is no
// more than S / m to hide behind. More parameters and less work to hide behind
// take no less time: measured curves ascend, and of what is hidden a part below
// one is lost.
//
// Memory: a microbatch is held whole, by all chunks of a rank, at one moment at
// least, before its backward pass on the last of them; what is held for
// gradients of weights that run apart is left out, because it depends on the
// schedule when they run. The ranks of a pipeline share what is resident (what
// is tied may be there twice) and, microbatch by microbatch, what is kept; the
// fullest holds no less than the mean.
//
// Memory takes time: what a virtual stage keeps of a microbatch it keeps until
// the microbatch has been through all stages behind, forward and back. So every
// microbatch takes bytes times seconds of each rank, and in a step of S seconds
// there are no more of these than S times the bytes that are free. No schedule
// can trade one for the other.
//
//===----------------------------------------------------------------------===//

#include "Search/Bounds.h"
#include "Simulator/Estimator.h"
#include "plait/Planner/Cost.h"
#include "plait/Schedule/Generators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace plait;
using namespace plait::planner;

const Result<Probe> &Bounds::getProbe(const Work &work,
                                      const Configuration &configuration,
                                      bool splits) {
  return getProbeOf(
      work, configuration,
      configuration.recompute.getUniform().value_or(Recompute::Auto), splits);
}

/// Kept by everything that it depends on, refusals as well. A search asks for
/// all of a microbatch in a row.
const Result<Probe> &Bounds::getProbeOf(const Work &work,
                                        const Configuration &configuration,
                                        Recompute kind, bool splits) {
  ProbeKey key(&work, configuration.mesh[Axis::CP], configuration.microBatch);
  if (!latest || latest->first != key)
    latest = &*probes.try_emplace(key).first;
  auto &probe =
      latest->second[size_t(configuration.contextParallel)][size_t(kind)]
                    [splits][size_t(configuration.offload.activations)]
                    [copiesBesideGathers(configuration)];
  if (!probe)
    probe = std::make_unique<Result<Probe>>(
        kind == Recompute::Auto ? makeLeastProbe(work, configuration, splits)
                                : makeProbe(work, configuration, kind, splits));
  return *probe;
}

/// Where layers differ in what they compute again, or may, they take no less
/// time than where all do the fastest, and no less memory than where all do the
/// smallest. Copies to hosts are left out: of the longer one of work and copies
/// a mixture may take less than each kind.
Result<Probe> Bounds::makeLeastProbe(const Work &work,
                                     const Configuration &configuration,
                                     bool splits) {
  Configuration plain = configuration;
  plain.offload = Offload::None;
  std::optional<Probe> least;
  for (Recompute each :
       {Recompute::None, Recompute::Selective, Recompute::Full}) {
    const Result<Probe> &found = getProbeOf(work, plain, each, splits);
    if (!found.ok())
      return found.status();
    if (!least)
      least = *found;
    StageMemory memory = least->memory;
    memory.activations =
        std::min(memory.activations, found->memory.activations);
    double layer = std::min(least->layer, found->layer);
    double passed = std::min(least->passed, found->passed);
    if (found->work() < least->work())
      least = *found;
    least->memory = memory;
    least->layer = layer;
    least->passed = passed;
  }
  return *least;
}

/// One estimate of the whole model on one stage and one microbatch. It is made
/// by the same code as every other estimate, so that a bound and what it bounds
/// agree on the cost of each block.
Result<Probe> Bounds::makeProbe(const Work &work,
                                const Configuration &configuration,
                                Recompute kind, bool splits) {
  Configuration one = configuration;
  one.recompute = kind;
  one.mesh = withOneReplica(one.mesh);
  one.mesh[Axis::PP] = one.chunks = 1;
  one.zero = copiesBesideGathers(configuration) ? 3 : 0;
  one.layers.clear();
  // Any schedule of the class: with one stage they run the same actions.
  one.schedule = splits ? "zb-h1" : "1f1b";
  Training step = training;
  step.globalBatch = one.microBatch * one.mesh.batchParts();
  Context context{work, cluster, step, one};
  context.blockTimes = &blockTimes;
  context.boundsCuts = true;
  Estimator estimator(context);
  PLAIT_RETURN_IF_ERROR(estimator.run(Microbatches::Some));
  const Estimate &estimate = estimator.getResult();
  const StageTime &time = estimate.stages.front();
  Probe probe;
  probe.forward = time.forward;
  probe.backwardInput = time.backwardInput;
  probe.backwardWeight = time.backwardWeight;
  probe.overhead = estimate.overheadSeconds;
  probe.layers = work.layers();
  const Estimator::Pieces pieces = estimator.getPieces();
  probe.layer = pieces.layer;
  probe.passed = splits ? pieces.forward : pieces.layer;
  probe.before = pieces.before;
  probe.after = pieces.after;
  probe.early = splits ? pieces.early : 0;
  probe.memory = estimate.memory.front();
  const StageBlocks *whole[] = {&estimator.getStages().front()};
  probe.parameters = countParameters(work, whole);
  // What is kept for gradients of weights that run apart depends on the
  // schedule: the bound on bytes takes what is held whole alone.
  if (splits)
    if (const Result<Probe> &whole =
            getProbeOf(work, configuration, kind, false);
        whole.ok())
      probe.memory = whole->memory;
  return probe;
}

/// The banner's bound for any schedule. The chain of one microbatch is divided
/// by the burst: cores that resting ranks leave serve the others up to that.
double Bounds::getIdealSeconds(const Probe &probe,
                               const Configuration &configuration) const {
  double microbatches = double(configuration.microbatches(training));
  int stages = configuration.mesh[Axis::PP] * configuration.chunks;
  double pipeline =
      std::max(microbatches * probe.work() / configuration.mesh[Axis::PP],
               probe.chain(stages) / cluster.device.burst);
  double wait = getWaitShare(configuration, training);
  return boundRounding * (pipeline * (1 + wait) + probe.overhead);
}

/// The least S with which the sum over ranks of floor((S - starts[r]) / layer)
/// is as many as `layers`; `starts` is used up.
static double dealLayers(std::vector<double> &starts, int64_t layers,
                         double layer) {
  // Where all ranks have begun, whole layers take no less than parts of them.
  double sum = std::accumulate(starts.begin(), starts.end(), 0.0);
  double seconds = std::max(*std::max_element(starts.begin(), starts.end()),
                            (sum + double(layers) * layer) / starts.size());
  // In these a rank is through with so many; then, one after the other, ranks
  // are through with one more.
  int64_t left = layers;
  for (double &start : starts) {
    double whole = std::floor((seconds - start) / layer);
    left -= int64_t(whole);
    start += (whole + 1) * layer;
  }
  if (left <= 0)
    return seconds;
  auto last = starts.begin() + std::min<int64_t>(left, starts.size()) - 1;
  std::nth_element(starts.begin(), last, starts.end());
  return *last;
}

/// The banner's bound of whole layers. A stage has at least one, but for the
/// ends, which may have a stage to themselves, and what a given cut leaves out.
double Bounds::getCutSeconds(const Work &work, const Probe &probe,
                             const Configuration &configuration,
                             bool splits) const {
  double microbatches = double(configuration.microbatches(training));
  schedule::Problem problem;
  problem.stages = uint32_t(configuration.mesh[Axis::PP]);
  problem.chunks = uint32_t(configuration.chunks);
  if (auto generator = schedule::findGenerator(configuration.schedule);
      generator.ok())
    problem.placement = (*generator)->placement;
  const std::vector<int> &given = configuration.layers;
  auto empty = given.empty() ? 1 : std::ranges::count(given, 0);
  TransferCost transfer = getTransfer({work, cluster, training, configuration});
  // A search asks for every cell.
  static thread_local std::vector<double> starts;
  starts.resize(problem.stages);
  double messages = 0; // to a rank, one way
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    starts[rank] = (splits ? 1 : 2) * messages +
                   std::max(0.0, double(rank) - double(empty)) * probe.passed;
    messages += transfer.at(rank, problem.stages);
  }
  starts.front() += microbatches * probe.before;
  starts[problem.rankOf(problem.virtualStages() - 1)] +=
      microbatches * probe.after;
  return dealLayers(starts, probe.layers, microbatches * probe.layer);
}

/// The larger of the bounds that need no cut. That for one chunk and whole
/// backwards is the banner's second.
double Bounds::getSeconds(const Work &work, const Probe &probe,
                          const Configuration &configuration,
                          bool splits) const {
  double pipeline = getCutSeconds(work, probe, configuration, splits);
  if (!splits && configuration.chunks == 1) {
    // The cut that makes all ranks end together, if layers could be divided.
    double microbatches = double(configuration.microbatches(training));
    double rest = std::pow(1 - 1 / microbatches, configuration.mesh[Axis::PP]);
    pipeline = std::max(pipeline, probe.work() / (1 - rest));
  }
  pipeline /= cluster.device.burst;
  double wait = getWaitShare(configuration, training);
  return std::max(getIdealSeconds(probe, configuration),
                  boundRounding * (pipeline * (1 + wait) + probe.overhead));
}

/// Asks of the experts only where there are ranks to divide them.
static bool dividesAll(const Context &context) {
  for (const Block &block : context.work.blocks)
    for (const ParameterGroup &group : block.parameters)
      if (!group.frozen && context.zero(group.experts) > 0 &&
          !context.isDivided(group))
        return false;
  return true;
}

/// The window to hide behind is as large as a step of `seconds` can have it, so
/// that the result is no more than what any such step takes beside its
/// pipeline. How much ZeRO 2 and 3 leave whole depends on the cut: where there
/// is any, all counts as left to ZeRO 1, which takes less.
double Bounds::getStepSeconds(const Elements &parameters,
                              const Context &context, double seconds) const {
  if (context.configuration.zero >= 2 && !dividesAll(context)) {
    Configuration least = context.configuration;
    least.zero = 1;
    return getStepSeconds(parameters, {context.work, cluster, training, least},
                          seconds);
  }
  StepLoad load;
  load.parameters = parameters;
  load.microbatches = context.configuration.microbatches(training);
  load.forward = load.backward = load.gradients =
      seconds * cluster.device.burst / double(load.microbatches);
  return boundRounding * (getDataSeconds(load, context) +
                          getOptimizerCost(load, context).seconds);
}

/// Some rank has at least the mean of the parameters, of either kind, depending
/// on the cut: whichever takes less.
double Bounds::getStepSeconds(const Work &work, const Probe &probe,
                              const Configuration &configuration,
                              double seconds) const {
  double mean = probe.parameters.all() / configuration.mesh[Axis::PP];
  Context context{work, cluster, training, configuration};
  double dense = getStepSeconds({mean, 0}, context, seconds);
  return probe.parameters.experts == 0
             ? dense
             : std::min(dense, getStepSeconds({0, mean}, context, seconds));
}

/// What is resident, by the ZeRO stage, and one microbatch whole, or all of
/// them where the schedule runs all forwards first. Divided by the stages,
/// since the fullest holds no less than the mean. The workspace is left out:
/// which rank has the block that needs it depends on the cut.
double Bounds::getBytes(const Probe &probe,
                        const Configuration &configuration) const {
  // As Context::divisions(), which takes a Work. Experts are divided less.
  double replicas =
      double(training.framework.joinsReplicas
                 ? configuration.mesh.sharers()
                 : configuration.mesh.product(&AxisFacts::dividesState));
  auto share = [&](int level) {
    return configuration.zero >= level ? 1 / replicas : 1;
  };
  const StageMemory &memory = probe.memory; // maybe with less on hosts
  double resident = memory.parameters * share(3) + memory.gradients * share(2);
  if (!offloadsOptimizer(configuration.offload))
    resident += memory.optimizer * share(1);
  if (offloadsActivations(configuration.offload))
    return boundRounding * resident / configuration.mesh[Axis::PP];
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(configuration.schedule);
  bool holdsAll = generator.ok() && (*generator)->holdsAll;
  double held = holdsAll ? double(configuration.microbatches(training)) : 1;
  return boundRounding * (resident + held * memory.activations) /
         configuration.mesh[Axis::PP];
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

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
    probe.holdings.push_back(getHoldings(stages, context));
    if (const Elements &own = probe.holdings.back().parameters;
        own.all() > probe.parameters.all())
      probe.parameters = own;
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
  context.boundsCuts = copiesBesideGathers(configuration);
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
  one.zero = copiesBesideGathers(configuration) ? 3 : 0;
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
/// beside `memory`. Ranks that have nothing free are left to the bound on
/// bytes.
static double getHoldingSeconds(const StageProbe &probe,
                                std::span<const StageMemory> memory,
                                double usable) {
  double seconds = 0;
  for (size_t rank = 0; rank < memory.size(); ++rank)
    if (double room = usable - memory[rank].peak(); room > 0)
      seconds = std::max(seconds, probe.heldSeconds[rank] / room);
  return seconds;
}

/// Time first, then memory, which takes the order of the schedule to count.
///
/// 1. Each rank: what it waits for outside, its messages, its own work m times.
/// 2. That, the slowest replica and the step's fixed part, and what the fullest
///    rank exchanges, against `seconds`.
/// 3. The same of what each rank holds for how long, by what is free. Not of a
///    mixture: the kind at hand is then the one that takes the least time, and
///    holds more than others do.
/// 4. Each rank's bytes: what its stages hold, as often as the schedule holds
///    them whole at one moment.
///
/// `bytes` is 0 where time was the reason: how much memory such a configuration
/// needs is not known then.
bool Bounds::isBeatenBy(const Work &work, const Configuration &configuration,
                        bool splits, double seconds, double &bytes,
                        bool isMixture) {
  bytes = 0;
  std::shared_ptr<const StageProbe> probe =
      getStageProbe(work, configuration, splits);
  if (!probe)
    return false; // estimate() will say why
  Context context{work, cluster, training, configuration};
  const Framework &framework = training.framework;
  double microbatches = double(configuration.microbatches(training));
  // To a rank and, where it waits for the stages in front at the end, back.
  const double ways = splits ? 1 : 2;
  TransferCost transfer = getTransfer(context);
  // 1. Work and what is waited for outside.
  double pipeline = 0, busy = 0, messages = 0;
  for (size_t rank = 0; rank < probe->work.size(); ++rank) {
    double work = microbatches * probe->work[rank];
    double outside = probe->outside[rank] + ways * messages;
    messages += transfer.at(uint32_t(rank), uint32_t(probe->work.size()));
    pipeline = std::max(pipeline, outside + work);
    busy += work / double(probe->work.size());
  }
  // 2. Against the time.
  double wait = 1 + getWaitShare(configuration, training);
  double beside = getStepSeconds(probe->parameters, context, seconds);
  auto isSlow = [&](double pipeline) {
    return boundRounding * (pipeline * wait + framework.stepSeconds) + beside >=
           seconds;
  };
  if (isSlow(sharedSeconds(pipeline, busy, cluster.device)))
    return true;
  // 3. What is held, and for how long.
  double usable = cluster.device.usableBytes();
  std::vector<StageMemory> memory; // without activations
  // A probe knows no replicas, and so not which parameters stay whole.
  bool gathersAll = configuration.zero < 3 || dividesAll(context);
  for (Holdings holdings : probe->holdings) {
    holdings.gathered *= gathersAll;
    holdings.gatheredDense *= gathersAll;
    memory.push_back(getMemory(holdings, context));
  }
  double holding = microbatches * getHoldingSeconds(*probe, memory, usable);
  if (!isMixture && isSlow(holding / cluster.device.burst))
    return true;
  // 4. Against the memory.
  Held held = getHeld(configuration);
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    memory[rank].activations = (*held)[rank] * probe->held[rank];
    bytes = std::max(bytes, boundRounding * memory[rank].peak());
  }
  return bytes > usable;
}
