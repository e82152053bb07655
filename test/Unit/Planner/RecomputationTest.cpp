//===- RecomputationTest.cpp - What layers compute again ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SearchSetting.h"
#include "TransformerWork.h"
#include "plait/Planner/Estimate.h"
#include "plait/Planner/Search.h"
#include "plait/Schedule/Generators.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace plait;
using namespace plait::planner;

namespace {

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

TEST(Recomputation, IsReadAndWritten) {
  for (const char *text :
       {"none", "selective", "full", "auto", "full:4", "selective:2",
        "full:4+selective", "full:4+selective:3", "full/none",
        "full:1+selective/selective*2/none*60"}) {
    Recomputation value;
    Status status = parse("recompute", text, value);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(print(value), text);
  }
  // What means the same is the same.
  for (auto [text, same] : {std::pair("full:4+none", "full:4"),
                            {"full*3", "full"},
                            {"full:2/full:2", "full:2"}}) {
    Recomputation value;
    ASSERT_TRUE(parse("recompute", text, value).ok());
    EXPECT_EQ(print(value), same);
  }
  Recomputation value;
  ASSERT_TRUE(parse("recompute", "full:1+selective:2/selective", value).ok());
  EXPECT_EQ(value.getStage(0).getKind(0), Recompute::Full);
  EXPECT_EQ(value.getStage(0).getKind(2), Recompute::Selective);
  EXPECT_EQ(value.getStage(0).getKind(3), Recompute::None);
  EXPECT_EQ(value.getStage(1).getKind(99), Recompute::Selective);
}

TEST(Recomputation, SaysWhatItCannotRead) {
  for (const char *text : {"",
                           "some",
                           "full:",
                           "full:0",
                           "full:x",
                           "full:99999999999",
                           "+full",
                           "full/",
                           "full//none",
                           "full*0",
                           "full*",
                           "selective:1+full",
                           "full+selective",
                           "full:1+full:2",
                           "none:2",
                           "none+full",
                           "auto:2",
                           "full/auto",
                           "full:1*70000",
                           "full*65536/none"}) {
    Recomputation value;
    Status status = parse("recompute", text, value);
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_NE(status.message().find("recompute"), std::string::npos);
  }
}

//===----------------------------------------------------------------------===//
// Fitting
//===----------------------------------------------------------------------===//

struct FittingSetting : SmallModel {
  Configuration configuration;

  FittingSetting() : SmallModel(16) {
    // Scores are the larger part of what layers keep.
    training.flashAttention = false;
    training.framework.keepsScores = true;
    configuration.mesh[Axis::TP] = 2;
    configuration.mesh[Axis::PP] = 4;
  }

