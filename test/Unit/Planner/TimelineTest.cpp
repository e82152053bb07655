//===- TimelineTest.cpp - Steps, action by action -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Timeline.h"
#include "TransformerWork.h"
#include "plait/Schedule/Generators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

using namespace plait;
using namespace plait::planner;

namespace {

struct Setting {
  TransformerShape shape;
  Training training;
  Configuration configuration;
  Cluster cluster = *parseCluster("a100-80g:8x8");

  explicit Setting(const char *schedule = "1f1b", int chunks = 1) {
    shape.layers = 16;
    shape.hidden = 4096;
    shape.heads = 32;
    shape.vocabulary = 32000;
    shape.sequence = training.sequence = 2048;
    training.globalBatch = 32;
    configuration.mesh[Axis::PP] = 4;
    configuration.mesh[Axis::DP] = 4;
    configuration.mesh[Axis::TP] = 2;
    configuration.chunks = chunks;
    configuration.schedule = schedule;
  }
  Work work() const {
    return buildTransformerWork(shape, configuration.mesh[Axis::TP],
                                configuration.sequenceParallel);
  }
  Timeline run() const {
    auto timeline = simulateTimeline(work(), cluster, training, configuration);
    EXPECT_TRUE(timeline.ok()) << timeline.status().message();
    return timeline.ok() ? *timeline : Timeline();
  }
  Estimate estimated() const {
    return *estimate(work(), cluster, training, configuration);
  }
};

const Setting settings[] = {
    Setting("gpipe"), Setting("1f1b"),    Setting("interleaved-1f1b", 2),
    Setting("zb-h1"), Setting("zb-v", 2), Setting("zb-auto")};

bool isCompute(const TimelineAction &action) {
  return action.activity <= Activity::BackwardWeight;
}

/// The schedule library's own simulation, another implementation, of all
/// microbatches.
TEST(Timeline, EndsWhenTheScheduleLibrarySays) {
  for (const Setting &setting : settings) {
    Timeline timeline = setting.run();
    const Estimate &estimate = timeline.estimate;
    schedule::Costs costs;
    costs.transfer = estimate.transferSeconds;
    for (const StageTime &stage : estimate.stages) {
      costs.forwards.push_back(stage.forward);
      costs.backwardInputs.push_back(stage.backwardInput);
      costs.backwardWeights.push_back(stage.backwardWeight);
    }
    if (setting.configuration.schedule == "zb-auto")
      continue; // searched for with other costs
    auto schedule =
        schedule::generate(setting.configuration.schedule,
                           {4, uint32_t(estimate.stages.size()) / 4, 8});
    ASSERT_TRUE(schedule.ok());
    auto simulated = schedule::simulate(*schedule, costs);
    ASSERT_TRUE(simulated.ok());
    EXPECT_NEAR(estimate.pipelineSeconds, simulated->makespan,
                1e-9 * simulated->makespan)
        << setting.configuration.schedule;
  }
}

TEST(Timeline, ActionsAreInOrderAndComplete) {
  for (const Setting &setting : settings) {
    Timeline timeline = setting.run();
    ASSERT_EQ(timeline.ranks.size(), 4u);
    double last = 0;
    for (const RankTimeline &rank : timeline.ranks) {
      std::map<Activity, int> counts;
      double clock = 0;
      for (const TimelineAction &action : rank.actions) {
        EXPECT_GE(action.start, clock - 1e-12);
        EXPECT_GT(action.end, action.start);
        clock = action.end;
        ++counts[action.activity];
      }
      last = std::max(last, clock);
      int pairs = 8 * setting.configuration.chunks;
      EXPECT_EQ(counts[Activity::Forward], pairs);
      EXPECT_EQ(counts[Activity::Backward] + counts[Activity::BackwardInput],
                pairs);
      EXPECT_EQ(counts[Activity::BackwardInput],
                counts[Activity::BackwardWeight]);
      EXPECT_EQ(counts[Activity::Optimizer], 1);
    }
    EXPECT_DOUBLE_EQ(last, timeline.seconds());
    // Few microbatches: estimate() simulates all of them, too.
    EXPECT_DOUBLE_EQ(timeline.seconds(), setting.estimated().iterationSeconds);
    EXPECT_NEAR(timeline.estimate.breakdown.sum(), timeline.seconds(),
                1e-9 * timeline.seconds());
  }
}

/// The critical actions, in order of time, cover the step but for transfers.
TEST(Timeline, CriticalActionsAreOneChain) {
  for (const Setting &setting : settings) {
    Timeline timeline = setting.run();
    std::vector<TimelineAction> chain;
    for (const RankTimeline &rank : timeline.ranks)
      for (const TimelineAction &action : rank.actions)
        if (action.isCritical && isCompute(action))
          chain.push_back(action);
    std::sort(chain.begin(), chain.end(),
              [](const TimelineAction &a, const TimelineAction &b) {
                return a.start < b.start;
              });
    ASSERT_FALSE(chain.empty());
    EXPECT_EQ(chain.front().start, 0);
    EXPECT_DOUBLE_EQ(chain.back().end, timeline.estimate.pipelineSeconds);
    double transfer = timeline.estimate.transferSeconds;
    for (size_t i = 1; i < chain.size(); ++i) {
      double gap = chain[i].start - chain[i - 1].end;
      EXPECT_TRUE(gap < 1e-12 || std::abs(gap - transfer) < 1e-9) << gap;
    }
  }
}

TEST(Timeline, MemoryRisesAndFalls) {
  for (const Setting &setting : settings) {
    Timeline timeline = setting.run();
    Estimate estimate = setting.estimated();
    for (size_t rank = 0; rank < 4; ++rank) {
      const auto &samples = timeline.ranks[rank].memory;
      EXPECT_EQ(samples.front().seconds, 0);
      double peak = 0, seconds = -1;
      for (const MemorySample &sample : samples) {
        EXPECT_GT(sample.seconds, seconds);
        seconds = sample.seconds;
        peak = std::max(peak, sample.bytes.activations);
        EXPECT_DOUBLE_EQ(sample.bytes.resident(),
                         estimate.memory[rank].resident());
      }
      EXPECT_LT(samples.back().bytes.activations, 1);
      EXPECT_EQ(samples.back().bytes.workspace, 0);
      EXPECT_DOUBLE_EQ(timeline.estimate.memory[rank].activations, peak);
      EXPECT_NEAR(peak, estimate.memory[rank].activations, 1e-9 * peak)
          << setting.configuration.schedule << " " << rank;
    }
  }
}

/// 1F1B: rank r holds p - r microbatches (Narayanan et al. 2021,
/// section 2.2.1).
TEST(Timeline, HoldsWhatTheoryHolds) {
  Setting setting;
  setting.configuration.layers = {4, 4, 4, 4};
  Timeline timeline = setting.run();
  const auto &first = timeline.ranks[1].memory;
  double one = first[1].bytes.activations - first[0].bytes.activations;
  EXPECT_GT(one, 0);
  EXPECT_NEAR(timeline.estimate.memory[1].activations, 3 * one, 1e-6 * one);
  EXPECT_NEAR(timeline.estimate.memory[2].activations, 2 * one, 1e-6 * one);
}

TEST(Timeline, NamesAndFailures) {
  EXPECT_STREQ(getActivityName(Activity::BackwardInput), "backward-input");
  EXPECT_STREQ(getActivityName(Activity::Overhead), "overhead");
  Setting setting;
  setting.configuration.microBatch = 3;
  auto failure = simulateTimeline(setting.work(), setting.cluster,
                                  setting.training, setting.configuration);
  ASSERT_FALSE(failure.ok());
  EXPECT_EQ(
      failure.status().message(),
      "global batch 32 is not a multiple of microbatch 3 x data-parallel 4");
}

} // namespace
