//===- GatherBatchesTest.cpp - Gathers that are launched together ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaPlan.h"
#include "TrainSteps.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Communicators.h"
#include "plait/Plan/Uses.h"
#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Weights.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

#ifdef PLAIT_PLAITC
namespace {

/// Counts the groups of calls that the stand-in has been given to launch.
uint64_t countLaunches() {
  return findFake<uint64_t()>("plaitFakeNcclLaunches")();
}

class GatherBatches : public ::testing::TestWithParam<const char *> {
protected:
  GatherBatches() {
    std::string directory = makeDirectory();
    bytes = plan::packPlan(
        toCuda(compilePlan(PLAIT_MODEL, GetParam(), directory + "/model.plan"),
               directory));
  }
  const fb::Plan &plan() const { return *fb::GetPlan(bytes.data()); }

  struct Run {
    std::vector<StepMetrics> metrics;
    std::vector<uint8_t> weights;
    uint64_t launches = 0; // of three steps
  };
  Result<Run> run(unsigned devices, bool graph) {
    ExecutorOptions options;
    options.timeLimit = std::chrono::seconds(20);
    options.devices = devices;
    options.cudaGraph = graph;
    auto executor = Executor::create(plan(), options);
    if (!executor.ok())
      return executor.status();
    PLAIT_RETURN_IF_ERROR(initializeWeights(**executor, 7));
    uint64_t before = countLaunches();
    auto metrics = trainThreeSteps(**executor, plan());
    if (!metrics.ok())
      return metrics.status();
    Run result = {*metrics, {}, countLaunches() - before};
    std::string target = makeDirectory();
    PLAIT_RETURN_IF_ERROR(saveWeights(**executor, target));
    result.weights = readFile(target + "/model.safetensors");
    return result;
  }

  /// Counts what all ranks ask NCCL for in a step, and the launches that it is.
  std::pair<uint64_t, uint64_t> count() const {
    plan::RankGrid mesh(plan());
    uint64_t collectives = 0, launches = 0;
    for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
      const fb::Program &program = *plan().programs()->Get(mesh.index(rank, 0));
      for (const fb::Action *action : *program.actions()) {
        if (plan::isTransfer(*action)) {
          bool isCall = action->kind() != fb::ActionKind::WaitSend;
          collectives += isCall;
          launches += isCall;
          continue;
        }
        const fb::Function &function =
            *program.functions()->Get(action->function());
        std::vector<uint32_t> last = plan::batchGathers(mesh, rank, function);
        for (uint32_t i = 0; i < last.size(); ++i) {
          if (!function.steps()->Get(i)->step_as_CollectiveStep())
            continue;
          ++collectives;
          ++launches;
          for (uint32_t end = last[i]; i < end; ++i)
            ++collectives;
        }
      }
    }
    return {collectives, launches};
  }

  std::vector<uint8_t> bytes;
};

} // namespace

/// Bits are those of ranks that share a GPU, which copy parameter by parameter,
/// whatever comes first.
TEST_P(GatherBatches, ComputeWhatSingleGathersDo) {
  auto alone = run(1, false);
  ASSERT_TRUE(alone.ok()) << alone.status().message();
  auto [collectives, launches] = count();
  EXPECT_LT(launches, collectives);
  for (bool graph : {false, true})
    for (const char *hasty : {"0", "1"}) {
      setenv("PLAIT_FAKE_HASTY", hasty, 1);
      auto together = run(0, graph);
      unsetenv("PLAIT_FAKE_HASTY");
      ASSERT_TRUE(together.ok()) << together.status().message();
      EXPECT_EQ(together->metrics, alone->metrics);
      EXPECT_EQ(together->weights, alone->weights);
      // A graph is recorded once, and has no launches of its own.
      EXPECT_EQ(together->launches, (graph ? 2 : 3) * launches);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, GatherBatches,
    ::testing::Values("--mesh dp=2 --zero 3 --global-batch 4 --seq 8 "
                      "--micro-batch 1 --precision bf16",
                      "--mesh dp=4 --zero 2 --global-batch 4 --seq 8 "
                      "--precision bf16",
                      "--mesh dp=4 --zero 2 --global-batch 4 --seq 8",
                      "--mesh pp=2,dp=2 --zero 3 --global-batch 4 --seq 8 "
                      "--micro-batch 1"));

/// Groups, kinds and bytes that end a batch.
TEST(GatherBatchesOf, AFunction) {
  fb::PlanT plan = makePlan();
  uint8_t within = uint8_t(plan.mesh.size() - 1);
  fb::FunctionT &function = append(plan.programs[0]->functions);
  auto add = [&](CollectiveKind kind, uint8_t axis, int64_t outer,
                 int64_t chunk) {
    fb::CollectiveStepT step;
    step.kind = uint8_t(kind);
    step.axis = axis;
    step.outer = outer;
    step.chunk = chunk;
    step.dtype = fb::DType::F32;
    append(function.steps).step.Set(std::move(step));
  };
  constexpr auto gather = CollectiveKind::AllGather;
  add(gather, within, 1, 100);
  add(gather, within, 2, 100);
  add(CollectiveKind::AllReduce, within, 1, 100);
  add(gather, within, 1, 200'000);
  add(gather, within, 1, 200'000); // 1.6 MB together
  add(gather, within, 17, 1);      // is packed
  add(gather, 0, 1, 1);            // of several programs
  add(gather, 0, 1, 1);
  add(gather, within, 1, 1);
  std::vector<uint8_t> bytes = plan::packPlan(plan);
  const fb::Plan &packed = *fb::GetPlan(bytes.data());
  const auto &functions = *packed.programs()->Get(0)->functions();
  EXPECT_EQ(plan::batchGathers(plan::RankGrid(packed), 0,
                               *functions[functions.size() - 1]),
            std::vector<uint32_t>({1, 1, 2, 3, 4, 5, 6, 7, 8}));
}
#endif
