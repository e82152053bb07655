//===- SharingTest.cpp - Ranks that share a processor ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Eight ranks on two cores: a quarter of a core each while all compute, up to a
// whole one while others rest.
//
//===----------------------------------------------------------------------===//

#include "TransformerWork.h"
#include "plait/Planner/Cost.h"
#include "plait/Planner/Timeline.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace plait;
using namespace plait::planner;

namespace {

struct Setting {
  TransformerShape shape;
  Training training;
  Configuration configuration;
  Cluster cluster = *parseCluster("cpu:8");

  explicit Setting(int64_t microbatches) {
    shape.layers = 8;
    shape.hidden = 256;
    shape.heads = 8;
    shape.vocabulary = 256;
    shape.sequence = training.sequence = 128;
    training.precision = Precision::FP32;
    training.flashAttention = false;
    training.globalBatch = microbatches;
    configuration.mesh[Axis::PP] = 8;
  }
  Estimate run() const {
    Work work = buildTransformerWork(shape, 1, false);
    auto found = estimate(work, cluster, training, configuration);
    EXPECT_TRUE(found.ok()) << found.status().message();
    return *found;
  }
};

double getBusy(const Estimate &estimate, int64_t microbatches) {
  double busy = 0;
  for (const StageTime &stage : estimate.stages)
    busy += double(microbatches) * stage.sum() / 8;
  return busy;
}

TEST(Sharing, GivesRestingRanksCoresToTheOthers) {
  EXPECT_EQ(parseCluster("cpu:8")->device.burst, 4);
  EXPECT_EQ(parseCluster("cpu:2")->device.burst, 1);
  EXPECT_EQ(parseCluster("h100:1x8")->device.burst, 1);
  for (int64_t microbatches : {1, 2, 32}) {
    Setting setting(microbatches);
    Estimate shared = setting.run();
    setting.cluster.device.burst = 1;
    Estimate alone = setting.run();
    double busy = getBusy(alone, microbatches);
    // Few microbatches: one rank after another, each on a whole core. Many: no
    // core ever rests.
    EXPECT_DOUBLE_EQ(shared.pipelineSeconds,
                     std::max(busy, alone.pipelineSeconds / 4));
    EXPECT_EQ(shared.pipelineSeconds == busy, microbatches == 32);
    EXPECT_NEAR(shared.breakdown.sum(), shared.iterationSeconds,
                1e-9 * shared.iterationSeconds);
    EXPECT_GE(shared.bubbleFraction, -1e-12);
    // Work and waiting shrink alike.
    EXPECT_DOUBLE_EQ(shared.bubbleFraction, alone.bubbleFraction);
  }
}

TEST(Sharing, IsInTheTimelineToo) {
  Setting setting(2);
  Work work = buildTransformerWork(setting.shape, 1, false);
  auto timeline = simulateTimeline(work, setting.cluster, setting.training,
                                   setting.configuration);
  ASSERT_TRUE(timeline.ok());
  double last = 0;
  for (const RankTimeline &rank : timeline->ranks)
    last = std::max(last, rank.actions.back().end);
  EXPECT_NEAR(last, timeline->seconds(), 1e-9 * last);
  EXPECT_NEAR(last, setting.run().iterationSeconds, 1e-9 * last);
}

} // namespace
