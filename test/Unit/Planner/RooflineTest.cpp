//===- RooflineTest.cpp - What bounds a step ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Search/Parts.h"
#include "TransformerWork.h"
#include "plait/Planner/Cost.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::planner;

namespace {

/// A training on 16 devices whose parts all take time.
struct Setting {
  Setting() {
    shape.layers = 16;
    shape.hidden = 4096;
    shape.heads = 32;
    shape.vocabulary = 32000;
    shape.sequence = training.sequence = 2048;
    training.globalBatch = 64;
    training.framework = *findFramework("megatron-core");
    configuration.mesh[Axis::PP] = 4;
    configuration.mesh[Axis::TP] = configuration.mesh[Axis::DP] = 2;
  }

  Estimate run() const {
    Work work = buildTransformerWork(shape, configuration.mesh[Axis::TP],
                                     configuration.sequenceParallel);
    auto estimate = planner::estimate(work, cluster, training, configuration);
    EXPECT_TRUE(estimate.ok()) << estimate.status().message();
    return estimate.ok() ? *estimate : Estimate();
  }

  TransformerShape shape;
  Cluster cluster = *parseCluster("a100-80g:2x8");
  Training training;
  Configuration configuration;
};

double getWork(const Breakdown &parts) {
  return parts.forward + parts.backward + parts.recompute + parts.optimizer;
}

TEST(Roofline, MatmulsAreBoundByTheLonger) {
  Device device = parseCluster("a100-80g:1")->device;
  double bandwidth = device.memoryBandwidth * device.memoryFraction;
  Cost large = matmulCost(1, 8192, 8192, 8192, device, Precision::BF16);
  EXPECT_EQ(large.launch, device.launchSeconds);
  // What does not hide behind the arithmetic.
  EXPECT_NEAR(large.memory,
              device.matrix.serialFraction * 3 * 2 * 8192.0 * 8192 / bandwidth,
              1e-3 * large.memory);
  EXPECT_GT(large.arithmetic(), 2 * 8192.0 * 8192 * 8192 / 312e12);
  // Eight rows: every weight is read for 16 operations.
  Cost thin = matmulCost(1, 8, 16384, 16384, device, Precision::BF16);
  EXPECT_GT(thin.memory, 2 * 16384.0 * 16384 / bandwidth);
  EXPECT_LT(thin.arithmetic(), 0.5 * thin.memory);
}

TEST(Roofline, KernelsMoveOrCompute) {
  Device device = parseCluster("h100:1")->device;
  Cost moving = memoryCost(1e9, device);
  EXPECT_EQ(moving.launch, device.launchSeconds);
  EXPECT_NEAR(moving.arithmetic(), 0, 1e-12 * moving.seconds);
  Operation computing;
  computing.elementsPerSequence = 1e6;
  computing.flopsPerSequence = 1e10;
  Cost cost = operationCost(computing, device, {});
  EXPECT_EQ(cost.memory, 0);
  EXPECT_NEAR(cost.arithmetic(), 1e10 / device.vectorFlops,
              1e-12 * cost.seconds);
}

TEST(Roofline, OneSequenceLeavesNothingToSum) {
  Device device = parseCluster("h100:1")->device;
  Operation sum;
  sum.elementsPerSequence = 1e3;
  sum.sumsSequences = true;
  CostOptions options;
  EXPECT_EQ(operationCost(sum, device, options).seconds, 0);
  options.microBatch = 2;
  EXPECT_GT(operationCost(sum, device, options).seconds, device.launchSeconds);
}

/// A batch fills the last wave of tiles; where each gradient is sent to its
/// owner there is a call for each.
TEST(Roofline, JoinedGradientsAreABatch) {
  Device device = parseCluster("h100:1")->device;
  Operation gradient;
  gradient.kind = OperationKind::Matmul;
  gradient.pass = Pass::BackwardWeight;
  gradient.m = gradient.n = 1024;
  gradient.k = 128;
  gradient.scaled = Operation::Scaled::K;
  CostOptions options;
  double one = operationCost(gradient, device, options).seconds;
  gradient.joined = 3;
  double batch = operationCost(gradient, device, options).seconds;
  EXPECT_LT(batch, 0.9 * 3 * one);
  options.joinsGradients = false;
  EXPECT_NEAR(operationCost(gradient, device, options).seconds, 3 * one,
              1e-12 * one);
}

TEST(Roofline, AddsUpToTheStep) {
  for (const char *name : {"a100-80g:2x8", "b200:2x8", "cpu:16"})
    for (Recompute recompute :
         {Recompute::None, Recompute::Selective, Recompute::Full}) {
      Setting setting;
      setting.cluster = *parseCluster(name);
      setting.configuration.recompute = recompute;
      setting.training.flashAttention = recompute != Recompute::Selective;
      Estimate estimate = setting.run();
      double sum = 0;
      for (const Part &part : getRooflineParts(estimate)) {
        EXPECT_GE(part.value, 0) << name << " " << part.name;
        sum += part.value;
      }
      EXPECT_NEAR(sum, estimate.iterationSeconds,
                  1e-9 * estimate.iterationSeconds);
    }
}

/// A device without one of the three limits loses just that part of the work.
TEST(Roofline, PartsAreWhatTheirLimitCosts) {
  constexpr double unlimited = 1e9;
  for (Recompute recompute : {Recompute::None, Recompute::Full}) {
    Setting setting;
    setting.configuration.recompute = recompute;
    Breakdown before = setting.run().breakdown;
    EXPECT_GT(before.arithmetic(), 0.5 * getWork(before));

    Setting computing = setting;
    for (double &peak : computing.cluster.device.peakFlops)
      peak *= unlimited;
    computing.cluster.device.vectorFlops *= unlimited;
    Breakdown parts = computing.run().breakdown;
    // What remains is what collectives beside the work cost it.
    EXPECT_LT(parts.arithmetic(), 0.05 * before.arithmetic());

    Setting moving = setting;
    moving.cluster.device.memoryBandwidth *= unlimited;
    parts = moving.run().breakdown;
    EXPECT_LT(parts.memory, 1e-6 * before.memory);
    // Less than that part is won only where the optimizer or a kernel becomes
    // bound by its arithmetic.
    EXPECT_NEAR(getWork(before) - getWork(parts), before.memory,
                0.1 * before.memory);

    Setting launching = setting;
    launching.cluster.device.launchSeconds = 0;
    launching.training.framework.hostSeconds = 0;
    launching.training.framework.backwardHostSeconds = 0;
    parts = launching.run().breakdown;
    // What remains is the latency of all-reduces of one number: of the
    // gradients' norm, of the loss and of its tokens.
    EXPECT_LT(parts.launch, 0.02 * before.launch);
    EXPECT_NEAR(getWork(before) - getWork(parts), before.launch,
                0.02 * before.launch);
  }
}

TEST(Roofline, SlowHostsAreLaunches) {
  Setting setting;
  setting.shape.hidden = 256;
  setting.shape.heads = 4;
  Breakdown fast = setting.run().breakdown;
  setting.training.framework.hostSeconds += 1e-3;
  setting.training.framework.backwardHostSeconds += 1e-3;
  Breakdown slow = setting.run().breakdown;
  EXPECT_GT(slow.launch, 0.9 * getWork(slow));
  EXPECT_NEAR(slow.memory, fast.memory, 1e-9 * fast.memory);
  EXPECT_NEAR(slow.arithmetic(), fast.arithmetic(), 1e-6 * slow.launch);
}

} // namespace
