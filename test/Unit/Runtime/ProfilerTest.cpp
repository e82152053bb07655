//===- ProfilerTest.cpp - Measured steps ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rank 1, of the first stage, sleeps in its kernel: the one thing whose time is
// known. Machines are late, never early, so that lower bounds are exact and
// upper ones have to be generous.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Profiler.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Executor.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

constexpr double sleepSeconds = 0.05;

class ProfilerTest : public ::testing::Test {
protected:
  std::vector<uint8_t> bytes;

  ProfilerTest() {
    fb::PlanT source = makePlan();
    fb::CodeObjectT &code = append(source.code);
    code.target = "x86_64";
    code.data = readFile(PLAIT_TEST_KERNELS);
    source.kernels[0]->symbol = "plait_test_sleep";
    source.programs[0]->functions[0]->steps[2]->step.AsKernelStep()->scalars = {
        fb::RankScalar(0, int64_t(1000 * sleepSeconds), 1, false)};
    bytes = plan::packPlan(source);
  }
  const fb::Plan &plan() const { return *fb::GetPlan(bytes.data()); }

  Result<plan::Profile> measure(uint64_t steps) {
    Profiler profiler(plan(), 0xabc, 4, steps);
    StepNotes notes(plan(), /*overlaps=*/false);
    ExecutorOptions options;
    options.notes = &notes;
    auto executor = Executor::create(plan(), options);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    std::string path = makeDirectory() + "/text";
    writeFile(path, {3, 4, 5, 6, 7, 8, 9, 10, 11});
    auto batches = Batches::fromText(path, plan());
    EXPECT_TRUE(batches.ok());
    for (uint64_t step = 1; step <= steps; ++step) {
      auto start = std::chrono::steady_clock::now();
      EXPECT_TRUE((*executor)->runStep(step, *batches, {}).ok());
      EXPECT_TRUE(notes.collect(nullptr).ok());
      profiler.add(step,
                   std::chrono::duration<double>(
                       std::chrono::steady_clock::now() - start)
                       .count(),
                   notes);
    }
    return profiler.finish();
  }
};

TEST_F(ProfilerTest, HasTheShapeOfThePlan) {
  auto profile = measure(3);
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_EQ(profile->plan, "xxh3-0000000000000abc");
  EXPECT_EQ(profile->steps, 2u); // without the first
  EXPECT_EQ(profile->threads, 4u);
  ASSERT_EQ(profile->programs.size(), 2u);
  const plan::ProgramProfile &first = profile->programs[0];
  EXPECT_EQ(first.arenaBytes, plan().programs()->Get(0)->arena_bytes());
  ASSERT_EQ(first.functions.size(), 2u);
  EXPECT_EQ(first.functions[0].calls, 2u);
  EXPECT_EQ(first.functions[0].steps[0].kind, "GemmStep");
  EXPECT_EQ(first.functions[0].steps[0].location, "test.mlir:1:1");
  EXPECT_EQ(first.functions[1].action, fb::ActionKind::Optimizer);
  ASSERT_EQ(first.transfers.size(), 2u); // Send and WaitSend, two of each
  EXPECT_EQ(first.transfers[0].kind, fb::ActionKind::Send);
  EXPECT_EQ(first.transfers[0].calls, 2u);
  EXPECT_EQ(first.transfers[0].bytes, 72u);
  EXPECT_EQ(profile->programs[1].transfers[0].kind, fb::ActionKind::Recv);
}

// Two microbatches: the sleeper is late for the second sum over tp and for both
// messages.
TEST_F(ProfilerTest, TellsWorkFromWaiting) {
  auto profile = measure(3);
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  const auto &steps = profile->programs[0].functions[0].steps;
  // One of two ranks sleeps.
  EXPECT_GE(steps[2].seconds, sleepSeconds / 2);
  EXPECT_EQ(steps[2].waiting, 0);
  // A sleeper needs no core.
  EXPECT_LT(steps[2].processor, sleepSeconds / 4);
  // One of two ranks waits, in one of two calls.
  EXPECT_GE(steps[1].waiting, 0.8 * sleepSeconds / 4);
  EXPECT_LT(steps[1].seconds, steps[1].waiting);
  const plan::TransferProfile &receive = profile->programs[1].transfers[0];
  EXPECT_GE(receive.waiting, 0.8 * sleepSeconds / 2);
  EXPECT_LT(receive.seconds, receive.waiting);
  // It sleeps twice a step.
  EXPECT_GE(profile->stepSeconds, 2 * sleepSeconds);
  EXPECT_LT(profile->overheadSeconds, sleepSeconds);
}

TEST_F(ProfilerTest, NeedsASecondStep) {
  auto profile = measure(1);
  ASSERT_FALSE(profile.ok());
  EXPECT_EQ(profile.status().message(),
            "a profile needs at least 2 steps: the first one is left out");
}

} // namespace
