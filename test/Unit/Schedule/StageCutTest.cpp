//===- StageCutTest.cpp - Which layers form a stage -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/StageCut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace plait;
using namespace plait::schedule;

namespace {

struct Row {
  std::vector<double> costs;
  double before = 0, after = 0;

  static Row make(std::mt19937 &generator, int layers, bool alike) {
    std::uniform_real_distribution<double> cost(0.5, 2);
    Row row{{}, cost(generator), 2 * cost(generator)};
    for (int i = 0; i < layers; ++i)
      row.costs.push_back(alike && i > 0 ? row.costs[0] : cost(generator));
    return row;
  }

  std::vector<int> cut(const Problem &problem) const {
    return cutStages(costs, before, after, problem);
  }
};

/// Seconds of the slowest rank.
double getSlowest(const Row &row, const Problem &problem,
                  const std::vector<int> &layers) {
  std::vector<double> ranks(problem.stages);
  size_t next = 0;
  for (uint32_t stage = 0; stage < layers.size(); ++stage) {
    double &load = ranks[problem.rankOf(stage)];
    load += stage == 0 ? row.before : 0;
    load += stage + 1 == layers.size() ? row.after : 0;
    for (int i = 0; i < layers[stage]; ++i)
      load += row.costs[next++];
  }
  EXPECT_EQ(next, row.costs.size());
  return *std::max_element(ranks.begin(), ranks.end());
}

/// The best of all cuts of `left` layers into what remains of `layers`.
double tryAllCuts(const Row &row, const Problem &problem,
                  std::vector<int> &layers, size_t stage, int left) {
  int behind = int(layers.size() - stage - 1);
  if (behind == 0) {
    layers[stage] = left;
    return getSlowest(row, problem, layers);
  }
  double best = 1e300;
  for (int count = 1; count <= left - behind; ++count) {
    layers[stage] = count;
    best = std::min(best,
                    tryAllCuts(row, problem, layers, stage + 1, left - count));
  }
  return best;
}

double tryAllCuts(const Row &row, const Problem &problem) {
  std::vector<int> layers(problem.virtualStages());
  return tryAllCuts(row, problem, layers, 0, int(row.costs.size()));
}

constexpr Placement placements[] = {Placement::RoundRobin, Placement::VShape};

TEST(StageCut, IsAsGoodAsTheBestOfAllCuts) {
  std::mt19937 generator(1);
  for (uint32_t stages : {1, 2, 3, 4})
    for (int layers : {4, 7, 10}) {
      Row row = Row::make(generator, layers, /*alike=*/false);
      Problem problem{stages};
      std::vector<int> found = row.cut(problem);
      ASSERT_EQ(found.size(), size_t(stages));
      // The search ends when bounds differ by 1e-6.
      double best = tryAllCuts(row, problem);
      EXPECT_NEAR(getSlowest(row, problem, found), best, 1e-5 * best);
    }
}

/// What a rank does is the sum over its chunks: a long chunk is no harm where
/// the others are short.
TEST(StageCut, IsTheBestForRanksOfSeveralChunks) {
  std::mt19937 generator(2);
  int better = 0;
  for (Placement placement : placements)
    for (uint32_t stages : {2, 3})
      for (int layers : {6, 9, 11}) {
        Row row = Row::make(generator, layers, /*alike=*/true);
        Problem problem{stages, 2, 1, placement};
        std::vector<int> found = row.cut(problem);
        ASSERT_EQ(found.size(), problem.virtualStages());
        double best = tryAllCuts(row, problem);
        // Sums of the same terms in another order.
        EXPECT_NEAR(getSlowest(row, problem, found), best, 1e-9 * best);
        std::vector<int> byStages = row.cut({problem.virtualStages()});
        better += best < getSlowest(row, problem, byStages) * (1 - 1e-9);
      }
  EXPECT_GT(better, 0) << "the best cut by stages is as good";
}

TEST(StageCut, IsNoWorseForRanksThanTheBestCutByStages) {
  std::mt19937 generator(3);
  for (Placement placement : placements)
    for (int layers : {8, 9, 10, 11}) {
      Row row = Row::make(generator, layers, /*alike=*/false);
      Problem problem{3, 2, 1, placement};
      std::vector<int> byStages = row.cut({problem.virtualStages()});
      double slowest = getSlowest(row, problem, row.cut(problem));
      EXPECT_LE(slowest, getSlowest(row, problem, byStages) * (1 + 1e-8));
      EXPECT_GE(slowest, tryAllCuts(row, problem) * (1 - 1e-9));
    }
}

TEST(StageCut, GivesEndsStagesOfTheirOwn) {
  using Layers = std::vector<int>;
  std::vector<double> costs(4, 1);
  EXPECT_EQ(cutStages(costs, 1, 1, {6}), (Layers{0, 1, 1, 1, 1, 0}));
  EXPECT_EQ(cutStages(costs, 1, 2, {5}), (Layers{1, 1, 1, 1, 0}));
  EXPECT_EQ(cutStages(costs, 2, 1, {5}), (Layers{0, 1, 1, 1, 1}));
  EXPECT_EQ(cutStages(costs, std::nullopt, 1, {5}), (Layers{1, 1, 1, 1, 0}));
  EXPECT_EQ(cutStages(costs, 1, std::nullopt, {5}), (Layers{0, 1, 1, 1, 1}));
  EXPECT_EQ(cutStages(costs, 1, 1, {3, 2}), (Layers{0, 1, 1, 1, 1, 0}));
  // Both ends are alone where that is faster, though one stage is missing.
  costs.pop_back();
  EXPECT_EQ(cutStages(costs, 10, 10, {4}), (Layers{0, 1, 2, 0}));
}

TEST(StageCut, LeavesShortStagesInFront) {
  using Layers = std::vector<int>;
  std::vector<double> costs(10, 1);
  EXPECT_EQ(cutStages(costs, 0, 0, {4}), (Layers{2, 2, 3, 3}));
  EXPECT_EQ(cutStages(costs, 2, 0, {4}), (Layers{1, 3, 3, 3}));
  EXPECT_EQ(cutStages(costs, 0, 1, {4}), (Layers{2, 3, 3, 2}));
  EXPECT_EQ(cutStages(costs, 0, 0, {2, 2}), (Layers{2, 2, 3, 3}));
  // The head is worth two layers of the last rank, wherever it takes them.
  EXPECT_EQ(cutStages(costs, 0, 2, {2, 2}), (Layers{3, 3, 3, 1}));
}

// Every move that is possible is asked for, and what is better is kept.
TEST(StageCut, Improves) {
  auto getDistance = [](const std::vector<int> &cut) {
    const int target[] = {4, 1, 2, 1, 3};
    int sum = 0;
    for (size_t i = 0; i < cut.size(); ++i)
      sum += std::abs(cut[i] - target[i]);
    return sum;
  };
  std::vector<int> best = {1, 1, 1, 1, 7};
  auto isBetter = [&](const std::vector<int> &cut) {
    if (getDistance(cut) >= getDistance(best))
      return false;
    best = cut;
    return true;
  };
  EXPECT_EQ(improveCut(best, 1000, isBetter),
            (std::vector<int>{4, 1, 2, 1, 3}));
  int asked = 0;
  auto refuse = [&](const std::vector<int> &) { return ++asked == 0; };
  EXPECT_EQ(improveCut({2, 2, 2}, 1000, refuse), (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(asked, 6);
  EXPECT_EQ(improveCut({2, 2, 2}, 2, refuse), (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(asked, 8);
  EXPECT_EQ(improveCut({5}, 9, refuse), std::vector<int>{5});
  EXPECT_EQ(asked, 8);
}

} // namespace