  Estimate run(const Recomputation &recompute) {
    configuration.recompute = recompute;
    Work work =
        buildTransformerWork(shape, configuration.mesh[Axis::TP], false);
    auto estimate = planner::estimate(work, cluster, training, configuration);
    EXPECT_TRUE(estimate.ok()) << estimate.status().message();
    return estimate.ok() ? *estimate : Estimate();
  }
  void setMemory(double bytes) {
    cluster.device.memoryBytes = bytes + cluster.device.reservedBytes;
  }
};

TEST(Recomputation, NoMoreLayersAreComputedAgainThanThereAre) {
  FittingSetting setting;
  Work work = buildTransformerWork(setting.shape, 2, false);
  auto explain = [&](const char *text) {
    EXPECT_TRUE(parse("recompute", text, setting.configuration.recompute).ok());
    auto estimate = planner::estimate(work, setting.cluster, setting.training,
                                      setting.configuration);
    return estimate.ok() ? "" : estimate.status().message();
  };
  // Of ten layers on four stages, before and after they are cut.
  EXPECT_EQ(explain("full:10"), "");
  EXPECT_EQ(explain("selective:11"),
            "recompute is selective:11, which is of 11 layers, but no virtual "
            "stage has more than 10");
  setting.configuration.layers = {2, 3, 3, 2};
  EXPECT_EQ(explain("full:3"), "");
  EXPECT_EQ(explain("full:4"), "recompute is full:4, which is of 4 layers, but "
                               "no virtual stage has more than 3");
}

/// Seconds of the layers of each rank with the fastest of all choices that fit:
/// every number of layers of each kind is tried, on each rank alone.
std::vector<double> tryAll(FittingSetting setting,
                           const std::vector<int> &layers) {
  setting.configuration.layers = layers;
  double usable = setting.cluster.device.usableBytes();
  std::vector<double> least(layers.size(), 1e300);
  int most = *std::max_element(layers.begin(), layers.end());
  for (int full = 0; full <= most; ++full)
    for (int cheap = 0; full + cheap <= most; ++cheap) {
      Recomputation recompute;
      recompute.stages = {{full, cheap}};
      Estimate estimate = setting.run(recompute);
      for (size_t rank = 0; rank < layers.size(); ++rank)
        if (estimate.memory[rank].peak() <= usable)
          least[rank] = std::min(least[rank], estimate.stages[rank].sum());
    }
  return least;
}

TEST(Recomputation, IsTheFastestThatFits) {
  FittingSetting setting;
  double most = setting.run(Recompute::None).peakMemory();
  double fewest = setting.run(Recompute::Full).peakMemory();
  int mixed = 0;
  for (int step = 0; step <= 12; ++step) {
    setting.setMemory(fewest + (most - fewest) * step / 12);
    Estimate found = setting.run(Recompute::Auto);
    EXPECT_LE(found.peakMemory(), setting.cluster.device.usableBytes());
    std::vector<double> least = tryAll(setting, found.layers);
    for (size_t rank = 0; rank < least.size(); ++rank)
      EXPECT_NEAR(found.stages[rank].sum(), least[rank], 1e-12 * least[rank])
          << "rank " << rank << " of step " << step;
    mixed += !found.recompute.getUniform();
    // What was found is the same when it is given.
    FittingSetting given = setting;
    given.configuration.layers = found.layers;
    Estimate again = given.run(found.recompute);
    EXPECT_EQ(again.iterationSeconds, found.iterationSeconds);
    EXPECT_EQ(again.peakMemory(), found.peakMemory());
  }
  EXPECT_GE(mixed, 8);
}

/// With every schedule: no slower than any one kind for all layers that fits.
TEST(Recomputation, BeatsOneKindForAll) {
  for (const schedule::Generator &generator : schedule::getGenerators()) {
    FittingSetting setting;
    setting.configuration.schedule = generator.name;
    setting.configuration.mesh[Axis::PP] = 2;
    setting.configuration.chunks = int(generator.minChunks);
    Estimate none = setting.run(Recompute::None);
    Estimate full = setting.run(Recompute::Full);
    for (double part : {0.3, 0.6, 0.9}) {
      setting.setMemory(full.peakMemory() +
                        (none.peakMemory() - full.peakMemory()) * part);
      double usable = setting.cluster.device.usableBytes();
      Estimate found = setting.run(Recompute::Auto);
      EXPECT_LE(found.peakMemory(), usable) << generator.name;
      if (generator.searches)
        EXPECT_LE(found.iterationSeconds, full.iterationSeconds);
      else
        EXPECT_LT(found.iterationSeconds, full.iterationSeconds)
            << generator.name;
      Estimate cheap = setting.run(Recompute::Selective);
      if (cheap.peakMemory() <= usable)
        EXPECT_LE(found.iterationSeconds, cheap.iterationSeconds * (1 + 1e-9))
            << generator.name;
    }
  }
}

TEST(Recomputation, IsFullWhereNothingFits) {
  FittingSetting setting;
  setting.setMemory(1e9);
  EXPECT_EQ(setting.run(Recompute::Auto).recompute, Recompute::Full);
}

TEST(Recomputation, NeedsAsManyStages) {
  FittingSetting setting;
  Recomputation &recompute = setting.configuration.recompute;
  ASSERT_TRUE(parse("recompute", "full/none", recompute).ok());
  Work work = buildTransformerWork(setting.shape, 2, false);
  auto estimate = planner::estimate(work, setting.cluster, setting.training,
                                    setting.configuration);
  ASSERT_FALSE(estimate.ok());
  EXPECT_EQ(estimate.status().message(),
            "recompute is given for 2 virtual stages (full/none), the "
            "pipeline has 4");
}

/// A search that fits each layer finds nothing slower than one that picks a
/// kind for all, and the same when its pick is pinned.
TEST(Recomputation, IsSearchedFor) {
  FittingSetting setting;
  for (double gigabytes : {12.0, 16.0, 24.0}) {
    setting.setMemory(gigabytes * 1e9);
    SearchSpace space;
    space.schedule = {"1f1b", "zb-v"};
    space.chunks = {1, 2};
    space.microBatch = {1, 2};
    space.zero = {0, 1};
    space.recompute = {Recompute::None, Recompute::Selective, Recompute::Full};
    TransformerSource source(setting.shape);
    Result<SearchResult> uniform =
        search(source, setting.cluster, setting.training, space);
    space.recompute.push_back(Recompute::Auto);
    Result<SearchResult> layers =
        search(source, setting.cluster, setting.training, space);
    ASSERT_EQ(uniform.ok(), layers.ok());
    if (!layers.ok())
      continue;
    EXPECT_LE(layers->lowerBoundSeconds,
              uniform->lowerBoundSeconds * (1 + 1e-9));
    EXPECT_FALSE(layers->configuration.recompute.isAuto);
    EXPECT_LE(layers->estimate.peakMemory(),
              setting.cluster.device.usableBytes());
    Pins pins;
    pins.recompute = layers->configuration.recompute;
    pins.mesh[Axis::PP] = layers->configuration.mesh[Axis::PP];
    pins.layers = layers->configuration.layers;
    Result<SearchResult> pinned =
        search(source, setting.cluster, setting.training, space, pins);
    ASSERT_TRUE(pinned.ok()) << pinned.status().message();
    EXPECT_NEAR(pinned->estimate.iterationSeconds,
                layers->estimate.iterationSeconds,
                1e-9 * layers->estimate.iterationSeconds);
  }
}

} // namespace
