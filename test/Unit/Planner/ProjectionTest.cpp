//===- ProjectionTest.cpp - Whole trainings -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Projection.h"
#include "Case.h"

using namespace plait;
using namespace plait::planner;

namespace {

/// Hoffmann et al. 2022, table 3. The largest deviation from 20 tokens a
/// parameter is that of 67e9: 22.4.
TEST(Projection, ComputeOptimalTokens) {
  struct {
    double parameters, tokens;
  } rows[] = {{400e6, 8.0e9},   {1e9, 20.2e9},   {10e9, 205.1e9},
              {67e9, 1.5e12},   {175e9, 3.7e12}, {280e9, 5.9e12},
              {520e9, 11.0e12}, {1e12, 21.2e12}};
  for (auto [parameters, tokens] : rows)
    EXPECT_NEAR(getComputeOptimalTokens(parameters) / tokens, 1, 0.11)
        << parameters;
}

TEST(Projection, IsTheStepAsOftenAsTokensAsk) {
  Case example;
  example.shape = {.layers = 16, .hidden = 4096, .heads = 32};
  example.shape.vocabulary = 32000;
  example.shape.sequence = example.training.sequence = 2048;
  example.training.globalBatch = 64;
  example.configuration.mesh[Axis::DP] = example.configuration.mesh[Axis::TP] =
      4;
  Estimate estimate = example.run("h100");
  Work work = buildTransformerWork(example.shape, 4, false);
  SearchResult result;
  result.configuration = example.configuration;
  result.estimate = estimate;
  result.work = &work;
  Cluster cluster = *parseCluster("h100:4x8"); // half of it idle
  double stepTokens = 64 * 2048;
  // The last step is a whole one.
  Projection found =
      project({999.5 * stepTokens, 2}, result, cluster, example.training);
  EXPECT_EQ(found.steps, 1000);
  EXPECT_DOUBLE_EQ(found.seconds, 1000 * estimate.iterationSeconds);
  EXPECT_DOUBLE_EQ(found.deviceHours, 16 * found.seconds / 3600);
  ASSERT_TRUE(found.joules && found.money);
  EXPECT_DOUBLE_EQ(*found.joules, 16 * 700 * found.seconds);
  EXPECT_DOUBLE_EQ(*found.money, 2 * found.deviceHours);
  EXPECT_DOUBLE_EQ(found.modelFlops, 1000 * estimate.modelFlops);
  EXPECT_EQ(found.ruleFlops, 6);
  // Attention's scores are no parameters: s / 6 h = 8 % of FLOPs.
  EXPECT_NEAR(found.ruleSeconds, found.seconds / (1 + 2048.0 / (6 * 4096)),
              0.01 * found.seconds);

  cluster.device.powerWatts = 0;
  found = project({1, {}}, result, cluster, example.training);
  EXPECT_EQ(found.steps, 1);
  EXPECT_FALSE(found.joules || found.money);
}

TEST(Projection, PowerOfSharedAndMixedDevices) {
  for (const std::string &name : getDevicePresets())
    if (Device device = parseCluster(name + ":1")->device;
        !device.isProcessor) {
      EXPECT_GE(device.powerWatts, 250) << name;
    }
  EXPECT_EQ(parseCluster("cpu:8")->device.powerWatts, 0);
  Result<Cluster> mixed =
      parseCluster(PLAIT_SOURCE_DIR "/examples/clusters/mixed-a100.json");
  ASSERT_TRUE(mixed.ok()) << mixed.status().message();
  EXPECT_EQ(mixed->device.powerWatts, 400);
}

} // namespace
