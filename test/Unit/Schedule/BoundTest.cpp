//===- BoundTest.cpp - The lower bound against all schedules there are ----===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Bound.h"
#include "plait/Schedule/Generators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>

using namespace plait;
using namespace plait::schedule;

namespace {

/// All lists of one rank with F, I and W of each microbatch in order, and
/// microbatches in order in each kind.
void listAll(uint32_t m, std::array<uint32_t, 3> counts,
             std::vector<Action> &actions,
             std::vector<std::vector<Action>> &result) {
  constexpr ActionKind kinds[] = {ActionKind::Forward,
                                  ActionKind::BackwardInput,
                                  ActionKind::BackwardWeight};
  if (counts[2] == m)
    result.push_back(actions);
  for (uint32_t kind = 0; kind < 3; ++kind) {
    if (counts[kind] == (kind == 0 ? m : counts[kind - 1]))
      continue;
    actions.push_back({kinds[kind], 0, counts[kind]});
    ++counts[kind];
    listAll(m, counts, actions, result);
    --counts[kind];
    actions.pop_back();
  }
}

/// The least span of all combinations of such lists that keep the limit.
double findLeast(const Problem &problem, const GeneratorOptions &options) {
  std::vector<Action> actions;
  std::vector<std::vector<Action>> lists, fitting;
  listAll(problem.microbatches, {}, actions, lists);
  for (const std::vector<Action> &list : lists)
    if (options.memory.allows(peakActivations(
            Schedule{{1, 1, problem.microbatches}, "", {list}, options.memory},
            0)))
      fitting.push_back(list);
  double least = 1e300;
  std::vector<size_t> choice(problem.stages, 0);
  for (;;) {
    Schedule schedule{problem, ""};
    for (size_t index : choice)
      schedule.ranks.push_back(fitting[index]);
    auto timeline = simulate(schedule, options.costs);
    if (timeline.ok()) // no deadlock
      least = std::min(least, timeline->span);
    uint32_t rank = 0;
    while (rank < problem.stages && ++choice[rank] == fitting.size())
      choice[rank++] = 0;
    if (rank == problem.stages)
      return least;
  }
}

const Costs someCosts[] = {
    {1, 1, 1, 0},
    {18.522, 18.086, 9.337, 0.601},
    {1, 1.5, 0.3, 0.2},
    {2, 1, 1.5, 0},
    {1, 1, 1, 1.25},
    {1, 1, 1, 0.1, {1, 1.5, 0.5}, {2, 1, 1}, {0.5, 1, 1.25}},
    {1, 1, 1, 0, {0, 1, 2}, {1, 0, 1}, {0, 2, 0.5}},
};

/// How often what was compared was equal.
struct Tally {
  int cases = 0;
  int boundMet = 0;   // by the best schedule that there is
  int leastFound = 0; // by zb-auto
};

void compare(const Problem &problem, double limit, Costs costs, Tally &tally) {
  for (auto *uneven :
       {&costs.forwards, &costs.backwardInputs, &costs.backwardWeights})
    if (!uneven->empty())
      uneven->resize(problem.stages);
  GeneratorOptions options{costs, {0.5, limit}};
  auto bound = boundSpan(problem, costs, options.memory);
  auto schedule = generate("zb-auto", problem, options);
  ASSERT_TRUE(bound.ok() && schedule.ok());
  double least = findLeast(problem, options);
  double found = simulate(*schedule, costs)->span;
  double sum = 1e-9 * least; // added in another order
  EXPECT_LE(bound->span, least + sum);
  EXPECT_LE(least, found + sum);
  ++tally.cases;
  tally.boundMet += bound->span >= least - sum;
  tally.leastFound += found <= least + sum;
}

TEST(Bound, HoldsForAllSchedules) {
  std::vector<std::pair<Problem, double>> settings = {{{3, 1, 3}, 2.5}};
  for (double limit : {0.0, 1.0, 1.5, 2.0, 3.0})
    for (Problem problem : {Problem{2, 1, 1}, {2, 1, 2}, {2, 1, 3}, {3, 1, 2}})
      settings.push_back({problem, limit});
  Tally tally;
  for (auto [problem, limit] : settings)
    for (size_t i = 0; i < std::size(someCosts); ++i) {
      SCOPED_TRACE("stages " + std::to_string(problem.stages) +
                   ", microbatches " + std::to_string(problem.microbatches) +
                   ", limit " + std::to_string(limit) + ", costs " +
                   std::to_string(i));
      compare(problem, limit, someCosts[i], tally);
    }
  // A bound that proves too little or a search that finds too little shows as
  // well: at present each falls short in one of 147 cases.
  EXPECT_GE(tally.boundMet, tally.cases - 1);
  EXPECT_GE(tally.leastFound, tally.cases - 1);
}

// The time of one microbatch after the other, when memory holds only one.
TEST(Bound, LittleMemory) {
  auto bound = boundSpan({3, 1, 4}, {1, 2, 1, 0.5}, {0.5, 1});
  ASSERT_TRUE(bound.ok());
  EXPECT_DOUBLE_EQ(bound->span, 4 * (3 * 1 + 3 * 2 + 4 * 0.5 + 1));
}

TEST(Bound, Chunks) {
  auto bound = boundSpan({3, 2, 4}, {1, 2, 1, 0.5}, {});
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->span, 2 * 4 * (1 + 2 + 1));
  EXPECT_EQ(bound->bubbleRate, 0);
}

TEST(Bound, NoCosts) {
  auto bound = boundSpan({3, 1, 4}, {0, 0, 0, 0}, {0.5, 2});
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->span, 0);
  EXPECT_EQ(bound->bubbleRate, 0);
}

TEST(Bound, Errors) {
  EXPECT_EQ(boundSpan({0, 1, 4}, {}, {}).status().message(),
            "schedule has 0 stages, expected at least 1");
  EXPECT_EQ(boundSpan({3, 1, 4}, {-1, 1, 1, 0}, {}).status().message(),
            "cost of forward is -1, expected 0 to 1e+12");
  EXPECT_EQ(boundSpan({3, 1, 4}, {}, {2, 4}).status().message(),
            "weight share is 2, expected 0 to 1");
}

} // namespace
