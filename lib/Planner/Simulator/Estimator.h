//===- Estimator.h - Time and memory, step by step ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_ESTIMATOR_H
#define PLAIT_LIB_PLANNER_SIMULATOR_ESTIMATOR_H

#include "BlockTime.h"
#include "PartTime.h"
#include "Pipeline.h"
#include "RankMemory.h"
#include "StepEndTime.h"
#include "plait/Schedule/Generators.h"

#include <array>

namespace plait::planner {

/// Whether all microbatches are simulated, or some and the rest continued.
enum class Microbatches : uint8_t { Some, All };

/// The same as of what the context has, which may share times with others.
Result<Estimate> estimate(const Context &context);
TransferCost getTransfer(const Context &context);

/// One estimate. Use: run() once, then the getters.
class Estimator {
public:
  explicit Estimator(const Context &context)
      : context(context), work(context.work),
        configuration(context.configuration) {}

  /// Fails as estimate() does.
  Status run(Microbatches microbatches);

  /// The stages and their times alone, as run() would cut them, without a
  /// schedule. Recomputation is not Auto.
  Status runStages();
  /// Seconds of a pipeline that no order of a schedule that is searched for
  /// beats, in the memory that there is. Recomputation is not Auto.
  Result<double> runLeastOrder();
  /// Seconds of one microbatch, once that has run: of the fastest layer, of the
  /// fastest forward pass of one, of what comes before the layers and after
  /// them, and the most that a layer does early. Recomputation is one kind.
  struct Pieces {
    double layer = 0, forward = 0, before = 0, after = 0, early = 0;
  };
  Pieces getPieces();

  /// Once run() has: what a rank of each rank of the pipeline exchanges.
  std::vector<ExchangeList> listExchanges();

  Estimate &getResult() { return result; }
  const schedule::Generator &getGenerator() const { return *generator; }
  /// Returns the blocks by virtual stage.
  const std::vector<StageBlocks> &getStages() const { return stages; }
  const PipelineModel &getPipeline() const { return pipeline; }
  /// Returns the schedule of all microbatches; empty where only some are
  /// simulated.
  const schedule::Schedule &getSchedule() const { return schedule; }
  std::vector<StageCost> getStageCosts() const;
  TransferCost getTransferCost() const { return transfer; }
  /// Returns what the pipeline's times are multiplied by: see sharedSeconds.
  double getStretch() const { return stretch; }
  /// The virtual stages of a rank of the pipeline, by chunk.
  std::vector<const StageBlocks *> stagesOf(uint32_t rank) const;

private:
  schedule::Problem getProblem() const;
  Status makePipeline(Microbatches microbatches);
  // SearchedOrder.cpp.
  Result<OrderGoal> searchOrder(const schedule::Problem &problem);
  OrderGoal getTypicalGoal() const;
  double getLeastOrder(const schedule::Problem &problem) const;
  double countRoom(const schedule::Problem &problem) const;
  /// Returns times by block; they are computed when they are asked for.
  const std::vector<BlockTime> &timeBlocks(Recompute kind);
  std::pair<double, double> timeEnds(Recompute kind);
  /// Layers by virtual stage, for layers of which `kind` is recomputed.
  void cut(Recompute kind);
  StageBlocks makeStage(size_t stage, const Recomputation::Stage &kinds) const;
  StageTime timeStage(const StageBlocks &stage);
  void moveInputTime(const StageBlocks &stage, StageTime &sum);
  PassWaits getWaits(const StageBlocks &stage) const;
  size_t findAlike(size_t stage) const;
  std::optional<double> getWaited();
  void addCopies(const StageBlocks &stage, StageTime &time);
  double getLeavingBehind(const StageBlocks &stage);
  void addPacking(double parameters, StageTime &time) const;
  Status check();
  /// Stages and their times, of result.layers.
  void setStages(const Recomputation &recompute);
  /// The same and the pipeline.
  Status fillStages(const Recomputation &recompute, Microbatches microbatches);
  void timeStages();

  // Recomputation.cpp.
  void cutGiven();
  Status recompute(Microbatches microbatches);
  std::vector<Recompute> getKinds();
  Status fit(Recompute kind, Microbatches microbatches);
  struct RankLayers;
  void fitRank(uint32_t rank, Recompute least, Recomputation &found);
  void applyTo(const std::vector<uint32_t> &order, RankLayers some,
               Recomputation &found);
  void timePipeline();
  void timeStep();
  void findMemory();
  void breakDown(double withoutTransfers);
  void share(double busy);
  void sumUp();
  /// Returns that of one rank of the pipeline; a tied table counts as shared.
  StepLoad getLoad(uint32_t rank) const;
  void addWork(const StageTime &time, StepLoad &load) const;
  StepLoad getHeaviestLoad() const;
  bool sharesTied() const;
  // ListExchanges.cpp.
  void notePasses(const StageBlocks &stage, Context &noted) const;
  void noteTransfers(uint32_t rank, const Context &noted) const;

  const Context &context;
  const Work &work;
  const Configuration &configuration;
  const schedule::Generator *generator = nullptr;
  PipelineModel pipeline;
  schedule::Schedule schedule;
  std::array<BlockTimes::Times, 3> blockTimes; // by kind; null: not asked for
  std::vector<StageBlocks> stages;             // by virtual stage
  std::vector<PassWaits> waits;                // of these; empty: for nothing
  std::vector<int> starts; // of their layers, in the work's order
  TransferCost transfer;
  double stretch = 1;
  Estimate result;
};

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_ESTIMATOR_H
