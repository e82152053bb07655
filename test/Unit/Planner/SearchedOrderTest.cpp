//===- SearchedOrderTest.cpp - Tests of bounds of orders ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SearchSetting.h"
#include "Simulator/Estimator.h"

#include <random>

using namespace plait;
using namespace plait::planner;

namespace {

/// One of a search's questions, drawn anew for each.
struct Drawn : SmallModel {
  std::mt19937 &random;
  Configuration configuration;
  Work work;

  explicit Drawn(std::mt19937 &random) : SmallModel(48), random(random) {
    cluster = *parseCluster(pick({"a100-80g:2x4", "h100:1x8", "v100:4x2"}));
    cluster.device.memoryBytes = pick({5e9, 8e9, 12e9, 16e9, 24e9, 80e9});
    shape.layers = pick({8, 11, 16});
    configuration.schedule = "zb-auto";
    configuration.mesh[Axis::PP] = pick({2, 4, 8});
    configuration.chunks = pick({1, 1, 2});
    configuration.mesh[Axis::DP] = 8 / configuration.mesh[Axis::PP];
    configuration.zero = pick({0, 1, 3});
    configuration.microBatch = pick({1, 2, 3});
    configuration.recompute = pick({Recompute::None, Recompute::Full});
    work = buildTransformerWork(shape, 1, false);
  }

  /// The least that a pipeline of it takes.
  double getBound() const {
    Context context{work, cluster, training, configuration};
    Result<double> bound = Estimator(context).runLeastOrder();
    EXPECT_TRUE(bound.ok());
    return bound.ok() ? *bound : 0;
  }

private:
  template <typename T> T pick(std::initializer_list<T> choices) {
    return choices.begin()[random() % choices.size()];
  }
};

} // namespace

/// Holds them against the order that an estimate takes. Most are
/// near it.
TEST(SearchedOrder, BoundHolds) {
  std::mt19937 random(1);
  int fit = 0, near = 0, full = 0;
  for (int i = 0; i < 300; ++i) {
    Drawn drawn(random);
    auto estimate = planner::estimate(drawn.work, drawn.cluster, drawn.training,
                                      drawn.configuration);
    if (!estimate.ok()) // as many stages as there are no layers for
      continue;
    double bound = drawn.getBound(), taken = estimate->pipelineSeconds;
    EXPECT_LE(bound, taken * (1 + 1e-9)) << print(drawn.configuration);
    fit += !estimate->isTooLarge(drawn.cluster.device);
    near += bound > 0.7 * taken;
    Drawn ample = drawn;
    ample.cluster.device.memoryBytes = 1e13;
    full += bound > ample.getBound();
  }
  EXPECT_GT(fit, 100);
  EXPECT_GT(near, 225); // 221 if ranks without memory were never idle
  EXPECT_GT(full, 150); // where memory is the reason
}
