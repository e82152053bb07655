//===- VerifyTest.cpp - Every way for a schedule to be unsound ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Verify.h"
#include "plait/Schedule/Generators.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::schedule;

namespace {

std::string messageOf(const Status &status) {
  return status.ok() ? "ok" : status.message();
}

/// Verifies a schedule of two ranks.
std::string check(std::string_view text, uint32_t microbatches = 1,
                  uint32_t chunks = 1, std::string kind = "") {
  auto schedule = parseSchedule({2, chunks, microbatches}, kind, text);
  if (!schedule.ok())
    return "parse: " + schedule.status().message();
  return messageOf(verify(*schedule));
}

const std::string first = "F0 SEND_F0 RECV_B0 B0 WAIT_F0 REDUCE OPTIMIZER\n";
const std::string second = "RECV_F0 F0 B0 SEND_B0 WAIT_B0 REDUCE OPTIMIZER\n";

TEST(Verify, Sound) {
  EXPECT_EQ(check("F0 B0\nF0 B0"), "ok");
  EXPECT_EQ(check("F0 I0 W0\nF0 B0"), "ok");
  EXPECT_EQ(check(first + second), "ok");
}

TEST(Verify, V1Shape) {
  Schedule schedule{{0, 1, 1}, "", {}};
  EXPECT_EQ(messageOf(verify(schedule)),
            "schedule has 0 stages, expected at least 1");
  schedule = {{2, 1, 1}, "", {{}}};
  EXPECT_EQ(messageOf(verify(schedule)),
            "schedule has lists for 1 ranks, expected 2");
}

/// Verifies one rank out of two that holds just `action`.
std::string checkAction(Action action) {
  return messageOf(verify(Schedule{{2, 1, 4}, "", {{action}, {}}}));
}

TEST(Verify, V1Actions) {
  EXPECT_EQ(checkAction({ActionKind::Forward, 2, 0}),
            "rank 0, action 0 (2F0): chunk 2 is out of range, the schedule has "
            "1");
  EXPECT_EQ(checkAction({ActionKind::Forward, 0, 4}),
            "rank 0, action 0 (F4): microbatch 4 is out of range, the schedule "
            "has 4");
  EXPECT_EQ(checkAction({ActionKind(17)}), "rank 0, action 0: unknown kind 17");
  EXPECT_EQ(checkAction({ActionKind::Send, 0, 0, Direction(9), 1}),
            "rank 0, action 0: unknown direction 9");
  EXPECT_EQ(checkAction({ActionKind::Send, 0, 0, Direction::Backward, 1}),
            "rank 0, action 0 (SEND_B0): no other rank holds the neighbouring "
            "stage");
  EXPECT_EQ(checkAction({ActionKind::Send, 0, 0, Direction::Forward, 7}),
            "rank 0, action 0 (SEND_F0): peer is rank 7, the neighbouring "
            "stage is on rank 1");
}

TEST(Verify, V2Twice) {
  EXPECT_EQ(check("F0 B0\nF0 F0 B0"),
            "rank 1, action 1 (F0): appears twice, first as action 0");
  EXPECT_EQ(check("F0 SEND_F0 SEND_F0\n" + second),
            "rank 0, action 2 (SEND_F0): appears twice, first as action 1");
  EXPECT_EQ(check("F0 REDUCE REDUCE\n" + second),
            "rank 0, action 2 (REDUCE): appears twice, first as action 1");
  EXPECT_EQ(check("F0 OPTIMIZER OPTIMIZER\n" + second),
            "rank 0, action 2 (OPTIMIZER): appears twice, first as action 1");
  EXPECT_EQ(check("GATHER GATHER F0\n" + second),
            "rank 0, action 1 (GATHER): appears twice, first as action 0");
}

TEST(Verify, V2Missing) {
  EXPECT_EQ(check("F0 B0 F1 B1\nF0 B0 B1", 2), "rank 1: F1 is missing");
  EXPECT_EQ(check("F0 B0 F1\nF0 B0 F1 B1", 2), "rank 0: B1 is missing");
  EXPECT_EQ(check("F0 W0\nF0 B0"), "rank 0: I0 is missing");
  EXPECT_EQ(check("F0 I0\nF0 B0"), "rank 0: W0 is missing");
  EXPECT_EQ(check("F0 B0\nF0 B0", 1, 2), "rank 0: 1F0 is missing");
}

TEST(Verify, V2WholeAndSplit) {
  EXPECT_EQ(check("F0 I0 W0 B0\nF0 B0"),
            "rank 0, action 3 (B0): the same backward is also split, see "
            "action 1 (I0)");
  EXPECT_EQ(check("F0 B0 W0\nF0 B0"),
            "rank 0, action 1 (B0): the same backward is also split, see "
            "action 2 (W0)");
}

TEST(Verify, V2MissingWhenComplete) {
  EXPECT_EQ(check("F0 RECV_B0 B0 REDUCE OPTIMIZER\n" + second),
            "rank 0: SEND_F0 is missing");
  EXPECT_EQ(check("F0 SEND_F0 B0 WAIT_F0 REDUCE OPTIMIZER\n" + second),
            "rank 0: RECV_B0 is missing");
  EXPECT_EQ(check("F0 SEND_F0 RECV_B0 B0 REDUCE OPTIMIZER\n" + second),
            "rank 0: WAIT_F0 is missing");
  EXPECT_EQ(check("F0 SEND_F0 RECV_B0 B0 WAIT_F0 OPTIMIZER\n" + second),
            "rank 0: REDUCE is missing");
  EXPECT_EQ(check(first + "RECV_F0 F0 B0 SEND_B0 WAIT_B0 REDUCE\n"),
            "rank 1: OPTIMIZER is missing");
}

TEST(Verify, V3Order) {
  auto before = [](const char *later, const char *earlier) {
    return std::string(later) + ": comes before action " + earlier +
           ", which it depends on";
  };
  EXPECT_EQ(check("B0 F0\nF0 B0"), before("rank 0, action 0 (B0)", "1 (F0)"));
  EXPECT_EQ(check("I0 F0 W0\nF0 B0"),
            before("rank 0, action 0 (I0)", "1 (F0)"));
  EXPECT_EQ(check("F0 W0 I0\nF0 B0"),
            before("rank 0, action 1 (W0)", "2 (I0)"));
  EXPECT_EQ(check("SEND_F0 F0 RECV_B0 B0 WAIT_F0 REDUCE OPTIMIZER\n" + second),
            before("rank 0, action 0 (SEND_F0)", "1 (F0)"));
  EXPECT_EQ(check("F0 WAIT_F0 SEND_F0 RECV_B0 B0 REDUCE OPTIMIZER\n" + second),
            before("rank 0, action 1 (WAIT_F0)", "2 (SEND_F0)"));
  EXPECT_EQ(check("F0 SEND_F0 B0 RECV_B0 WAIT_F0 REDUCE OPTIMIZER\n" + second),
            before("rank 0, action 2 (B0)", "3 (RECV_B0)"));
  EXPECT_EQ(
      check("F0 SEND_F0 I0 RECV_B0 W0 WAIT_F0 REDUCE OPTIMIZER\n" + second),
      before("rank 0, action 2 (I0)", "3 (RECV_B0)"));
  EXPECT_EQ(check(first + "F0 RECV_F0 B0 SEND_B0 WAIT_B0 REDUCE OPTIMIZER\n"),
            before("rank 1, action 0 (F0)", "1 (RECV_F0)"));
  EXPECT_EQ(check(first + "RECV_F0 F0 SEND_B0 B0 WAIT_B0 REDUCE OPTIMIZER\n"),
            before("rank 1, action 2 (SEND_B0)", "3 (B0)"));
  EXPECT_EQ(
      check(first + "RECV_F0 F0 SEND_B0 I0 W0 WAIT_B0 REDUCE OPTIMIZER\n"),
      before("rank 1, action 2 (SEND_B0)", "3 (I0)"));
  EXPECT_EQ(check(first + "RECV_F0 F0 B0 WAIT_B0 SEND_B0 REDUCE OPTIMIZER\n"),
            before("rank 1, action 3 (WAIT_B0)", "4 (SEND_B0)"));
}

TEST(Verify, V3Begin) {
  EXPECT_EQ(check("GATHER " + first + second), "ok");
  EXPECT_EQ(
      check("F0 GATHER SEND_F0 RECV_B0 B0 WAIT_F0 REDUCE OPTIMIZER\n" + second),
      "rank 0, action 1 (GATHER): comes after action 0 (F0)");
}

TEST(Verify, V3End) {
  EXPECT_EQ(check("F0 SEND_F0 RECV_B0 B0 WAIT_F0 OPTIMIZER REDUCE\n" + second),
            "rank 0, action 5 (OPTIMIZER): is not the last of 7 actions");
  EXPECT_EQ(check("F0 SEND_F0 RECV_B0 B0 REDUCE WAIT_F0 OPTIMIZER\n" + second),
            "rank 0, action 4 (REDUCE): comes before action 5 (WAIT_F0)");
}

// Rank 1 wants microbatch 1 first; rank 0 sends it only after a backward.
TEST(Verify, V4ComputeOrder) {
  EXPECT_EQ(check("F0 B0 F1 B1\nF1 B1 F0 B0", 2),
            "deadlock: rank 0, action 1 (B0) waits for rank 1, action 0 (F1)");
}

TEST(Verify, V4ChunksOfOneRank) {
  auto schedule = parseSchedule({1, 2, 1}, "", "1F0 F0 1B0 B0");
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(messageOf(verify(*schedule)),
            "deadlock: rank 0, action 0 (1F0) waits for rank 0, action 0 "
            "(1F0)");
}

// The same order is fine when sends are not waited for before the next one.
TEST(Verify, V4WaitSend) {
  EXPECT_EQ(check("F0 SEND_F0 WAIT_F0 F1 SEND_F1 WAIT_F1 RECV_B0 B0 RECV_B1 B1 "
                  "REDUCE OPTIMIZER\n"
                  "RECV_F1 F1 RECV_F0 F0 B0 SEND_B0 B1 SEND_B1 WAIT_B0 WAIT_B1 "
                  "REDUCE OPTIMIZER\n",
                  2),
            "deadlock: rank 0, action 2 (WAIT_F0) waits for rank 1, action 0 "
            "(RECV_F1)");
  EXPECT_EQ(check("F0 SEND_F0 F1 SEND_F1 WAIT_F0 WAIT_F1 RECV_B0 B0 RECV_B1 B1 "
                  "REDUCE OPTIMIZER\n"
                  "RECV_F1 F1 RECV_F0 F0 B0 SEND_B0 B1 SEND_B1 WAIT_B0 WAIT_B1 "
                  "REDUCE OPTIMIZER\n",
                  2),
            "ok");
}

/// Sound under any name; the bound of a generator's is asked apart.
TEST(Verify, NamedBound) {
  auto checkBound = [](const char *text, std::string kind) {
    EXPECT_EQ(check(text, 2, 1, kind), "ok");
    return messageOf(checkNamedBound(*parseSchedule({2, 1, 2}, kind, text)));
  };
  EXPECT_EQ(checkBound("F0 F1 B0 B1\nF0 F1 B0 B1", "gpipe"), "ok");
  EXPECT_EQ(checkBound("F0 F1 B0 B1\nF0 F1 B0 B1", "by hand"), "ok");
  EXPECT_EQ(checkBound("F0 F1 B0 B1\nF0 F1 B0 B1", "1f1b"),
            "rank 1: 2 microbatches are in flight, schedule 1f1b holds 1");
  // A split backward holds a share of its activations until the weight
  // gradient.
  EXPECT_EQ(checkBound("F0 F1 B0 B1\nF0 I0 F1 I1 W0 W1", "1f1b"),
            "rank 1: 1.5 microbatches are in flight, schedule 1f1b holds 1");
}

TEST(Verify, V5Limit) {
  auto schedule = parseSchedule({1, 1, 2}, "", "F0 I0 F1 I1 W0 W1");
  ASSERT_TRUE(schedule.ok());
  schedule->memory = {0.25, 1.25};
  EXPECT_EQ(messageOf(verify(*schedule)), "ok");
  schedule->memory = {0.5, 1.25};
  EXPECT_EQ(messageOf(verify(*schedule)),
            "rank 0: 1.5 microbatches are in flight, the memory limit is 1.25");
  schedule->memory = {1.5, 2};
  EXPECT_EQ(messageOf(verify(*schedule)),
            "weight share is 1.5, expected 0 to 1");
}

} // namespace
