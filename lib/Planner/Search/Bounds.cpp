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
// least, before its backward pass on the last of them. Where gradients of
// weights run apart there is, once the input gradient of a chunk is, what its
// weights need, beside the whole of all chunks in front of it. The ranks of a
// pipeline share what is resident (what is tied may be there twice) and,
// microbatch by microbatch, what is kept; the fullest holds no less than the
// mean.
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
                    [copiesBesideGathers(configuration, splits)];
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
    Probe former = *least;
    if (found->work() < former.work())
      least = *found;
    for (auto field : {&Probe::layer, &Probe::passed, &Probe::temporary,
                       &Probe::layerTemporary})
      (*least).*field = std::min(former.*field, (*found).*field);
    least->early = std::max(former.early, found->early);
    least->weights = least->layersWeights = 0;
    for (auto part : {&Probe::memory, &Probe::layersMemory})
      ((*least).*part).activations =
          std::min((former.*part).activations, ((*found).*part).activations);
  }
  return *least;
}

/// Sets what the layers of `whole`, a stage of all blocks, hold, and what
/// blocks need while they run.
static void setMemory(Probe &probe, const StageBlocks &whole, bool splits,
                      const Context &context) {
  std::vector<bool> isLayer = findLayers(context.work);
  StageBlocks layers;
  HoldingsFinder finder(context);
  probe.layerTemporary = std::numeric_limits<double>::max();
  for (const StageBlocks::Entry &entry : whole.entries)
    if (isLayer[entry.block]) {
      layers.entries.push_back(entry);
      StageBlocks one{{entry}};
      const StageBlocks *alone[] = {&one};
      probe.layerTemporary =
          std::min(probe.layerTemporary, finder.find(alone).temporary);
    }
  const StageBlocks *all[] = {&whole}, *those[] = {&layers};
  probe.temporary = finder.find(all).temporary;
  probe.layersMemory = getMemory(finder.find(those), context);
  InFlight held = heldBytes(layers, context, splits);
  probe.layersMemory.activations = held.whole;
  probe.layersWeights = held.weights;
  probe.weights = heldBytes(whole, context, splits).weights;
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
  one.zero = copiesBesideGathers(configuration, splits) ? 3 : 0;
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
  setMemory(probe, *whole[0], splits, context);
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
static bool findWhetherAllDivide(const Context &context) {
  const bool asks[2] = {context.zero(false) > 0, context.zero(true) > 0};
  for (const Block &block : context.work.blocks)
    for (const ParameterGroup &group : block.parameters)
      if (!group.frozen && asks[group.experts] && !context.isDivided(group))
        return false;
  return true;
}

/// Keeps what it finds: thousands of configurations share it.
bool Bounds::dividesAll(const Context &context) {
  SumsKey key = getSumsKey(context, -1);
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto found = divided.find(key); found != divided.end())
      return found->second;
  }
  bool made = findWhetherAllDivide(context);
  std::lock_guard<std::mutex> lock(mutex);
  return divided.try_emplace(key, made).first->second;
}

/// The window to hide behind is as large as a step of `seconds` can have it, so
/// that the result is no more than what any such step takes beside its
/// pipeline. How much ZeRO 2 and 3 leave whole depends on the cut: where there
/// is any, all counts as left to ZeRO 1, which takes less.
double Bounds::getStepSeconds(const Elements &parameters,
                              const Context &context, double seconds) {
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
double Bounds::makeStepSeconds(const Work &work, const Probe &probe,
                               const Configuration &configuration,
                               double seconds) {
  double mean = probe.parameters.all() / configuration.mesh[Axis::PP];
  Context context{work, cluster, training, configuration};
  double dense = getStepSeconds({mean, 0}, context, seconds);
  return probe.parameters.experts == 0
             ? dense
             : std::min(dense, getStepSeconds({0, mean}, context, seconds));
}

/// Nodes of a cell ask for the same, and differ in the schedule.
double Bounds::getStepSeconds(const Work &work, const Probe &probe,
                              const Configuration &configuration,
                              double seconds) {
  StepKey key(seconds, &work, configuration.mesh, configuration.microBatch,
              configuration.zero, configuration.offload,
              configuration.contextParallel);
  bool isLimited = seconds < std::numeric_limits<double>::max();
  HashMap<StepKey, double> &known = isLimited ? steps : leastSteps;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto found = known.find(key); found != known.end())
      return found->second;
  }
  double made = makeStepSeconds(work, probe, configuration, seconds);
  std::lock_guard<std::mutex> lock(mutex);
  return known.try_emplace(key, made).first->second;
}

