//===- Estimate.cpp - Time and memory of one configuration ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One prediction, from blocks to a step. Blocks are timed once for each kind of
// recomputation; a cut sums them up by virtual stage; the schedule's order
// turns these into the time of a pipeline; what happens once a step is added.
// Memory is counted from the same stages in the same order. Every part of the
// model is elsewhere: operations and collectives in Cost/, blocks in
// BlockTime.cpp, orders in Pipeline.cpp, gradients and optimizer in Step.cpp,
// bytes in Memory.cpp, the choice of what to compute again in
// Recomputation.cpp. Here they are put together, and split into the parts that
// reports show.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Estimate.h"
#include "Checks.h"
#include "Estimator.h"
#include "plait/Schedule/StageCut.h"

#include <limits>
#include <tuple>

using namespace plait;
using namespace plait::planner;

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

/// Kept by kind, since fitting recomputation asks for the same blocks over and
/// over.
const std::vector<BlockTime> &Estimator::timeBlocks(Recompute kind) {
  BlockTimes::Times &times = blockTimes[size_t(kind)];
  bool splits = generator->splitsBackward;
  if (!times)
    times = context.blockTimes ? context.blockTimes->get(context, splits, kind)
                               : BlockTimes::make(context, splits, kind);
  return *times;
}

/// Seconds of what comes before the layers and of what comes after them.
std::pair<double, double> Estimator::timeEnds(Recompute kind) {
  const std::vector<BlockTime> &times = timeBlocks(kind);
  double before = 0, after = 0;
  for (int i = 0; i < work.before; ++i)
    before += times[work.order[i]].sum();
  for (int i = 0; i < work.after; ++i)
    after += times[work.order[work.order.size() - 1 - i]].sum();
  return {before, after};
}

/// A given cut is taken as it is. Otherwise stages are cut by the seconds of
/// their layers, with what comes before and after them as loads of the first
/// and the last stage. Where the model has no such blocks, no load is given
/// rather than one of 0: a load of 0 could become a stage of its own.
void Estimator::cut(Recompute kind) {
  if (!configuration.layers.empty()) {
    result.layers = configuration.layers;
    return;
  }
  const std::vector<BlockTime> &times = timeBlocks(kind);
  std::vector<double> costs(size_t(work.layers()));
  for (size_t i = 0; i < costs.size(); ++i)
    costs[i] = times[work.order[work.before + i]].sum();
  auto [before, after] = timeEnds(kind);
  schedule::Problem problem;
  problem.stages = uint32_t(configuration.mesh[Axis::PP]);
  problem.chunks = uint32_t(configuration.chunks);
  problem.placement = generator->placement;
  auto ifAny = [](int blocks, double seconds) {
    return blocks > 0 ? std::optional(seconds) : std::nullopt;
  };
  result.layers = schedule::cutStages(costs, ifAny(work.before, before),
                                      ifAny(work.after, after), problem);
}

/// Equal blocks are one entry with a count, whether they follow each other or
/// alternate with others: a stage of a hundred layers takes no longer to sum up
/// than one of each kind. The first and the last entry are those of the first
/// and the last block. Layers of a stage are numbered from its first, which is
/// what Recomputation::Stage counts by.
StageBlocks Estimator::makeStage(size_t stage,
                                 const Recomputation::Stage &kinds) const {
  StageBlocks made;
  auto append = [&](int place, Recompute kind) {
    int block = work.order[place];
    std::vector<StageBlocks::Entry> &entries = made.entries;
    auto known =
        std::find_if(entries.begin() + (entries.size() > 1), entries.end(),
                     [&](const StageBlocks::Entry &entry) {
                       return entry.block == block && entry.recompute == kind;
                     });
    if (known == entries.end())
      known = entries.insert(known, {block, 0, kind});
    ++known->count;
    std::rotate(known, known + 1, entries.end());
  };
  for (int place = 0; stage == 0 && place < work.before; ++place)
    append(place, Recompute::None);
  for (int layer = 0; layer < result.layers[stage]; ++layer)
    append(starts[stage] + layer, kinds.getKind(layer));
  bool isLast = stage + 1 == result.layers.size();
  for (int place = work.after; isLast && place > 0; --place)
    append(int(work.order.size()) - place, Recompute::None);
  return made;
}

