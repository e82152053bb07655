//===- BesideMatmulsTest.cpp - What GPUs do beside a matmul ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which matmuls leave multiprocessors to what ranks tell each other, in plans
// and on the stand-ins, which count what they are told.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/BesideMatmuls.h"

#include "CudaPlan.h"
#include "TrainSteps.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Weights.h"

#include <cstdlib>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

#ifdef PLAIT_PLAITC
/// A small model on GPUs of 132 multiprocessors.
class BesideMatmuls : public ::testing::Test {
protected:
  BesideMatmuls() { setenv("PLAIT_FAKE_MULTIPROCESSORS", "132", 1); }
  ~BesideMatmuls() override { unsetenv("PLAIT_FAKE_MULTIPROCESSORS"); }

  void compile(const std::string &layout) {
    std::string directory = makeDirectory();
    bytes = plan::packPlan(toCuda(
        compilePlan(PLAIT_MODEL,
                    "--seq 16 --global-batch 4 --micro-batch 2 --no-prove "
                    "--no-reference " +
                        layout,
                    directory + "/model.plan"),
        directory));
  }
  const fb::Plan &plan() const { return *fb::GetPlan(bytes.data()); }

  /// How many matmuls of the first program have so many blocks beside them, of
  /// collectives of 8 blocks and receives of 4.
  std::map<uint32_t, int> count(uint32_t ahead = 32) const {
    const fb::Program &program = *plan().programs()->Get(0);
    std::map<uint32_t, int> counts;
    for (auto [gemm, blocks] : plan::findBlocksBeside(
             plan(), program, plan::chooseStreams(plan(), program), {8, 4},
             ahead))
      ++counts[blocks];
    return counts;
  }

  /// Three steps, each rank on a GPU of its own.
  std::vector<StepMetrics> train(uint32_t blocks) {
    ExecutorOptions options;
    options.collectiveBlocks = blocks;
    options.timeLimit = std::chrono::seconds(20);
    auto executor = Executor::create(plan(), options);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    if (!executor.ok() || !initializeWeights(**executor, 7).ok())
      return {};
    auto metrics = trainThreeSteps(**executor, plan());
    EXPECT_TRUE(metrics.ok()) << metrics.status().message();
    return metrics.ok() ? *metrics : std::vector<StepMetrics>();
  }

  static uint64_t gemmsOn(int multiprocessors) {
    return findFake<uint64_t(int)>("plaitFakeGemmsOn")(multiprocessors);
  }
  static uint64_t commsWith(int blocks) {
    return findFake<uint64_t(int)>("plaitFakeCommsWith")(blocks);
  }

  std::vector<uint8_t> bytes;
};

/// Pieces of sums over tp, but for the first of each matmul's.
TEST_F(BesideMatmuls, ArePiecesOfTensorParallelism) {
  compile("--mesh tp=2 --tp-comm-overlap 2");
  auto counts = count();
  EXPECT_EQ(counts.size(), 1u);
  EXPECT_GT(counts[8], 0);
  auto expected = train(0);
  uint64_t before = gemmsOn(124), groups = commsWith(8);
  EXPECT_EQ(train(8), expected);
  EXPECT_GT(gemmsOn(124), before);
  EXPECT_GT(commsWith(8), groups);
}

/// A stage waits for the next microbatch while it computes one, and for no
/// longer than it is let.
TEST_F(BesideMatmuls, AreThoseBesideReceives) {
  compile("--mesh pp=2");
  auto counts = count();
  EXPECT_GT(counts[4] + counts[2], 0);
  EXPECT_FALSE(counts.contains(8));
  EXPECT_TRUE(count(0).empty());
  auto expected = train(0);
  EXPECT_EQ(train(8), expected);
}

/// Sums of replicas are short, and ranks alone hear of nobody. What is not
/// asked for is told nobody.
TEST_F(BesideMatmuls, AreNoOthers) {
  for (const char *layout :
       {"--mesh dp=2", "--mesh dp=2 --zero 3", "--mesh 1"}) {
    compile(layout);
    EXPECT_TRUE(count().empty()) << layout;
  }
  compile("--mesh tp=2 --tp-comm-overlap 2");
  uint64_t told = gemmsOn(124), bounded = commsWith(8);
  train(0);
  EXPECT_EQ(gemmsOn(124), told);
  EXPECT_EQ(commsWith(8), bounded);
}

TEST_F(BesideMatmuls, KeepHalfOfTheGpu) {
  compile("--mesh tp=2 --tp-comm-overlap 2");
  ExecutorOptions options;
  options.collectiveBlocks = 67;
  auto executor = Executor::create(plan(), options);
  ASSERT_FALSE(executor.ok());
  EXPECT_NE(executor.status().message().find(
                "`collective-blocks` is 67, at most 66 of the 132 "
                "multiprocessors of GPU 0 (Fake) may be taken from matmuls"),
            std::string::npos)
      << executor.status().message();
}
#endif

} // namespace
