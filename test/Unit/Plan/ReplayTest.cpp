//===- ReplayTest.cpp - When the actions of a plan run --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Times of the test plan, worked out by hand. Deadlocks are CheckTest's.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Replay.h"
#include "plait/Support/Collectives.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::test;
using plan::ActionTime;

namespace {

/// When an action starts and ends.
struct Intervals {
  const plan::Replayed &replayed;

  std::pair<double, double> operator()(uint32_t program,
                                       uint32_t action) const {
    const ActionTime &time = replayed.programs[program][action];
    return {time.start, time.end};
  }
};

class ReplayTest : public ::testing::Test {
protected:
  fb::PlanT source = makePlan();
  std::vector<uint8_t> bytes;
  plan::ReplayCosts costs;

  ReplayTest() {
    costs.steps = {{{2, 1, 3}, {1, 10}}, {{1, 4}, {1, 10}}};
    costs.messages = {2, 2};
  }

  /// What is wrong; empty: nothing.
  std::string findFailure(decltype(plan::replay) *by) {
    bytes = plan::packPlan(source);
    const fb::Plan &plan = *fb::GetPlan(bytes.data());
    auto messages = plan::matchMessages(plan);
    EXPECT_TRUE(messages.ok());
    auto replayed = by(plan, *messages, costs);
    return replayed.ok() ? "" : replayed.status().message();
  }