Bounds::SumsKey Bounds::getSumsKey(const Context &context, int kind) {
  Mesh mesh = context.configuration.mesh;
  mesh[Axis::PP] = std::min(mesh[Axis::PP], 2); // whether a table is on two
  return {&context.work, mesh, context.configuration.zero, kind};
}

PartSums Bounds::getSums(const Context &context) {
  std::optional<Recompute> kind = context.configuration.recompute.getUniform();
  SumsKey key =
      getSumsKey(context, kind && *kind != Recompute::Auto ? int(*kind) : -1);
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto found = sums.find(key); found != sums.end())
      return found->second;
  }
  PartSums made = sumParts(kind, context);
  std::lock_guard<std::mutex> lock(mutex);
  return sums.try_emplace(key, made).first->second;
}

/// A pass takes no less than its work, nor than what it exchanges over one
/// axis, in whose stream nothing overtakes: all that it gathers it waits for,
/// and it ends with the last reduction. Ranks of a pipeline share both as they
/// share the work, and the fullest has no less than the mean.
double Bounds::getStreamSeconds(const Work &work, const Probe &probe,
                                const Configuration &configuration) {
  Context context{work, cluster, training, configuration};
  const Framework &framework = training.framework;
  if (configuration.zero < 2 || context.replicas() == 1 ||
      !framework.dividesParameters || !overlapsParts(context) ||
      !framework.addsUpParts || !framework.reduceEveryMicrobatch)
    return 0;
  PartSums sums = getSums(context);
  bool isUniform = configuration.recompute.getUniform().has_value();
  double longest = 0;
  for (const AxisFacts &facts : kAxes) {
    double forward = sums.forward[facts.axis];
    double backward = sums.backward[facts.axis];
    double seconds = isUniform
                         ? std::max(probe.forward, forward) +
                               std::max(probe.work() - probe.forward, backward)
                         : std::max(probe.work(), forward + backward);
    longest = std::max(longest, seconds);
  }
  double waited = getWaitShare(configuration, training) * probe.work();
  double microbatches = double(configuration.microbatches(training));
  return boundRounding *
         (microbatches / configuration.mesh[Axis::PP] * (longest + waited) +
          probe.overhead);
}

/// What is resident, by the ZeRO stage, and one microbatch whole, or all of
/// them where the schedule runs all forwards first. Divided by the stages,
/// since the fullest holds no less than the mean. Which rank has the block that
/// needs the largest workspace depends on the cut; but every rank that has
/// layers, among which these are divided, has the workspace of one. Where
/// gradients of weights run apart, what those of one chunk need is there once
/// its input gradient is: of the largest chunk no less than the mean.
double Bounds::getBytes(const Probe &probe, const Configuration &configuration,
                        double gathered) const {
  // As Context::divisions(), which takes a Work. Experts are divided less.
  double replicas =
      double(training.framework.joinsReplicas
                 ? configuration.mesh.sharers()
                 : configuration.mesh.product(&AxisFacts::dividesState));
  auto share = [&](int level) {
    return configuration.zero >= level ? 1 / replicas : 1;
  };
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(configuration.schedule);
  bool holdsAll = generator.ok() && (*generator)->holdsAll;
  double held = holdsAll ? double(configuration.microbatches(training)) : 1;
  int stages = configuration.mesh[Axis::PP];
  // Maybe with less on hosts.
  auto getMean = [&](const StageMemory &memory, double weights) {
    double bytes = memory.parameters * share(3) + memory.gradients * share(2);
    if (!offloadsOptimizer(configuration.offload))
      bytes += memory.optimizer * share(1);
    if (!offloadsActivations(configuration.offload))
      bytes +=
          std::max(held * memory.activations, weights / configuration.chunks);
    return bytes / stages;
  };
  double all = getMean(probe.memory, probe.weights) +
               (stages == 1 ? probe.temporary : 0);
  double layers = getMean(probe.layersMemory, probe.layersWeights) +
                  probe.layerTemporary +
                  (configuration.zero >= 3 ? gathered : 0);
  return boundRounding * std::max(all, layers);
}

double Bounds::getGathered(const Work &work,
                           Configuration configuration) const {
  configuration.zero = 3;
  Context context{work, cluster, training, configuration};
  std::vector<bool> isLayer = findLayers(work);
  double least = std::numeric_limits<double>::max();
  bool withExperts = context.zero(/*experts=*/true) >= 3;
  for (size_t block = 0; block < isLayer.size(); ++block)
    if (isLayer[block])
      least = std::min(least,
                       gatheredBytes(work.blocks[block], withExperts, context));
  return least;
}
