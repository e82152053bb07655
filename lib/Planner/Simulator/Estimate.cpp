//===- Estimate.cpp - Time and memory of one configuration ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Estimate.h"
#include "BlockTime.h"
#include "Memory.h"
#include "Pipeline.h"
#include "StageCut.h"
#include "Step.h"
#include "plait/Schedule/Generators.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace plait;
using namespace plait::planner;

namespace {

class Estimator {
public:
  Estimator(const Context &context)
      : context(context), work(context.work),
        configuration(context.configuration),
        virtualStages(configuration.pipeline * configuration.chunks) {}

  Result<Estimate> run();

private:
  Status checkCounts() const;
  Status checkLayers() const;
  Status makePipeline();
  void timeBlocks(bool split);
  void cut();
  void fillStages();
  void timeStages();
  void timePipeline();
  void timeStep();
  void sumUp();
  StepLoad getHeaviestLoad() const;
  std::vector<const StageBlocks *> stagesOf(uint32_t rank) const;
  double stageSeconds(int index) const {
    const StageTime &time = blockTimes[work.order[index]];
    return time.forward + time.backwardInput + time.backwardWeight;
  }

  const Context &context;
  const Work &work;
  const Configuration &configuration;
  int virtualStages;
  PipelineModel pipeline;
  std::vector<StageTime> blockTimes; // by block
  std::vector<StageBlocks> stages;   // by virtual stage
  TransferCost transfer;
  Estimate result;
};

} // namespace

//===----------------------------------------------------------------------===//
// What makes no sense
//===----------------------------------------------------------------------===//

Status Estimator::checkCounts() const {
  const Training &training = context.training;
  const std::pair<const char *, int64_t> counts[] = {
      {"pipeline", configuration.pipeline}, {"data", configuration.data},
      {"tensor", configuration.tensor},     {"context", configuration.context},
      {"chunks", configuration.chunks},     {"microbatch", configuration.microBatch},
      {"global batch", training.globalBatch}};
  for (auto [name, count] : counts)
    if (count < 1)
      return fail(name, " is ", count, ", expected at least 1");
  if (configuration.zero < 0 || configuration.zero > 3)
    return fail("zero stage is ", configuration.zero, ", expected 0 to 3");
  if (configuration.ranks() > context.cluster.devices())
    return fail("the configuration needs ", configuration.ranks(),
                " devices, the cluster has ", context.cluster.devices());
  if (work.tensorParallel != configuration.tensor)
    return fail("the work is for tensor ", work.tensorParallel,
                ", the configuration has ", configuration.tensor);
  if (training.sequence != work.sequence)
    return fail("the work is for sequences of ", work.sequence,
                " tokens, the training has ", training.sequence);
  int64_t slice = configuration.microBatch * configuration.data;
  if (training.globalBatch % slice != 0)
    return fail("global batch ", training.globalBatch,
                " is not a multiple of microbatch ", configuration.microBatch,
                " x data ", configuration.data);
  if (training.sequence % configuration.context != 0)
    return fail("sequence ", training.sequence, " is not a multiple of context ",
                configuration.context);
  return Status::success();
}

Status Estimator::checkLayers() const {
  int64_t layers = work.layers();
  int64_t stageCount = int64_t(configuration.pipeline) * configuration.chunks;
  const std::vector<int> &given = configuration.layers;
  if (given.empty() && layers < stageCount)
    return fail("the pipeline has ", stageCount, " virtual stages, the model ",
                layers, " layers");
  if (given.empty())
    return Status::success();
  if (int64_t(given.size()) != stageCount)
    return fail("layers are given for ", given.size(),
                " virtual stages, the pipeline has ", stageCount);
  int64_t sum = 0;
  for (int count : given) {
    if (count < 0)
      return fail("a virtual stage is given ", count, " layers");
    sum += count;
  }
  if (sum != layers)
    return fail("the layers given add up to ", sum, ", the model has ", layers);
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

Status Estimator::makePipeline() {
  schedule::Problem problem;
  problem.stages = uint32_t(configuration.pipeline);
  problem.chunks = uint32_t(configuration.chunks);
  problem.microbatches =
      uint32_t(configuration.microbatches(context.training));
  const StageTime &time = result.stages[virtualStages / 2];
  Result<PipelineModel> model = PipelineModel::get(
      configuration.schedule, problem,
      {time.forward, time.backwardInput, time.backwardWeight});
  if (!model.ok())
    return model.status();
  pipeline = *model;
  return Status::success();
}

void Estimator::timeBlocks(bool split) {
  blockTimes.reserve(work.blocks.size());
  for (size_t block = 0; block < work.blocks.size(); ++block) {
    blockTimes.push_back(getBlockTime(work.blocks[block], context, split));
    // What comes before and after the layers is not recomputed.
    bool isLayer = false;
    for (int64_t i = work.before; i < int64_t(work.order.size()) - work.after; ++i)
      isLayer |= work.order[i] == int(block);
    StageTime &time = blockTimes.back();
    if (isLayer || time.recompute == 0)
      continue;
    time.backwardInput -= time.recompute;
    if (configuration.recompute == Recompute::Full)
      time.tensorBackward -= time.tensorForward;
    time.recompute = 0;
  }
}

void Estimator::cut() {
  if (!configuration.layers.empty()) {
    result.layers = configuration.layers;
    return;
  }
  std::vector<double> costs(size_t(work.layers()));
  for (size_t i = 0; i < costs.size(); ++i)
    costs[i] = stageSeconds(work.before + int(i));
  double before = 0, after = 0;
  for (int i = 0; i < work.before; ++i)
    before += stageSeconds(i);
  for (int i = 0; i < work.after; ++i)
    after += stageSeconds(int(work.order.size()) - 1 - i);
  result.layers = cutStages(costs, before, after, virtualStages);
}

void Estimator::fillStages() {
  stages.resize(virtualStages);
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
  for (int stage = 0; stage < virtualStages; ++stage)
    append(stages[stage], result.layers[stage], true);
  append(stages.back(), work.after, false);
}

void Estimator::timeStages() {
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
    }
    if (configuration.microbatches(context.training) == 1)
      continue;
    const StageBlocks *one[] = {&stage};
    sum.backwardWeight +=
        getAccumulationSeconds(countParameters(work, one), context);
  }
}