  plan::Replayed replay(const plan::ReplayCosts &costs,
                        decltype(plan::replay) *by = plan::replay) {
    bytes = plan::packPlan(source);
    const fb::Plan &plan = *fb::GetPlan(bytes.data());
    auto messages = plan::matchMessages(plan);
    EXPECT_TRUE(messages.ok());
    auto replayed = by(plan, *messages, costs);
    EXPECT_TRUE(replayed.ok()) << replayed.status().message();
    return std::move(*replayed);
  }
};

// Stage 0: F0 SEND0 F1 SEND1 WAIT0 WAIT1 FINISH, F of gemm 2, sum over tp 1 and
// kernel 3. Stage 1: RECV0 F0 RECV1 F1 FINISH, F of fill 1 and kernel 4.
// FINISH: copy 1, then the maximum over pp, 10.
TEST_F(ReplayTest, FollowsMessagesAndMeetings) {
  plan::Replayed replayed = replay(costs);
  Intervals interval = {replayed};
  EXPECT_EQ(interval(0, 0), std::pair(0., 6.));
  EXPECT_EQ(interval(0, 2), std::pair(6., 12.));
  // Received at 8, before anybody asks.
  EXPECT_EQ(interval(0, 4), std::pair(12., 12.));
  EXPECT_EQ(interval(0, 5), std::pair(12., 15.));
  EXPECT_EQ(interval(1, 0), std::pair(0., 8.));
  EXPECT_EQ(interval(1, 1), std::pair(8., 13.));
  EXPECT_EQ(interval(1, 2), std::pair(13., 15.));
  EXPECT_EQ(interval(1, 3), std::pair(15., 20.));
  // Stage 0 is there at 16, stage 1 at 21.
  EXPECT_EQ(interval(0, 6), std::pair(15., 31.));
  EXPECT_EQ(interval(1, 4), std::pair(20., 31.));
  EXPECT_EQ(replayed.seconds, 31);
}

TEST_F(ReplayTest, TellsWorkFromWaiting) {
  plan::Replayed replayed = replay(costs);
  const ActionTime &forward = replayed.programs[0][0];
  EXPECT_EQ(forward.computing, 5);
  EXPECT_EQ(forward.communicating, 1);
  EXPECT_EQ(forward.waiting(), 0);
  const ActionTime &receive = replayed.programs[1][0];
  EXPECT_EQ(receive.communicating, 2);
  EXPECT_EQ(receive.waiting(), 6);
  const ActionTime &finish = replayed.programs[0][6];
  EXPECT_EQ(finish.computing, 1);
  EXPECT_EQ(finish.communicating, 10);
  EXPECT_EQ(finish.waiting(), 5);
}

TEST_F(ReplayTest, NothingTakesTimeWithoutCosts) {
  EXPECT_EQ(replay({}).seconds, 0);
  EXPECT_EQ(replay({}, plan::replayStreams).seconds, 0);
}

TEST_F(ReplayTest, TheTimesOfARankAddUp) {
  plan::Replayed replayed = replay(costs);
  EXPECT_EQ(replayed.ranks[0].computing, 11);
  EXPECT_EQ(replayed.ranks[0].communicating, 12);
  EXPECT_EQ(replayed.ranks[0].hidden, 0);
  EXPECT_EQ(replayed.ranks[1].communicating, 14);
}

// As above, in streams. The kernel of F needs the sum. Computing of stage 0:
// gemm 0-2, kernel 3-6, gemm 6-8, kernel 9-12, copy 12-13. Messages are sent
// when the kernel is over and received at once: 6-8, 12-14. Stage 1: fill 0-1,
// which waits for nothing, kernel 8-12, fill 12-13, kernel 14-18, copy 18-19,
// and the maximum at both, 19-29.
TEST_F(ReplayTest, StreamsGoOnBesideEachOther) {
  source.backend = "cuda";
  plan::Replayed replayed = replay(costs, plan::replayStreams);
  Intervals interval = {replayed};
  EXPECT_EQ(interval(0, 0), std::pair(0., 6.));
  EXPECT_EQ(interval(0, 1), std::pair(6., 8.));  // Send, while
  EXPECT_EQ(interval(0, 2), std::pair(6., 12.)); // F1
  EXPECT_EQ(interval(1, 0), std::pair(6., 8.));
  EXPECT_EQ(interval(1, 1), std::pair(0., 12.));
  EXPECT_EQ(interval(1, 3), std::pair(12., 18.));
  EXPECT_EQ(interval(0, 6), std::pair(12., 13.));
  EXPECT_EQ(interval(1, 4), std::pair(18., 19.));
  EXPECT_EQ(replayed.seconds, 29);
  // Of the first F, 1 s is the sum that its kernel waits for.
  EXPECT_EQ(replayed.programs[0][0].computing, 5);
  EXPECT_EQ(replayed.programs[0][0].communicating, 1);
  EXPECT_EQ(replayed.programs[0][0].waiting(), 0);
  // Its second stage waits from 1 to 8, 2 s of it for the message on its way.
  EXPECT_EQ(replayed.programs[1][1].communicating, 2);
  EXPECT_EQ(replayed.programs[1][1].waiting(), 5);
  // Stage 0 has 2 sums, and the second half of a message, before it the
  // maximum; the first message is behind F1 and the copy is beside the other.
  EXPECT_EQ(replayed.ranks[0].computing, 11);
  EXPECT_EQ(replayed.ranks[0].communicating, 13);
  EXPECT_EQ(replayed.ranks[0].hidden, 3);
}

// Of two gathers that GPUs launch together the first reads a weight, the second
// what the kernel makes by 6: both begin then, with the next gemm beside them.
TEST_F(ReplayTest, GathersOfOneLaunchWaitForEachOther) {
  source.backend = "cuda";
  auto &steps = source.programs[0]->functions[0]->steps;
  const fb::CollectiveStepT &sum = *steps[1]->step.AsCollectiveStep();
  const fb::Ref weight = *steps[0]->step.AsGemmStep()->b;
  auto gather = [&](const fb::Ref &from) {
    fb::CollectiveStepT step = sum;
    step.kind = uint8_t(CollectiveKind::AllGather);
    step.outer = step.chunk = 1;
    step.input = std::make_unique<fb::Ref>(from);
    // Where nothing else is.
    step.output = std::make_unique<fb::Ref>(weight.offset() + 128, -1);
    return step;
  };
  fb::CollectiveStepT first = gather(weight), second = gather(*sum.input);
  append(steps).step.Set(std::move(first));
  append(steps).step.Set(std::move(second));
  costs.steps[0][0].insert(costs.steps[0][0].end(), {4, 0});
  plan::Replayed replayed = replay(costs, plan::replayStreams);
  EXPECT_EQ(replayed.operations[0][3].seconds, 4);
  EXPECT_EQ(replayed.operations[0][3].hidden, 2);
  EXPECT_EQ(replayed.operations[0][4].seconds, 0);
}

// A group that lists all members is the group that lists none: what follows the
// maximum, which both reach by 19, begins at 29.
TEST_F(ReplayTest, GroupsMeetHoweverTheyAreWritten) {
  source.backend = "cuda";
  for (uint32_t program = 0; program < 2; ++program) {
    auto &steps = source.programs[program]->functions[1]->steps;
    append(steps).step.Set(fb::CopyStepT(*steps[0]->step.AsCopyStep()));
    costs.steps[program][1].push_back(5);
  }
  source.programs[1]->functions[1]->steps[1]->step.AsCollectiveStep()->members =
      {};
  plan::Replayed replayed = replay(costs, plan::replayStreams);
  Intervals interval = {replayed};
  EXPECT_EQ(interval(0, 6), std::pair(12., 34.));
  EXPECT_EQ(interval(1, 4), std::pair(18., 34.));
}

// Both messages are sent before one is waited for, which is no circle where
// they are copied; GPUs do the first of a route before the second.
TEST_F(ReplayTest, TellsACircleOfStreams) {
  std::swap(source.programs[1]->actions[0], source.programs[1]->actions[2]);
  EXPECT_EQ(findFailure(plan::replay), "");
  source.backend = "cuda";
  EXPECT_EQ(findFailure(plan::replayStreams),
            "the plan's operations wait for each other in a circle");
}

// A processor's messages are taken by its first stream, and its kernels wait
// for the sums, so that nothing is hidden, in whichever stream the sums are.
TEST_F(ReplayTest, ProcessorsTakeMessagesWhereTheyCompute) {
  for (const char *axis : {"tp", "dp"}) {
    source.mesh[1]->name = axis;
    plan::Replayed replayed = replay(costs, plan::replayStreams);
    EXPECT_EQ(replayed.seconds, 31);
    EXPECT_EQ(replayed.ranks[0].computing, 11);
    EXPECT_EQ(replayed.ranks[0].hidden, 0);
  }
}

} // namespace
