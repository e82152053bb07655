//===- Estimate.cpp - Time and memory of one configuration ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Estimate.h"
#include "Checks.h"
#include "Estimator.h"
#include "plait/Schedule/StageCut.h"

#include <cmath>

using namespace plait;
using namespace plait::planner;

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

void Estimator::timeBlocks(bool split) {
  std::vector<bool> isLayer(work.blocks.size());
  for (size_t i = size_t(work.before); i + work.after < work.order.size(); ++i)
    isLayer[work.order[i]] = true;
  blockTimes.reserve(work.blocks.size());
  for (int block = 0; block < int(work.blocks.size()); ++block)
    blockTimes.push_back(getBlockTime(block, context, split, isLayer[block]));
}

void Estimator::cut(schedule::Placement placement) {
  if (!configuration.layers.empty()) {
    result.layers = configuration.layers;
    return;
  }
  std::vector<double> costs(size_t(work.layers()));
  for (size_t i = 0; i < costs.size(); ++i)
    costs[i] = blockSeconds(work.before + int(i));
  double before = 0, after = 0;
  for (int i = 0; i < work.before; ++i)
    before += blockSeconds(i);
  for (int i = 0; i < work.after; ++i)
    after += blockSeconds(int(work.order.size()) - 1 - i);
  schedule::Problem problem;
  problem.stages = uint32_t(configuration.pipeline);
  problem.chunks = uint32_t(configuration.chunks);
  problem.placement = placement;
  auto ifAny = [](int blocks, double seconds) {
    return blocks > 0 ? std::optional(seconds) : std::nullopt;
  };
  result.layers = schedule::cutStages(costs, ifAny(work.before, before),
                                      ifAny(work.after, after), problem);
}

void Estimator::fillStages() {
  stages.resize(result.layers.size());
  int next = 0;
  auto append = [&](StageBlocks &stage, int count, bool isLayer) {
    for (; count > 0; --count, ++next) {
      int block = work.order[next];
      if (stage.entries.empty() || stage.entries.back().block != block)
        stage.entries.push_back({block, 0, isLayer});
      ++stage.entries.back().count;
    }
  };
  append(stages.front(), work.before, false);
  for (size_t stage = 0; stage < stages.size(); ++stage)
    append(stages[stage], result.layers[stage], true);
  append(stages.back(), work.after, false);
}

void Estimator::timeStages() {
  bool accumulates = configuration.microbatches(context.training) > 1;
  result.stages.reserve(stages.size());
  for (const StageBlocks &stage : stages) {
    StageTime &sum = result.stages.emplace_back();
    for (const StageBlocks::Entry &entry : stage.entries) {
      const StageTime &time = blockTimes[entry.block];
      sum.forward += entry.count * time.forward;
      sum.backwardInput += entry.count * time.backwardInput;
      sum.backwardWeight += entry.count * time.backwardWeight;
      sum.recompute += entry.count * time.recompute;
      sum.tensorForward += entry.count * time.tensorForward;
      sum.tensorBackward += entry.count * time.tensorBackward;
      sum.contextForward += entry.count * time.contextForward;
      sum.contextBackward += entry.count * time.contextBackward;
      sum.memory += entry.count * time.memory;
      sum.launch += entry.count * time.launch;
    }
    const StageBlocks *one[] = {&stage};
    if (!accumulates)
      continue;
    Cost adding = getAccumulationCost(countParameters(work, one), context);
    sum.backwardWeight += adding.seconds;
    sum.memory += adding.memory;
    sum.launch += adding.launch;
  }
}

std::vector<StageCost> Estimator::getStageCosts() const {
  std::vector<StageCost> costs;
  costs.reserve(result.stages.size());
  for (const StageTime &time : result.stages)
    costs.push_back({time.forward, time.backwardInput, time.backwardWeight});
  return costs;
}

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

Status Estimator::makePipeline(const schedule::Generator &generator,
                               Microbatches microbatches) {
  schedule::Problem problem;
  problem.stages = uint32_t(configuration.pipeline);
  problem.chunks = uint32_t(configuration.chunks);
  problem.microbatches = uint32_t(configuration.microbatches(context.training));
  const StageTime &time = result.stages[result.stages.size() / 2];
  StageCost typical = {time.forward, time.backwardInput, time.backwardWeight};
  if (microbatches == Microbatches::Some) {
    Result<PipelineModel> model =
        PipelineModel::get(generator.name, problem, typical);
    if (model.ok())
      pipeline = std::move(*model);
    return model.status();
  }
  Result<schedule::Schedule> generated =
      generateFor(generator.name, problem, typical);
  if (!generated.ok())
    return generated.status();
  schedule = std::move(*generated);
  pipeline = PipelineModel(schedule);
  return Status::success();
}

