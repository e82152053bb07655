//===- NamedRangesTest.cpp - What profilers are told ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On the stand-in for a profiler, which attaches as NVTX asks of one.
//
//===----------------------------------------------------------------------===//

#include "Core/NamedRange.h"
#include "CudaPlan.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Streams.h"
#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Weights.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

class NamedRanges : public ::testing::Test {
protected:
  NamedRanges() {
    fb::PlanT made = makePlan();
    fb::CodeObjectT &code = append(made.code);
    code.target = "x86_64";
    code.data = readFile(PLAIT_TEST_KERNELS);
    made = toCuda(std::move(made), makeDirectory());
    for (auto &program : made.programs) {
      // An update of a weight.
      fb::FillStepT fill;
      fill.target =
          std::make_unique<fb::Ref>(program->shards.front()->weight, -1);
      fill.bytes = sizeof(float);
      append(program->functions.back()->steps).step.Set(std::move(fill));
      // One step of each function is from nowhere.
      for (auto &function : program->functions)
        function->steps.back()->location = 7;
    }
    bytes = plan::packPlan(made);
    options.timeLimit = std::chrono::seconds(20);
  }

  void SetUp() override {
    if (!NamedRange::areWanted())
      GTEST_SKIP() << "built without NVTX";
  }

  const fb::Plan &plan() const { return *fb::GetPlan(bytes.data()); }

  std::unique_ptr<Executor> createExecutor() {
    auto executor = Executor::create(plan(), options);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    EXPECT_TRUE(initializeWeights(**executor, 7).ok());
    return std::move(*executor);
  }

  /// Returns the ranges of a step, a block of lines for each rank.
  std::string run(Executor &executor, uint64_t number,
                  StepScope scope = StepScope::Train) {
    auto batches = Batches::random(5, plan());
    StepScalars scalars = {1e-3f, 0.9f, 0.999f, 1e-8f,
                           0.01f, 1.0f, 0.1f,   0.001f};
    findFake<void()>("plaitFakeBeginRanges")();
    auto metrics = executor.runStep(number, *batches, scalars, scope);
    succeeded = metrics.ok();
    return findFake<const char *()>("plaitFakeRanges")();
  }

  /// The lines of a step that is walked, from the plan.
  std::string getWalked(uint32_t rank, const std::string &name) const {
    std::string lines = "rank " + std::to_string(rank) + ", " + name + "\n";
    plan::RankGrid mesh(plan());
    const fb::Program &program = *plan().programs()->Get(mesh.index(rank, 0));
    for (const fb::Action *action : *program.actions()) {
      lines += " " + plan::nameOf(*action) + "\n";
      if (plan::isTransfer(*action))
        continue;
      for (const fb::Step *step :
           *program.functions()->Get(action->function())->steps())
        lines += "  " +
                 (step->location() ? plan::nameOf(*step) : "test.mlir:1:1") +
                 "\n";
    }
    return lines;
  }

  /// Expects that `found` are such blocks of all ranks, in any order.
  void expectBlocks(std::string found,
                    const std::function<std::string(uint32_t)> &getBlock) {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      std::string block = getBlock(rank);
      size_t at = found.find(block);
      ASSERT_NE(at, std::string::npos) << block << "is not in\n" << found;
      found.erase(at, block.size());
    }
    EXPECT_EQ(found, "");
  }

  std::vector<uint8_t> bytes;
  ExecutorOptions options;
  bool succeeded = false;
};

} // namespace

/// A step that is walked, and one that is recorded, have a range for each
/// action and step; in one that is replayed nothing is called but its graph.
TEST_F(NamedRanges, AreOfWhatIsCalled) {
  auto executor = createExecutor();
  for (uint64_t step : {1, 2}) {
    std::string name = "step " + std::to_string(step);
    expectBlocks(run(*executor, step),
                 [&](uint32_t rank) { return getWalked(rank, name); });
    EXPECT_TRUE(succeeded);
  }
  expectBlocks(run(*executor, 3), [](uint32_t rank) {
    return "rank " + std::to_string(rank) + ", step 3\n";
  });
}

/// An evaluation passes over what it does not need.
TEST_F(NamedRanges, AreOfWhatAnEvaluationDoes) {
  auto executor = createExecutor();
  std::string found = run(*executor, 9, StepScope::Evaluate);
  EXPECT_TRUE(succeeded);
  EXPECT_NE(found.find("rank 0, evaluation 9\n Forward 0\n"), std::string::npos)
      << found;
  EXPECT_NE(getWalked(0, "").find("  FillStep\n"), std::string::npos);
  EXPECT_EQ(found.find("  FillStep\n"), std::string::npos) << found;
}

TEST_F(NamedRanges, EndWhereAStepFails) {
  options.cudaGraph = false;
  auto executor = createExecutor();
  setenv("PLAIT_FAKE_BROKEN_GPU", "0", 1);
  std::string found = run(*executor, 1);
  unsetenv("PLAIT_FAKE_BROKEN_GPU");
  EXPECT_FALSE(succeeded);
  EXPECT_NE(found.find("rank 0, step 1\n"), std::string::npos);
  EXPECT_EQ(found.find("broken"), std::string::npos) << found;
}
