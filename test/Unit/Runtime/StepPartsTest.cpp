//===- StepPartsTest.cpp - Recorded steps in several parts ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On the stand-ins for the driver and NCCL, which refuse events of another
// recording and run the branches of a graph in any order.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/StepParts.h"

#include "CudaPlan.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Ranks.h"
#include "plait/Runtime/Device.h"
#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Weights.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

class StepParts : public ::testing::Test {
protected:
  static constexpr uint64_t steps = 4;

  StepParts() {
    fb::PlanT plan = makePlan();
    fb::CodeObjectT &code = append(plan.code);
    code.target = "x86_64";
    code.data = readFile(PLAIT_TEST_KERNELS);
    bytes = plan::packPlan(toCuda(std::move(plan), makeDirectory()));
    options.timeLimit = std::chrono::seconds(20);
  }

  const fb::Plan &plan() const { return *fb::GetPlan(bytes.data()); }

  plan::StepCuts cut(uint32_t most) const {
    auto messages = plan::matchMessages(plan());
    EXPECT_TRUE(messages.ok());
    return plan::cutSteps(plan(), *messages, most);
  }

  /// What is in the arenas of all ranks after some steps.
  std::vector<std::vector<std::byte>> train() {
    auto executor = Executor::create(plan(), options);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    EXPECT_TRUE(initializeWeights(**executor, 7).ok());
    auto batches = Batches::random(5, plan());
    StepScalars scalars = {1e-3f, 0.9f, 0.999f, 1e-8f,
                           0.01f, 1.0f, 0.1f,   0.001f};
    for (uint64_t step = 1; step <= steps; ++step) {
      auto metrics = (*executor)->runStep(step, *batches, scalars);
      EXPECT_TRUE(metrics.ok()) << metrics.status().message();
    }
    std::vector<std::vector<std::byte>> arenas((*executor)->ranks().size());
    Status status = (*executor)->forEachRank([&](uint32_t rank) {
      const auto &program =
          *plan().programs()->Get(plan::RankGrid(plan()).index(rank, 0));
      arenas[rank].resize(program.library_workspace());
      return (*executor)->device(rank).read(0, arenas[rank]);
    });
    EXPECT_TRUE(status.ok()) << status.message();
    return arenas;
  }

  /// Counts what the stand-in was given to replay.
  static uint64_t countLaunches() {
    return findFake<uint64_t()>("plaitFakeGraphLaunches")();
  }

  std::vector<uint8_t> bytes;
  ExecutorOptions options;
};

} // namespace

/// Small parts, and the bits of walked steps, whatever branch runs first.
TEST_F(StepParts, ComputeWhatOneDoes) {
  options.cudaGraph = false;
  std::vector<std::vector<std::byte>> walked = train();
  options.cudaGraph = true;
  options.graphOperations = 0;
  uint64_t before = countLaunches();
  EXPECT_TRUE(train() == walked);
  uint64_t whole = countLaunches() - before;
  options.graphOperations = 1;
  size_t cuts = 0;
  plan::StepCuts all = cut(1);
  plan::RankGrid mesh(plan());
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
    cuts += all[mesh.index(rank, 0)].size();
  EXPECT_GT(cuts, 0u);
  for (const char *hasty : {"0", "1"}) {
    setenv("PLAIT_FAKE_HASTY", hasty, 1);
    before = countLaunches();
    EXPECT_TRUE(train() == walked);
    // The first step is walked.
    EXPECT_EQ(countLaunches() - before, whole + (steps - 1) * cuts);
  }
  unsetenv("PLAIT_FAKE_HASTY");
}

TEST_F(StepParts, AreWholeWhereTheyAreSmall) {
  for (const auto &cuts : cut(20'000))
    EXPECT_TRUE(cuts.empty());
}