/// What the first layer passes on stands for all messages.
static TransferCost getTransfer(const Block &block, const Context &context) {
  const Configuration &configuration = context.configuration;
  const Framework &framework = context.framework();
  double bytes =
      (block.output.elements * elementBytes(context.training.precision) +
       block.output.fourByte * 4) *
      context.sequences();
  bool alike = configuration.tensor > 1 && !context.work.sequenceParallel;
  bool cut = alike && framework.scatterGather && context.stagesCrossNodes();
  TransferCost cost;
  cost.blocking = framework.blockingTransfers;
  cost.seconds = transferSeconds(cut ? bytes / configuration.tensor : bytes,
                                 !context.stagesCrossNodes(), context.cluster);
  if (cut)
    cost.seconds += collectiveSeconds(CollectiveKind::AllGather, bytes,
                                      context.tensorGroup(), context.cluster);
  return cost;
}

void Estimator::timePipeline() {
  if (configuration.pipeline > 1)
    transfer = getTransfer(work.blocks[work.order[work.before]], context);
  result.transferSeconds = transfer.seconds;
  PipelineTime time = pipeline.run(getStageCosts(), transfer);
  result.pipelineSeconds = time.seconds;
  breakDown(time.withoutTransfers);
  const schedule::Problem &problem = pipeline.getProblem();
  double busy = 0; // a rank, on average
  for (const StageTime &time : result.stages)
    busy += time.sum() * problem.microbatches / problem.stages;
  // Sharing a processor shrinks work and waiting alike.
  if (result.pipelineSeconds > 0)
    result.bubbleFraction =
        (time.withoutTransfers - busy) / result.pipelineSeconds;
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
  for (double *part :
       {&parts.forward, &parts.backward, &parts.recompute, &parts.bubble,
        &parts.memory, &parts.launch, &parts.exposed.tensor,
        &parts.exposed.pipeline, &parts.exposed.context})
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
      parts.forward +=
          m * (time.forward - time.tensorForward - time.contextForward);
      parts.exposed.tensor += m * (time.tensorForward + time.tensorBackward);
      parts.exposed.context += m * (time.contextForward + time.contextBackward);
    }
    if (busy <= longest)
      continue;
    longest = busy;
    parts.backward = busy - parts.forward - parts.recompute -
                     parts.exposed.tensor - parts.exposed.context;
    result.breakdown = parts;
  }
  result.breakdown.exposed.pipeline = result.pipelineSeconds - withoutTransfers;
  result.breakdown.bubble = withoutTransfers - longest;
}

//===----------------------------------------------------------------------===//
// Step
//===----------------------------------------------------------------------===//

/// The rank that holds the most is the last to be done.
StepLoad Estimator::getHeaviestLoad() const {
  const schedule::Problem &problem = pipeline.getProblem();
  StepLoad heaviest;
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    std::vector<const StageBlocks *> held = stagesOf(rank);
    double parameters = countParameters(work, held);
    if (parameters <= heaviest.parameters)
      continue;
    heaviest = StepLoad();
    heaviest.parameters = parameters;
    heaviest.tied = countTied(work, held);
    heaviest.microbatches = problem.microbatches;
    for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk) {
      const StageTime &time = result.stages[problem.stageOf(rank, chunk)];
      heaviest.forward += time.forward;
      heaviest.backward += time.backwardInput + time.backwardWeight;
    }
  }
  return heaviest;
}

/// How many standard deviations the slowest of `count` normal samples lies
/// above the mean (the usual approximation of its expectation).
static double getSlowestReplica(int count) {
  return std::sqrt(2 * std::log(double(count)));
}

void Estimator::timeStep() {
  StepLoad load = getHeaviestLoad();
  result.waitSeconds = getSlowestReplica(configuration.data) *
                       context.framework().spread * result.pipelineSeconds;
  result.dataSeconds = getDataSeconds(load, context);
  Cost optimizer = getOptimizerCost(load, context);
  result.optimizerSeconds = optimizer.seconds;
  result.breakdown.memory += optimizer.memory;
  result.breakdown.launch += optimizer.launch;
  result.overheadSeconds = context.framework().stepSeconds;
}

void Estimator::findMemory() {
  uint32_t ranks = pipeline.getProblem().stages;
  result.memory.reserve(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank)
    result.memory.push_back(getMemory(rank, stagesOf(rank), pipeline, context));
}

void Estimator::sumUp() {
  result.breakdown.exposed.data = result.dataSeconds;
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

Status Estimator::run(Microbatches microbatches) {
  PLAIT_RETURN_IF_ERROR(checkConfiguration(context));
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(configuration.schedule);
  if (!generator.ok())
    return generator.status();
  timeBlocks((*generator)->splitsBackward);
  cut((*generator)->placement);
  fillStages();
  timeStages();
  PLAIT_RETURN_IF_ERROR(makePipeline(**generator, microbatches));
  timePipeline();
  timeStep();
  findMemory();
  sumUp();
  return Status::success();
}

Result<Estimate> planner::estimate(const Work &work, const Cluster &cluster,
                                   const Training &training,
                                   const Configuration &configuration) {
  Context context{work, cluster, training, configuration};
  Estimator estimator(context);
  PLAIT_RETURN_IF_ERROR(estimator.run(Microbatches::Some));
  return std::move(estimator.getResult());
}
