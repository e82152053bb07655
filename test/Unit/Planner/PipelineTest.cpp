//===- PipelineTest.cpp - Schedules in the estimator ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Simulator/Pipeline.h"
#include "plait/Schedule/Generators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace plait;
using namespace plait::planner;
using schedule::Problem;

namespace {

PipelineModel getModel(const std::string &name, const Problem &problem) {
  auto model = PipelineModel::get(name, problem, {{1, 1, 1}});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *model;
}

/// What the schedule library says, of all microbatches.
double simulateAll(const std::string &name, const Problem &problem,
                   const std::vector<StageCost> &costs, double transfer) {
  auto schedule = schedule::generate(name, problem);
  EXPECT_TRUE(schedule.ok());
  schedule::Costs times;
  times.transfer = transfer;
  for (const StageCost &cost : costs) {
    times.forwards.push_back(cost.forward);
    times.backwardInputs.push_back(cost.backwardInput);
    times.backwardWeights.push_back(cost.backwardWeight);
  }
  auto timeline = schedule::simulate(*schedule, times);
  EXPECT_TRUE(timeline.ok());
  return timeline->makespan;
}

/// Times that vary by a tenth from stage to stage, and slower ends, as
/// embedding and head make them.
std::vector<StageCost> makeUneven(uint32_t stages, uint32_t seed, double ends) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  std::vector<StageCost> costs;
  for (uint32_t i = 0; i < stages; ++i)
    costs.push_back({noise(generator), noise(generator), noise(generator)});
  costs.front().forward += 0.6 * ends;
  costs.back().forward += ends;
  costs.back().backwardInput += ends;
  return costs;
}

TEST(Pipeline, ContinuesWhatASimulationOfAllMicrobatchesShows) {
  struct Shape {
    const char *name;
    uint32_t chunks;
    uint32_t simulated; // rounds up to which nothing is continued
    /// With slow ends the schedule settles at once. Without, the bottleneck may
    /// move for a while where a rank runs ahead.
    double withEnds, withoutEnds;
  };
  const Shape shapes[] = {{"gpipe", 1, 3, 0.001, 0.001},
                          {"1f1b", 1, 3, 0.001, 0.001},
                          {"interleaved-1f1b", 2, 4, 0.001, 0.03},
                          {"interleaved-1f1b", 4, 4, 0.001, 0.03},
                          {"zb-h1", 1, 6, 0.001, 0.001},
                          {"zb-h2", 1, 6, 0.001, 0.035},
                          {"zb-v", 2, 6, 0.001, 0.01}};
  for (const Shape &shape : shapes)
    for (uint32_t p : {2, 4, 8, 16})
      for (uint32_t m : {3, 8, 32, 100, 256})
        for (double ends : {0.0, 0.5}) {
          Problem problem{p, shape.chunks, m};
          PipelineModel model = getModel(shape.name, problem);
          auto costs = makeUneven(p * shape.chunks, p + m, ends);
          double expected = simulateAll(shape.name, problem, costs, 0.05);
          double tolerance = ends > 0 ? shape.withEnds : shape.withoutEnds;
          if (m <= shape.simulated * p)
            tolerance = 1e-12;
          EXPECT_NEAR(model.run(costs, {0.05, false}).seconds, expected,
                      tolerance * expected)
              << shape.name << " " << p << " " << m << " " << ends;
        }
}

/// Before it settles, ZB-H2 seems to do a round in less than its work.
TEST(Pipeline, IsNeverFasterThanItsWork) {
  for (const char *name : {"zb-h2", "zb-h1", "1f1b"})
    for (uint32_t p : {2, 4})
      for (double head : {0.0, 0.1, 0.3, 1.0}) {
        std::vector<StageCost> costs(p, {1, 1.2, 0.6});
        costs.back().forward += head;
        double busiest = 2.8 + head;
        PipelineModel model = getModel(name, {p, 1, 512});
        PipelineTime time = model.run(costs, {0.01, false});
        EXPECT_GE(time.withoutTransfers, 512 * busiest * (1 - 1e-12));
        EXPECT_GE(time.seconds, time.withoutTransfers);
      }
}

/// Each event waits for its cause, and one of them ends last.
TEST(Pipeline, TracesWhatItRuns) {
  for (bool blocking : {false, true}) {
    Problem problem{4, 1, 12};
    auto schedule = schedule::generate("1f1b", problem);
    ASSERT_TRUE(schedule.ok());
    CompiledSchedule compiled(*schedule);
    std::vector<StageCost> costs = makeUneven(4, 7, 0.5);
    TransferCost transfer{0.05, blocking};
    std::vector<Event> events = compiled.trace(costs, transfer);
    ASSERT_EQ(events.size(), 4u * 12 * 2);
    double last = 0;
    for (const Event &event : events) {
      last = std::max(last, event.end);
      if (event.cause < 0) {
        EXPECT_EQ(event.start, 0);
        continue;
      }
      const Event &cause = events[event.cause];
      double gap = event.start - cause.end;
      bool sameRank = cause.rank == event.rank;
      EXPECT_TRUE(gap == 0 || (gap > 0.05 - 1e-9 && gap < 0.05 + 1e-9)) << gap;
      EXPECT_TRUE(sameRank || gap > 0);
      EXPECT_TRUE(!sameRank || gap == 0 || blocking);
    }
    PipelineTime time = compiled.run(costs, transfer);
    EXPECT_DOUBLE_EQ(time.seconds, last);
    EXPECT_LT(time.withoutTransfers, last);
    EXPECT_DOUBLE_EQ(compiled.run(costs, {}).seconds, time.withoutTransfers);
  }
}