std::vector<const StageBlocks *> Estimator::stagesOf(uint32_t rank) const {
  const schedule::Problem &problem = pipeline.getProblem();
  std::vector<const StageBlocks *> held;
  for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk)
    held.push_back(&stages[problem.stageOf(rank, chunk)]);
  return held;
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

/// What the last block of the first stage passes on stands for all messages.
static TransferCost getTransfer(const Block &block, const Context &context) {
  const Configuration &configuration = context.configuration;
  const Framework &framework = context.framework();
  double bytes = (block.output.elements *
                      elementBytes(context.training.precision) +
                  block.output.fourByte * 4) *
                 context.sequences();
  bool alike = configuration.tensor > 1 && !context.work.sequenceParallel;
  bool cut = alike && framework.scatterGather && context.stagesCrossNodes();
  TransferCost cost;
  cost.blocking = framework.blockingTransfers;
  cost.seconds =
      transferSeconds(cut ? bytes / configuration.tensor : bytes,
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
  std::vector<StageCost> costs;
  costs.reserve(result.stages.size());
  for (const StageTime &time : result.stages)
    costs.push_back({time.forward, time.backwardInput, time.backwardWeight});
  PipelineTime time = pipeline.run(costs, transfer);
  result.pipelineSeconds = time.seconds;
  result.bubbleFraction = time.idle;
  const schedule::Problem &problem = pipeline.getProblem();
  double messages = transfer.blocking
                        ? double(problem.microbatches) * problem.chunks
                        : problem.stages - 1;
  result.exposed.pipeline =
      configuration.pipeline > 1 ? 2 * messages * transfer.seconds : 0;
}

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
  const schedule::Problem &problem = pipeline.getProblem();
  StepLoad load = getHeaviestLoad();
  result.waitSeconds =
      getSlowestReplica(configuration.data) *
      context.framework().spread * result.pipelineSeconds;
  result.dataSeconds = result.exposed.data =
      getDataSeconds(load, context) + result.waitSeconds;
  result.optimizerSeconds = getOptimizerSeconds(load, context);
  result.overheadSeconds = context.framework().stepSeconds;
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    result.memory.push_back(getMemory(rank, stagesOf(rank), pipeline, context));
    double tensor = 0;
    for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk) {
      const StageTime &time = result.stages[problem.stageOf(rank, chunk)];
      tensor += time.tensorForward + time.tensorBackward;
    }
    result.exposed.tensor =
        std::max(result.exposed.tensor, tensor * problem.microbatches);
  }
}

void Estimator::sumUp() {
  const Training &training = context.training;
  double seconds = result.pipelineSeconds + result.dataSeconds +
                   result.optimizerSeconds + result.overheadSeconds;
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

Result<Estimate> Estimator::run() {
  PLAIT_RETURN_IF_ERROR(checkCounts());
  PLAIT_RETURN_IF_ERROR(checkLayers());
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(configuration.schedule);
  if (!generator.ok())
    return generator.status();
  timeBlocks((*generator)->splitsBackward);
  cut();
  fillStages();
  timeStages();
  PLAIT_RETURN_IF_ERROR(makePipeline());
  timePipeline();
  timeStep();
  sumUp();
  return std::move(result);
}

Result<Estimate> planner::estimate(const Work &work, const Cluster &cluster,
                                   const Training &training,
                                   const Configuration &configuration) {
  Context context{work, cluster, training, configuration};
  return Estimator(context).run();
}