/// Relies on result.layers, and brings all that depends on it up to date: which
/// blocks a stage has, where its layers start, and its times.
void Estimator::setStages(const Recomputation &recompute) {
  starts.clear();
  stages.clear();
  int next = work.before;
  for (size_t stage = 0; stage < result.layers.size(); ++stage) {
    starts.push_back(next);
    next += result.layers[stage];
    stages.push_back(makeStage(stage, recompute.getStage(stage)));
  }
  result.recompute = recompute;
  timeStages();
}

Status Estimator::fillStages(const Recomputation &recompute,
                             Microbatches microbatches) {
  setStages(recompute);
  return makePipeline(microbatches);
}

/// The figures of a stage that a schedule depends on. How a time is made up of
/// other parts does not change when an action runs. Of whole backward passes,
/// in whose orders messages are waited for at the ends alone, nothing counts as
/// early: bounds know of none.
std::vector<StageCost> Estimator::getStageCosts() const {
  std::vector<StageCost> costs;
  costs.reserve(result.stages.size());
  for (const StageTime &time : result.stages)
    costs.push_back({time.forward, time.backwardInput, time.backwardWeight,
                     generator->splitsBackward ? time.early : 0});
  return costs;
}

/// By chunk. The placement decides which these are: in a V the first and the
/// last stage are on one rank.
std::vector<const StageBlocks *> Estimator::stagesOf(uint32_t rank) const {
  const schedule::Problem &problem = pipeline.getProblem();
  std::vector<const StageBlocks *> held;
  held.reserve(problem.chunks);
  for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk)
    held.push_back(&stages[problem.stageOf(rank, chunk)]);
  return held;
}

//===----------------------------------------------------------------------===//
// Pipeline
//===----------------------------------------------------------------------===//

/// Returns what the order of a step is asked for.
schedule::Problem Estimator::getProblem() const {
  schedule::Problem problem;
  problem.stages = uint32_t(configuration.mesh[Axis::PP]);
  problem.chunks = uint32_t(configuration.chunks);
  problem.microbatches = uint32_t(configuration.microbatches(context.training));
  problem.placement = generator->placement;
  return problem;
}

/// Either a model of any number of microbatches, from a cache, or the order of
/// all of them, which a timeline shows action by action.
Status Estimator::makePipeline(Microbatches microbatches) {
  schedule::Problem problem = getProblem();
  OrderGoal goal;
  if (generator->searches) {
    Result<OrderGoal> found = searchOrder(problem);
    if (!found.ok())
      return found.status();
    goal = *found;
  }
  if (microbatches == Microbatches::Some) {
    Result<PipelineModel> model =
        PipelineModel::get(generator->name, problem, goal);
    if (model.ok())
      pipeline = std::move(*model);
    return model.status();
  }
  Result<schedule::Schedule> generated =
      generateFor(generator->name, problem, goal);
  if (!generated.ok())
    return generated.status();
  schedule = std::move(*generated);
  pipeline = PipelineModel(schedule);
  return Status::success();
}

TransferCost planner::getTransfer(const Context &context) {
  const Configuration &configuration = context.configuration;
  if (configuration.mesh[Axis::PP] == 1)
    return {};
  const Framework &framework = context.framework();
  double bytes = getMessageBytes(context);
  // All ranks of tp hold the same message. Between nodes each sends its part of
  // it, and the parts are gathered inside of the node.
  bool alike =
      configuration.mesh[Axis::TP] > 1 && !context.work.sequenceParallel;
  bool cut = alike && framework.scatterGather && context.stagesCrossNodes();
  TransferCost cost;
  cost.blocking = framework.blockingTransfers;
  cost.occupies = context.cluster.device.isProcessor;
  cost.seconds =
      transferSeconds(cut ? bytes / configuration.mesh[Axis::TP] : bytes,
                      !context.stagesCrossNodes(), context.cluster);
  // Ranks of a pipeline are whole runs of the mesh's ranks. Where each waits
  // for its sends, all keep step with the slowest link.
  if (context.stagesCrossNodes() && !cost.blocking) {
    cost.ranksPerNode = uint32_t(context.cluster.devicesPerNode /
                                 configuration.mesh.stride(Axis::PP));
    cost.inside = transferSeconds(bytes, /*sameNode=*/true, context.cluster);
  }
  if (cut)
    cost.seconds += collectiveSeconds(CollectiveKind::AllGather, bytes,
                                      context.group(Axis::TP), context.cluster);
  return cost;
}

