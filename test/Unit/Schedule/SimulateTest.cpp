//===- SimulateTest.cpp - Simulated times against published ones ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Simulate.h"
#include "plait/Schedule/Generators.h"

#include <gtest/gtest.h>

#include <limits>

using namespace plait;
using namespace plait::schedule;

namespace {

Timeline run(const char *kind, const Problem &problem, const Costs &costs) {
  auto schedule = generate(kind, problem);
  EXPECT_TRUE(schedule.ok());
  auto timeline = simulate(*schedule, costs);
  EXPECT_TRUE(timeline.ok());
  // The receives and sends that a plan executes cost what they stand for.
  auto complete = simulate(insertTransfers(*schedule), costs);
  EXPECT_TRUE(complete.ok());
  EXPECT_EQ(timeline->span, complete->span);
  return *timeline;
}

// Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024: measured times of
// the passes in milliseconds and the bubble rate of 1F1B given for them.
TEST(Simulate, PublishedBubbleRates) {
  struct Row {
    uint32_t stages, microbatches;
    Costs costs;
    double bubbleRate;
  };
  const Row rows[] = {
      {8, 24, {18.522, 18.086, 9.337, 0.601}, 0.2431},
      {8, 32, {18.513, 18.086, 9.331, 0.626}, 0.1985},
      {8, 64, {18.546, 18.097, 9.321, 0.762}, 0.1240},
      {16, 48, {11.347, 11.248, 8.132, 0.377}, 0.2552},
      {16, 64, {11.307, 11.254, 8.101, 0.379}, 0.2082},
      {16, 128, {11.325, 11.308, 8.109, 0.378}, 0.1251},
  };
  for (const Row &row : rows)
    EXPECT_NEAR(
        run("1f1b", {row.stages, 1, row.microbatches}, row.costs).bubbleRate,
        row.bubbleRate, 0.00005)
        << row.stages << " stages, " << row.microbatches << " microbatches";
}

// Equal stages, free transfers: (P - 1) / (M + P - 1).
TEST(Simulate, BubbleFormula) {
  for (const char *kind : {"gpipe", "1f1b"})
    for (uint32_t p : {4, 16})
      for (uint32_t m : {4, 16, 64, 256})
        EXPECT_NEAR(run(kind, {p, 1, m}, {1, 1, 1, 0}).bubbleRate,
                    (p - 1.0) / (m + p - 1.0), 1e-12)
            << kind << " " << p << " " << m;
}

TEST(Simulate, Times) {
  auto schedule = parseSchedule({2, 1, 1}, "", "F0 B0\nF0 I0 W0");
  ASSERT_TRUE(schedule.ok());
  auto timeline = simulate(*schedule, {1, 2, 4, 0.5});
  ASSERT_TRUE(timeline.ok());
  EXPECT_EQ(timeline->ranks[1][0].start, 1.5);
  EXPECT_EQ(timeline->ranks[1][2].end, 8.5);
  EXPECT_EQ(timeline->ranks[0][1].start, 5); // I0 ends at 4.5
  EXPECT_EQ(timeline->makespan, 11);
  EXPECT_EQ(timeline->span, 11);
}

TEST(Simulate, NoCosts) {
  EXPECT_EQ(run("1f1b", {2, 1, 2}, {0, 0, 0, 0}).bubbleRate, 0);
}

TEST(Simulate, Errors) {
  auto schedule = generate("1f1b", {2, 1, 2});
  ASSERT_TRUE(schedule.ok());
  auto errorOf = [&](const Costs &costs) {
    return simulate(*schedule, costs).status().message();
  };
  EXPECT_EQ(errorOf({-1, 1, 1, 0}),
            "cost of forward is -1, expected 0 to 1e+12");
  EXPECT_EQ(errorOf({1, 1e13, 1, 0}),
            "cost of backward input is 1e+13, expected 0 to 1e+12");
  double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(errorOf({1, 1, infinity, 0}),
            "cost of backward weight is inf, expected 0 to 1e+12");
  double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(errorOf({1, 1, 1, nan}),
            "cost of transfer is nan, expected 0 to 1e+12");
  schedule->ranks[0].pop_back();
  EXPECT_EQ(errorOf(Costs{}), "rank 0: B1 is missing");
}

} // namespace
