//===- ChartTest.cpp - Schedules drawn as text ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Chart.h"
#include "plait/Schedule/Generators.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::schedule;

namespace {

std::string draw(const Schedule &schedule, const Costs &costs,
                 const ChartOptions &options) {
  auto timeline = simulate(schedule, costs);
  EXPECT_TRUE(timeline.ok());
  return drawChart(schedule, *timeline, options);
}

TEST(Chart, OneFOneB) {
  auto schedule = generate("1f1b", {2, 1, 3});
  ASSERT_TRUE(schedule.ok());
  const char *expected = "rank 0 |F0F1....B0==F2B1==..B2==|\n"
                         "rank 1 |..F0B0==F1B1==F2B2==....|\n"
                         "F forward, B backward, . idle; bubble 25.0 %\n";
  EXPECT_EQ(draw(*schedule, {}, {33, false}), expected);
  EXPECT_EQ(draw(insertTransfers(*schedule), {}, {33, false}), expected);
}

TEST(Chart, LettersWhereLabelsDoNotFit) {
  auto schedule = generate("1f1b", {2, 1, 3});
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(draw(*schedule, {}, {0, false}),
            "rank 0 |FF..BBBB.BB|\n"
            "rank 1 |.FBBFBFBB..|\n"
            "F forward, B backward, . idle; bubble 25.0 %\n");
}

TEST(Chart, SplitBackwardInColor) {
  auto schedule = parseSchedule({1, 1, 1}, "", "F0 I0 W0");
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(draw(*schedule, {}, {21, true}),
            "rank 0 |\033[30;44mF0  \033[0m\033[30;46mI0  \033[0m"
            "\033[30;43mW0  \033[0m|\n"
            "F forward, I input gradient, W weight gradient, . idle; bubble "
            "0.0 %\n");
}

TEST(Chart, WhatIsBesideAnActionIsDrawnBehindIt) {
  auto schedule = parseSchedule({1, 1, 1}, "", "F0 B0");
  ASSERT_TRUE(schedule.ok());
  Timeline timeline;
  timeline.ranks = {{{0, 4}, {2, 8}}};
  timeline.makespan = 8;
  EXPECT_EQ(drawChart(*schedule, timeline, {25, false}),
            "rank 0 |F0======B0======|\n"
            "F forward, B backward, . idle; bubble 0.0 %\n");
  // Over before the other one is.
  timeline.ranks = {{{0, 8}, {2, 4}}};
  EXPECT_EQ(drawChart(*schedule, timeline, {25, false}),
            "rank 0 |F0==============|\n"
            "F forward, B backward, . idle; bubble 0.0 %\n");
}

TEST(Chart, NoCosts) {
  auto schedule = generate("1f1b", {1, 1, 1});
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(draw(*schedule, {0, 0, 0, 0}, {20, false}),
            "rank 0 |...........|\n"
            "F forward, B backward, . idle; bubble 0.0 %\n");
}

} // namespace