/// Runs the order twice in one pass, with and without messages, for the parts
/// that reports show.
void Estimator::timePipeline() {
  result.transferSeconds = transfer.seconds;
  PipelineTime time = pipeline.run(getStageCosts(), transfer);
  result.pipelineSeconds = time.seconds;
  breakDown(time.withoutTransfers);
  const schedule::Problem &problem = pipeline.getProblem();
  double busy = 0; // a rank, on average
  for (const StageTime &time : result.stages)
    busy += time.sum() * problem.microbatches / problem.stages;
  // Sharing a processor shrinks work and waiting alike.
  // Without one, sums in another order differ by their rounding.
  if (result.pipelineSeconds > 0)
    result.bubbleFraction =
        std::max(0.0, time.withoutTransfers - busy) / result.pipelineSeconds;
  share(busy);
}

/// Where ranks share a processor: all parts shrink alike.
void Estimator::share(double busy) {
  double shared =
      sharedSeconds(result.pipelineSeconds, busy, context.cluster.device);
  if (result.pipelineSeconds <= 0 || shared == result.pipelineSeconds)
    return;
  stretch = shared / result.pipelineSeconds;
  result.pipelineSeconds = shared;
  Breakdown &parts = result.breakdown;
  for (double *part : {&parts.forward, &parts.backward, &parts.recompute,
                       &parts.bubble, &parts.memory, &parts.launch,
                       &parts.exposed[Axis::TP], &parts.exposed[Axis::PP],
                       &parts.exposed[Axis::EP], &parts.exposed[Axis::CP]})
    *part *= stretch;
}

/// The pipeline's part. What transfers cost is what the schedule would save
/// without them, and the bubble is what then remains beside the work.
void Estimator::breakDown(double withoutTransfers) {
  const schedule::Problem &problem = pipeline.getProblem();
  double longest = -1;
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    Breakdown parts;
    double busy = 0;
    for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk) {
      const StageTime &time = result.stages[problem.stageOf(rank, chunk)];
      double m = problem.microbatches;
      busy += m * time.sum();
      parts.recompute += m * time.recompute;
      parts.memory += m * time.memory;
      parts.launch += m * time.launch;
      parts.forward += m * (time.forward - time.tensorForward -
                            time.contextForward - time.expertsForward);
      parts.exposed[Axis::TP] += m * (time.tensorForward + time.tensorBackward);
      parts.exposed[Axis::CP] +=
          m * (time.contextForward + time.contextBackward);
      parts.exposed[Axis::EP] +=
          m * (time.expertsForward + time.expertsBackward);
    }
    // Parts are those of the rank with the most work: all others wait for it.
    if (busy <= longest)
      continue;
    longest = busy;
    // What is left, so that the parts add up to the work but for rounding.
    parts.backward = busy - parts.forward - parts.recompute -
                     parts.exposed[Axis::TP] - parts.exposed[Axis::EP] -
                     parts.exposed[Axis::CP];
    result.breakdown = parts;
  }
  result.breakdown.exposed[Axis::PP] =
      result.pipelineSeconds - withoutTransfers;
  result.breakdown.bubble = std::max(0.0, withoutTransfers - longest);
}

//===----------------------------------------------------------------------===//
// Step
//===----------------------------------------------------------------------===//

