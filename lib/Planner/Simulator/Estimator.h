//===- Estimator.h - Time and memory, step by step ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_ESTIMATOR_H
#define PLAIT_LIB_PLANNER_SIMULATOR_ESTIMATOR_H

#include "BlockTime.h"
#include "Memory.h"
#include "Pipeline.h"
#include "Step.h"
#include "plait/Schedule/Generators.h"

namespace plait::planner {

/// Whether all microbatches are simulated, or some and the rest continued.
enum class Microbatches : uint8_t { Some, All };

/// One estimate. Use: run() once, then the getters.
class Estimator {
public:
  explicit Estimator(const Context &context)
      : context(context), work(context.work),
        configuration(context.configuration) {}

  /// Fails as estimate() does.
  Status run(Microbatches microbatches);

  Estimate &getResult() { return result; }
  const PipelineModel &getPipeline() const { return pipeline; }
  /// Of all microbatches; empty where only some are simulated.
  const schedule::Schedule &getSchedule() const { return schedule; }
  std::vector<StageCost> getStageCosts() const;
  TransferCost getTransferCost() const { return transfer; }
  /// What the pipeline's times are multiplied by: see sharedSeconds.
  double getStretch() const { return stretch; }
  /// The virtual stages of a rank of the pipeline, by chunk.
  std::vector<const StageBlocks *> stagesOf(uint32_t rank) const;

private:
  Status makePipeline(const schedule::Generator &generator,
                      Microbatches microbatches);
  void timeBlocks(bool split);
  void cut(schedule::Placement placement);
  void fillStages();
  void timeStages();
  void timePipeline();
  void timeStep();
  void findMemory();
  void breakDown(double withoutTransfers);
  void share(double busy);
  void sumUp();
  StepLoad getHeaviestLoad() const;
  /// Seconds of one microbatch, of the block at `index` of the work's order.
  double blockSeconds(int index) const {
    return blockTimes[work.order[index]].sum();
  }

  const Context &context;
  const Work &work;
  const Configuration &configuration;
  PipelineModel pipeline;
  schedule::Schedule schedule;
  std::vector<StageTime> blockTimes; // by block
  std::vector<StageBlocks> stages;   // by virtual stage
  TransferCost transfer;
  double stretch = 1;
  Estimate result;
};

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_ESTIMATOR_H