/// One microbatch meets each link once each way: of four ranks on two nodes one
/// link is slow.
TEST(Pipeline, LinksInsideOfNodesAreFaster) {
  TransferCost transfer{0.5, false, 0.01, 2};
  std::vector<StageCost> costs(4, {1, 1, 1});
  EXPECT_DOUBLE_EQ(getModel("1f1b", {4, 1, 1}).run(costs, transfer).seconds,
                   4 * 3 + 2 * (0.5 + 2 * 0.01));
  // The ring's last link leads back to the first node.
  EXPECT_EQ(transfer.at(getLink(3, 0), 4), 0.5);
  EXPECT_EQ(transfer.at(getLink(2, 3), 4), 0.01);
  // On one node each, no link is inside of one.
  EXPECT_DOUBLE_EQ(
      getModel("1f1b", {4, 1, 1}).run(costs, {0.5, false, 0.01, 1}).seconds,
      4 * 3 + 6 * 0.5);
}

/// The first of two stages is at its backward pass at 1, and has the gradient
/// at 5: what it needs none for is done by then. The second waits for none.
TEST(Pipeline, WhatNeedsNoGradientIsBesideItsMessage) {
  std::vector<StageCost> costs(2, {1, 2, 1});
  for (double early : {0.0, 0.5, 2.0}) {
    for (StageCost &cost : costs)
      cost.early = early;
    PipelineModel model = getModel("zb-h1", {2, 1, 1});
    EXPECT_DOUBLE_EQ(model.run(costs, {0.5}).seconds, 5 + (2 - early) + 1);
    std::vector<Event> events = model.getSimulated().trace(costs, {0.5});
    double end = 0;
    for (const Event &event : events)
      end = std::max(end, event.end);
    EXPECT_DOUBLE_EQ(end, 5 + (2 - early) + 1);
  }
}

/// The second of two stages has its message at 1.5, and is done 3 behind that,
/// but for what it does before.
TEST(Pipeline, WhatNeedsNoInputIsBesideItsMessage) {
  for (double early : {0.0, 0.5, 1.0}) {
    std::vector<StageCost> costs(2, {1, 1, 1});
    costs[1].earlyForward = early;
    EXPECT_DOUBLE_EQ(getModel("1f1b", {2, 1, 1}).run(costs, {0.5}).seconds,
                     1.5 + (3 - early) + 0.5 + 2);
  }
}

/// A message that was sent long ago takes a processor no less time: in each
/// round one comes forward and one back.
TEST(Pipeline, ReceivingTakesAProcessorsTime) {
  std::vector<StageCost> costs(2, {1, 1, 1});
  TransferCost posted{0.5}, occupying{0.5};
  occupying.occupies = true;
  PipelineModel model = getModel("gpipe", {2, 1, 8});
  // Posted messages are there when they are needed, but for the first each way.
  EXPECT_DOUBLE_EQ(model.run(costs, posted).seconds, 8 * 3 + 3 + 2 * 0.5);
  EXPECT_DOUBLE_EQ(model.run(costs, occupying).seconds,
                   1 + 8 * (0.5 + 1) + 2 + 8 * (0.5 + 2));
}

/// Equal stages and free transfers: (p - 1) / (m + p - 1) of the total.
TEST(Pipeline, BubbleFormula) {
  for (uint32_t p : {4, 16})
    for (uint32_t m : {4, 16, 64, 256}) {
      std::vector<StageCost> costs(p, {1, 1, 1});
      double seconds = getModel("1f1b", {p, 1, m}).run(costs, {}).seconds;
      EXPECT_NEAR(1 - 3.0 * m / seconds, (p - 1.0) / (m + p - 1.0), 1e-12);
    }
}

/// A message that holds its sender: one each way and microbatch in the steady
/// state, and the two at each end of it on the way through.
TEST(Pipeline, BlockingTransfersTakeTimeOfTheirSender) {
  std::vector<StageCost> costs(4, {1, 1, 1});
  PipelineModel model = getModel("1f1b", {4, 1, 64});
  double free = model.run(costs, {}).seconds;
  double posted = model.run(costs, {0.1, false}).seconds;
  double blocking = model.run(costs, {0.1, true}).seconds;
  EXPECT_GT(posted, free);
  EXPECT_GT(blocking, posted);
  EXPECT_GE(blocking, free + 64 * 2 * 0.1 * 0.9);
}

