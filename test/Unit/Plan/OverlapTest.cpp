//===- OverlapTest.cpp - Products beside collectives ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Overlap.h"

#include "TestPlan.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::test;

namespace {

/// The first stage of the test plan: product, sum over tp, kernel that needs
/// the sum; and behind them a second product like the first.
class OverlapTest : public ::testing::Test {
protected:
  fb::PlanT plan = makePlan();
  fb::FunctionT &function = *plan.programs[0]->functions[0];
  fb::GemmStepT *product = nullptr;

  OverlapTest() {
    fb::StepT &step = append(function.steps);
    step.step.Set(*function.steps[0]->step.AsGemmStep());
    product = step.step.AsGemmStep();
    product->c = std::make_unique<fb::Ref>(3072, -1); // nobody else's
  }

  /// The kinds of the steps afterwards.
  std::vector<fb::StepKind> run() {
    plan::overlapCollectives(plan);
    std::vector<uint8_t> bytes = plan::packPlan(plan);
    Status status = plan::checkPlan(*fb::GetPlan(bytes.data()));
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<fb::StepKind> kinds;
    for (const auto &step : function.steps)
      kinds.push_back(step->step.type);
    return kinds;
  }
};

using Kinds = std::vector<fb::StepKind>;
const Kinds moved = {fb::StepKind::GemmStep, fb::StepKind::CollectiveStep,
                     fb::StepKind::GemmStep, fb::StepKind::KernelStep};
const Kinds kept = {fb::StepKind::GemmStep, fb::StepKind::CollectiveStep,
                    fb::StepKind::KernelStep, fb::StepKind::GemmStep};

TEST_F(OverlapTest, MovesAProductThatNeedsNothingOfTheSum) {
  EXPECT_EQ(run(), moved);
  EXPECT_EQ(function.steps[2]->step.AsGemmStep()->c->offset(), 3072u);
}

TEST_F(OverlapTest, KeepsWhatNeedsTheSum) {
  product->a = std::make_unique<fb::Ref>(0, 0);
  product->a_row = 4;
  EXPECT_EQ(run(), kept);
}

TEST_F(OverlapTest, KeepsWhatWritesWhereAStepBetweenReads) {
  // The tokens, bound to slot 1, which only the kernel uses.
  function.slot_bytes[1] = 72;
  product->c = std::make_unique<fb::Ref>(0, 1);
  EXPECT_EQ(run(), kept);
}

TEST_F(OverlapTest, SeesWhatEpiloguesReadAndWrite) {
  product->epilogue = fb::Epilogue::BiasGelu;
  product->bias = std::make_unique<fb::Ref>(2048, -1);
  product->gelu_input = std::make_unique<fb::Ref>(3584, -1);
  EXPECT_EQ(run(), moved);
}

TEST_F(OverlapTest, KeepsWhatAddsABiasThatNeedsTheSum) {
  product->epilogue = fb::Epilogue::Bias;
  product->bias = std::make_unique<fb::Ref>(0, 0);
  EXPECT_EQ(run(), kept);
}

TEST_F(OverlapTest, KeepsWhatWritesGelusInputWhereAStepBetweenReads) {
  function.slot_bytes[1] = 72;
  product->gelu_input = std::make_unique<fb::Ref>(0, 1);
  product->epilogue = fb::Epilogue::Gelu;
  EXPECT_EQ(run(), kept);
}

TEST_F(OverlapTest, MovesWhatReadsGelusInputBesideAReader) {
  function.slot_bytes[1] = 72;
  product->gelu_input = std::make_unique<fb::Ref>(0, 1);
  product->epilogue = fb::Epilogue::GeluGradient;
  // The kernel writes all that it is given unless it says otherwise.
  auto &kernel = *function.steps[2]->step.AsKernelStep();
  kernel.args = {fb::Ref(0, 1), fb::Ref(0, 0)};
  kernel.arg_bytes = {16, 72};
  kernel.outputs = 1;
  EXPECT_EQ(run(), moved);
}

TEST_F(OverlapTest, SeesThatASlotIsAPlaceOfTheArena) {
  // The result of the second microbatch, of which the steps only say slot 0.
  product->c =
      std::make_unique<fb::Ref>(plan.programs[0]->actions[2]->bindings[0], -1);
  EXPECT_EQ(run(), kept);
}

TEST_F(OverlapTest, TellsSlotsApart) {
  function.slots.push_back("third");
  function.slot_bytes.push_back(72);
  product->c = std::make_unique<fb::Ref>(0, 2);
  for (uint32_t action : {0u, 2u})
    plan.programs[0]->actions[action]->bindings.push_back(3072);
  EXPECT_EQ(run(), moved);
}

TEST_F(OverlapTest, SeesThatTwoSlotsAreOnePlaceInOneAction) {
  function.slots.push_back("third");
  function.slot_bytes.push_back(72);
  product->c = std::make_unique<fb::Ref>(0, 2);
  auto &actions = plan.programs[0]->actions;
  actions[0]->bindings.push_back(3072);
  actions[2]->bindings.push_back(actions[2]->bindings[0]);
  EXPECT_EQ(run(), kept);
}

TEST_F(OverlapTest, KernelsOfUnknownSizeAreInTheWayOfTheirSlotsOnly) {
  auto &kernel = *function.steps[2]->step.AsKernelStep();
  kernel.args.push_back(fb::Ref(2048, -1)); // up to the end of the arena
  EXPECT_EQ(run(), kept);
  kernel.arg_bytes = {72, 16, 64};
  kernel.outputs = 1;
  EXPECT_EQ(run(), moved);
}

} // namespace
