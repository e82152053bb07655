//===- TextTest.cpp - The text form of schedules --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Generators.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::schedule;

namespace {

TEST(Text, RoundTrip) {
  auto schedule = generate("1f1b", {4, 1, 6});
  ASSERT_TRUE(schedule.ok());
  Schedule complete = insertTransfers(*schedule);
  complete.ranks[1].insert(complete.ranks[1].begin(), {ActionKind::Gather});
  auto parsed = parseSchedule({4, 1, 6}, "1f1b", print(complete));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, complete);
}

TEST(Text, SplitBackwardAndChunks) {
  auto actions = parseActions("\t1F3  I3 0W3 1SEND_B2\r");
  ASSERT_TRUE(actions.ok());
  EXPECT_EQ(print(*actions), "1F3 I3 W3 1SEND_B2");
  EXPECT_EQ((*actions)[0].chunk, 1u);
  EXPECT_EQ((*actions)[1].kind, ActionKind::BackwardInput);
  auto schedule = placeActions({2, 2, 4}, "", {{}, *actions});
  ASSERT_TRUE(schedule.ok());
  // The gradient of chunk 1 on rank 1 goes to chunk 1 of the rank before.
  actions->back().peer = 0;
  EXPECT_EQ(schedule->ranks[1], *actions);
}

std::string errorOf(std::string_view text) {
  auto schedule = parseSchedule({2, 1, 4}, "", text);
  return schedule.ok() ? "ok" : schedule.status().message();
}

TEST(Text, Errors) {
  EXPECT_EQ(errorOf("F0\nB0 X1"),
            "rank 1, action 1: 'X1' is not a schedule action");
  EXPECT_EQ(errorOf("F\nF0"), "rank 0, action 0: 'F' is not a schedule action");
  EXPECT_EQ(errorOf("12\nF0"),
            "rank 0, action 0: '12' is not a schedule action");
  EXPECT_EQ(errorOf("REDUCE1\nF0"),
            "rank 0, action 0: 'REDUCE1' is not a schedule action");
  EXPECT_EQ(errorOf("0GATHER\nF0"),
            "rank 0, action 0: '0GATHER' is not a schedule action");
  EXPECT_EQ(errorOf("0REDUCE\nF0"),
            "rank 0, action 0: '0REDUCE' is not a schedule action");
  EXPECT_EQ(errorOf("F4\nF0"), "rank 0, action 0: 'F4' names microbatch 4, the "
                               "schedule has 4");
  EXPECT_EQ(errorOf("F99999999999\nF0"),
            "rank 0, action 0: 'F99999999999' has a number above 4294967295");
  EXPECT_EQ(errorOf("1F0\nF0"),
            "rank 0, action 0: '1F0' names chunk 1, the schedule has 1");
  EXPECT_EQ(errorOf("RECV_F0\nF0"), "rank 0, action 0: 'RECV_F0' on rank 0 has "
                                    "no other rank to exchange a message with");
  EXPECT_EQ(errorOf("F0"), "there are actions of 1 ranks, expected 2");
  EXPECT_EQ(errorOf("F0\nF0\nF0"), "there are actions of 3 ranks, expected 2");
}

} // namespace
