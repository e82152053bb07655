//===- MetricsTest.cpp - When a step knows its metrics --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Metrics.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::plan;

namespace {

class MetricsTest : public testing::Test {
protected:
  fb::PlanT source = test::makePlan();
  fb::FunctionT &finish = *source.programs[0]->functions[1];

  /// Zeroes 4 bytes of the arena before step `index`.
  void insertFill(size_t index, uint64_t offset) {
    fb::FillStepT fill;
    fill.target = std::make_unique<fb::Ref>(offset, -1);
    fill.bytes = 4;
    auto step = std::make_unique<fb::StepT>();
    step->step.Set(std::move(fill));
    finish.steps.insert(finish.steps.begin() + index, std::move(step));
  }

  Result<uint32_t> count() {
    bytes = packPlan(source);
    return countMetricSteps(*fb::GetPlan(bytes.data()), 0);
  }

  std::vector<uint8_t> bytes;
};

TEST_F(MetricsTest, AreKnownAfterTheLastStepThatWritesThem) {
  auto steps = count();
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ(*steps, 2u);
  // What comes between counts, what comes after does not.
  insertFill(1, 4000);
  insertFill(3, source.programs[0]->shards[0]->weight);
  steps = count();
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ(*steps, 3u);
}

TEST_F(MetricsTest, AreNotKnownBeforeParametersChange) {
  insertFill(1, source.programs[0]->shards[0]->weight + 92);
  auto steps = count();
  ASSERT_FALSE(steps.ok());
  EXPECT_EQ(steps.status().message(),
            "program 0 changes what it trains in step 1 of 'finish', its "
            "metrics are known after step 2");
}

TEST_F(MetricsTest, NeedForwardPassesOnly) {
  bytes = packPlan(source);
  const auto &actions =
      *fb::GetPlan(bytes.data())->programs()->Get(0)->actions();
  for (const fb::Action *action : actions)
    EXPECT_EQ(isForward(*action), action->kind() != fb::ActionKind::Optimizer);
  fb::ActionT &send = *source.programs[0]->actions[1];
  ASSERT_EQ(send.kind, fb::ActionKind::Send);
  send.direction = fb::Direction::Backward;
  bytes = packPlan(source);
  EXPECT_FALSE(isForward(
      *fb::GetPlan(bytes.data())->programs()->Get(0)->actions()->Get(1)));
}

} // namespace
