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

// Equal stages, free transfers: (P - 1) / (M + P - 1).
TEST(Simulate, BubbleFormula) {
  for (const char *kind : {"gpipe", "1f1b"})
    for (uint32_t p : {4, 16})
      for (uint32_t m : {4, 16, 64, 256})
        EXPECT_NEAR(run(kind, {p, 1, m}, {1, 1, 1, 0}).bubbleRate,
                    (p - 1.0) / (m + p - 1.0), 1e-12)
            << kind << " " << p << " " << m;
}

// (P - 1) / (P - 1 + V M) where P divides M.
TEST(Simulate, InterleavedBubbleFormula) {
  for (uint32_t v : {2, 4})
    for (uint32_t p : {4, 16})
      for (uint32_t m : {16, 64, 256})
        EXPECT_NEAR(run("interleaved-1f1b", {p, v, m}, {1, 1, 1, 0}).bubbleRate,
                    (p - 1.0) / (p - 1 + double(v) * m), 1e-12)
            << p << " " << v << " " << m;
}

// Qi et al. (ICLR 2024), Table 2, and (NeurIPS 2024) for the V.
TEST(Simulate, ZeroBubbleFormulas) {
  for (uint32_t p : {4, 8})
    for (uint32_t m : {2 * p, 3 * p + 1}) {
      double work = m * (4 + 3.5 + 1.5);
      Costs costs{4, 3.5, 1.5, 0};
      EXPECT_EQ(run("zb-h1", {p, 1, m}, costs).span,
                work + (p - 1) * (4 + 3.5 - 1.5));
      EXPECT_EQ(run("zb-h2", {p, 1, m}, costs).span,
                work + (p - 1) * (4 + 3.5 - 2 * 1.5));
      EXPECT_EQ(run("zb-h2", {p, 1, m}, {1, 1, 1, 0}).bubbleRate, 0);
      EXPECT_EQ(run("zb-v", {p, 2, m}, {1, 1, 1, 0}).bubbleRate, 0);
    }
}

TEST(Simulate, UnevenStages) {
  auto schedule = parseSchedule({2, 1, 1}, "", "F0 B0\nF0 I0 W0");
  ASSERT_TRUE(schedule.ok());
  Costs costs{9, 9, 4, 0.5, {1, 2}, {3, 5}};
  auto timeline = simulate(*schedule, costs);
  ASSERT_TRUE(timeline.ok());
  EXPECT_EQ(timeline->ranks[1][0].start, 1.5);
  EXPECT_EQ(timeline->ranks[1][1].start, 3.5);
  EXPECT_EQ(timeline->ranks[1][2].end, 12.5);
  EXPECT_EQ(timeline->ranks[0][1].start, 9);
  EXPECT_EQ(timeline->span, 16);
  // Rank 1 is the busier one: 2 + 5 + 4.
  EXPECT_EQ(timeline->bubbleRate, (16 - 11) / 16.0);

  costs.backwardInputs.push_back(1);
  EXPECT_EQ(simulate(*schedule, costs).status().message(),
            "costs of backward input are given for 3 virtual stages, expected "
            "2");
  costs.backwardInputs = {1, -2};
  EXPECT_EQ(simulate(*schedule, costs).status().message(),
            "cost of backward input is -2, expected 0 to 1e+12");
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