/// Adds the work of a virtual stage, behind which exchanges of replicas hide:
/// not where it waits for copies itself, so that no copy makes a step shorter.
void Estimator::addWork(const StageTime &time, StepLoad &load) const {
  bool splits = generator->splitsBackward;
  // Each axis has its own stream, but what ranks of cp wait for is in theirs.
  bool waits = context.framework().exchangesOneByOne;
  load.forward +=
      time.forward - time.copiedForward - (waits ? time.contextForward : 0);
  double input = time.backwardInput - time.copiedInput -
                 (waits ? time.contextBackward : 0);
  double weight = time.backwardWeight - time.copiedWeight;
  double both = input + weight - (splits ? 0 : time.drained);
  load.backward += both;
  // Whole backward passes end gradients all along.
  load.gradients += splits ? weight : both;
}

StepLoad Estimator::getLoad(uint32_t rank) const {
  const schedule::Problem &problem = pipeline.getProblem();
  StepLoad load;
  for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk) {
    uint32_t stage = problem.stageOf(rank, chunk);
    load.stages.push_back(&stages[stage]);
    addWork(result.stages[stage], load);
    if (!waits.empty())
      load.waits = load.waits.value_or(PassWaits()) += waits[stage];
  }
  load.parameters = countParameters(work, load.stages);
  load.tied = countTied(work, load.stages);
  load.microbatches = problem.microbatches;
  load.hasLoss = rank == problem.rankOf(problem.stages * problem.chunks - 1);
  load.splits = generator->splitsBackward;
  return load;
}

/// A table that only one rank holds is shared with nobody, as in a V, whose
/// ends are on one rank.
bool Estimator::sharesTied() const {
  uint32_t holders = 0;
  for (uint32_t rank = 0; rank < pipeline.getProblem().stages; ++rank)
    holders += countTied(work, stagesOf(rank)) > 0;
  return holders > 1;
}

/// The rank that holds the most is the last to be done. What is frozen only
/// counts where it is gathered.
StepLoad Estimator::getHeaviestLoad() const {
  uint32_t heaviest = 0;
  double most = -1;
  for (uint32_t rank = 0; rank < pipeline.getProblem().stages; ++rank) {
    double held = countParameters(work, stagesOf(rank)).all();
    if (context.zero(/*experts=*/false) >= 3)
      held += countParameters(work, stagesOf(rank), /*frozen=*/true).all();
    if (held > most) {
      heaviest = rank;
      most = held;
    }
  }
  StepLoad load = getLoad(heaviest);
  if (load.tied > 0 && !sharesTied())
    load.tied = 0;
  return load;
}

/// Runs the order once more with what each stage waits for, which other ranks
/// then wait for in turn. Without a pipeline, and on processors, it is a sum.
std::optional<double> Estimator::getWaited() {
  waits.clear();
  if (!needsMarks(context))
    return std::nullopt;
  std::vector<StageCost> costs = getStageCosts();
  for (size_t i = 0; i < costs.size(); ++i) {
    // Most stages run what one in front of them does.
    size_t alike = findAlike(i);
    PassWaits stage = alike < i ? waits[alike] : getWaits(stages[i]);
    costs[i].forward += stage.forward;
    costs[i].backwardInput += stage.backward;
    costs[i].backwardWeight += stage.weights;
    costs[i].earlyForward = stage.earlyForward;
    costs[i].early = std::max(costs[i].early, stage.earlyBackward);
    waits.push_back(stage);
  }
  if (configuration.mesh[Axis::PP] == 1)
    return std::nullopt;
  return pipeline.run(costs, transfer).seconds - result.pipelineSeconds;
}

/// In the order in which a step goes on behind its pipeline: the slowest
/// replica is waited for, gradients are exchanged, the optimizer runs. All
/// ranks do it at the same time, so that the heaviest one counts.
void Estimator::timeStep() {
  std::optional<double> waited = getWaited();
  StepLoad load = getHeaviestLoad();
  load.waited = waited;
  result.waitSeconds =
      getWaitShare(configuration, context.training) * result.pipelineSeconds;
  result.dataSeconds = getDataSeconds(load, context);
  Cost optimizer = getOptimizerCost(load, context);
  result.optimizerSeconds = optimizer.seconds;
  result.breakdown.memory += optimizer.memory;
  result.breakdown.launch += optimizer.launch;
  result.overheadSeconds =
      context.framework().stepSeconds +
      getSitesSeconds(load, result.pipelineSeconds + result.optimizerSeconds,
                      context);
}