TEST(Pipeline, CountsMicrobatchesInFlight) {
  for (uint32_t rank = 0; rank < 4; ++rank) {
    auto held = [&](const char *name, uint32_t chunks) {
      PipelineModel model = getModel(name, {4, chunks, 100});
      double most = 0;
      for (size_t moment = 0; moment < model.countMoments(rank); ++moment) {
        double sum = 0;
        for (uint32_t chunk = 0; chunk < chunks; ++chunk)
          sum += model.inFlight(rank, moment, chunk).whole;
        most = std::max(most, sum);
      }
      return most;
    };
    EXPECT_EQ(held("gpipe", 1), 100);
    EXPECT_EQ(held("1f1b", 1), 4 - rank);
    EXPECT_EQ(held("interleaved-1f1b", 3), 2 * (4 - rank - 1) + 2 * 4 + 1);
  }
}

/// Each moment of all microbatches, as a list that can be compared.
std::vector<std::vector<double>> listMoments(const PipelineModel &model,
                                             uint32_t rank) {
  std::vector<std::vector<double>> moments;
  for (size_t moment = 0; moment < model.countMoments(rank); ++moment) {
    std::vector<double> &held = moments.emplace_back();
    for (uint32_t chunk = 0; chunk < model.getProblem().chunks; ++chunk) {
      InFlight count = model.inFlight(rank, moment, chunk);
      held.push_back(count.whole);
      held.push_back(count.weights);
    }
  }
  std::sort(moments.begin(), moments.end());
  return moments;
}

/// Of any number of microbatches as many as they are in fact, and whether time
/// is asked for as well or not.
TEST(Pipeline, HoldsWhatAllMicrobatchesDo) {
  for (const schedule::Generator &generator : schedule::getGenerators())
    for (uint32_t p : {2, 3, 8})
      for (uint32_t m : {1, 7, 64, 129}) {
        if (generator.searches)
          continue;
        for (uint32_t chunks : {generator.minChunks, generator.maxChunks}) {
          Problem problem{p, std::min(chunks, 5u), m};
          auto memory = PipelineModel::get(generator.name, problem, OrderGoal(),
                                           Asked::Memory);
          auto schedule = schedule::generate(generator.name, problem);
          ASSERT_TRUE(memory.ok() && schedule.ok());
          PipelineModel both = getModel(generator.name, problem);
          PipelineModel all(*schedule);
          for (uint32_t rank = 0; rank < p; ++rank) {
            auto expected = listMoments(all, rank);
            EXPECT_EQ(listMoments(*memory, rank), expected)
                << generator.name << " " << p << " " << m << " " << rank;
            EXPECT_EQ(listMoments(both, rank), expected);
          }
        }
      }
}

/// A batch in tokens by mistake, say: what is simulated depends on the
/// pipeline.
TEST(Pipeline, SimulatesAFewOfAnyNumberOfMicrobatches) {
  for (const schedule::Generator &generator : schedule::getGenerators()) {
    Problem problem{4, generator.minChunks, 4'000'000'000};
    PipelineModel model = getModel(generator.name, problem);
    EXPECT_LE(model.getSimulated().size(), 3 * 6 * 4 * 4 * problem.chunks);
    std::vector<StageCost> costs(problem.virtualStages(), {1, 1, 1});
    double busy = 3.0 * problem.chunks * problem.microbatches;
    double seconds = model.run(costs, {}).seconds;
    EXPECT_GE(seconds, busy);
    EXPECT_LE(seconds, busy * 1.5);
  }
}

/// ZB-H1 delays gradients of weights by the rank's number, and no moment holds
/// more than p in all (Qi et al. 2024, table 1).
TEST(Pipeline, KnowsAllMomentsThatMayBeTheFullest) {
  PipelineModel model = getModel("zb-h1", {4, 1, 32});
  for (uint32_t rank = 0; rank < 4; ++rank) {
    double whole = 0, weights = 0;
    for (size_t moment = 0; moment < model.countMoments(rank); ++moment) {
      InFlight held = model.inFlight(rank, moment, 0);
      whole = std::max(whole, held.whole);
      weights = std::max(weights, held.weights);
      // None holds less of everything than another.
      for (size_t other = 0; other < moment; ++other) {
        InFlight before = model.inFlight(rank, other, 0);
        EXPECT_NE(held.whole > before.whole, held.weights > before.weights);
      }
    }
    EXPECT_GE(whole, 4 - rank);
    EXPECT_GE(weights, rank);
    EXPECT_LE(whole, 4);
    EXPECT_LE(weights, rank + 1.0);
  }
}

TEST(Pipeline, ReportsWhatAScheduleCannotDo) {
  EXPECT_FALSE(PipelineModel::get("1f1b", {4, 2, 8}, {{1, 1, 1}}).ok());
  EXPECT_FALSE(PipelineModel::get("none", {4, 1, 8}, {{1, 1, 1}}).ok());
}

} // namespace