/// By rank of the pipeline: ranks that share its stages hold the same.
void Estimator::findMemory() {
  uint32_t ranks = pipeline.getProblem().stages;
  result.memory.clear();
  result.memory.reserve(ranks);
  HoldingsFinder finder(context);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<const StageBlocks *> own = stagesOf(rank);
    result.memory.push_back(
        getMemory(rank, own, finder.find(own), pipeline, context));
  }
}

/// The step, and what is derived from it. Utilisation is against the peak of
/// the ranks that are used; devices that are left idle do not lower it.
void Estimator::sumUp() {
  result.breakdown.exposed[Axis::DP] = result.dataSeconds;
  result.breakdown.wait = result.waitSeconds;
  result.breakdown.optimizer = result.optimizerSeconds;
  result.breakdown.overhead = result.overheadSeconds;
  const Training &training = context.training;
  double seconds = result.pipelineSeconds + result.waitSeconds +
                   result.dataSeconds + result.optimizerSeconds +
                   result.overheadSeconds;
  result.iterationSeconds = seconds;
  result.modelFlops = work.modelFlopsPerSequence * training.globalBatch;
  if (seconds <= 0)
    return;
  result.tokensPerSecond =
      double(training.globalBatch) * training.sequence / seconds;
  double peak = context.cluster.device.peak(training.precision);
  if (peak > 0)
    result.mfu = result.modelFlops / (seconds * configuration.ranks() * peak);
}

/// First of all: everything behind it indexes and divides by what this checks.
Status Estimator::check() {
  PLAIT_RETURN_IF_ERROR(checkConfiguration(context));
  Result<const schedule::Generator *> found =
      schedule::findGenerator(configuration.schedule);
  if (found.ok())
    generator = *found;
  return found.status();
}

/// For bounds, which need the stages of many configurations and no order.
Status Estimator::runStages() {
  PLAIT_RETURN_IF_ERROR(check());
  cutGiven();
  setStages(configuration.recompute);
  return Status::success();
}

/// Uses the times that run() has computed and kept.
Estimator::Pieces Estimator::getPieces() {
  Recompute kind = *configuration.recompute.getUniform();
  constexpr double never = std::numeric_limits<double>::max();
  Pieces pieces{never, never};
  for (int i = 0; i < int(work.layers()); ++i) {
    const StageTime &time = timeBlocks(kind)[work.order[work.before + i]];
    pieces.layer = std::min(pieces.layer, time.sum());
    pieces.forward = std::min(pieces.forward, time.forward);
    pieces.early = std::max(pieces.early, time.early);
  }
  std::tie(pieces.before, pieces.after) = timeEnds(kind);
  pieces.before -= timeBlocks(kind)[work.order[work.before]].ofInputHidden;
  return pieces;
}

/// 1. Arguments are checked, and the schedule is looked up.
/// 2. Layers are cut and recomputation chosen, which makes the stages and the
///    order.
/// 3. The pipeline is timed, then what follows it.
/// 4. Memory is counted, whether it fits or not: that is for the caller to
///    compare.
Status Estimator::run(Microbatches microbatches) {
  PLAIT_RETURN_IF_ERROR(check());
  transfer = getTransfer(context);
  PLAIT_RETURN_IF_ERROR(recompute(microbatches));
  timePipeline();
  timeStep();
  findMemory();
  sumUp();
  return Status::success();
}

Result<Estimate> planner::estimate(const Work &work, const Cluster &cluster,
                                   const Training &training,
                                   const Configuration &configuration) {
  return estimate({work, cluster, training, configuration});
}

Result<Estimate> planner::estimate(const Context &context) {
  Estimator estimator(context);
  PLAIT_RETURN_IF_ERROR(estimator.run(Microbatches::Some));
  return std::move(estimator.getResult());
}
