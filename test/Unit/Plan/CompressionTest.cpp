//===- CompressionTest.cpp - What plans say of compressed gradients -------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestPlan.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Level.h"
#include "plait/Plan/Uses.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::test;

namespace {

/// What the plan checker says.
std::string check(fb::PlanT &plan) {
  std::vector<uint8_t> bytes = plan::packPlan(plan);
  Status status = plan::checkPlan(*fb::GetPlan(bytes.data()));
  return status.ok() ? "" : status.message();
}

fb::KernelStepT &findKernel(fb::PlanT &plan) {
  for (auto &function : plan.programs[0]->functions)
    for (auto &step : function->steps)
      if (fb::KernelStepT *kernel = step->step.AsKernelStep())
        return *kernel;
  std::abort();
}

TEST(CompressedPlan, StatesOfRanksDifferAlongAnAxisThatThereIs) {
  fb::PlanT plan = makePlan();
  plan.programs[0]->shards[0]->state[1]->own_axis = 1;
  EXPECT_EQ(check(plan), "");
  plan.programs[0]->shards[0]->state[1]->own_axis = 9;
  EXPECT_NE(check(plan).find("differs along axis 9, there are"),
            std::string::npos)
      << check(plan);
}

/// The slot that ranks along axis 1 divide, each with a half.
fb::StateSlotT &divideSlot(fb::PlanT &plan) {
  fb::ShardT &shard = *plan.programs[1]->shards[0];
  uint64_t elements = 1;
  for (int64_t extent : shard.local_shape)
    elements *= extent;
  fb::StateSlotT &slot = *shard.state[1];
  slot.division = std::make_unique<fb::DivisionT>();
  slot.division->axis = 1;
  slot.division->elements = (elements + 1) / 2;
  return slot;
}

TEST(CompressedPlan, SlotsAreDividedByThemselves) {
  fb::PlanT plan = makePlan();
  fb::StateSlotT &slot = divideSlot(plan);
  EXPECT_EQ(check(plan), "");
  EXPECT_EQ(plan::getLevel(*fb::GetPlan(plan::packPlan(plan).data())), 8u);
  auto expect = [&](const char *text) {
    EXPECT_NE(check(plan).find(text), std::string::npos) << check(plan);
  };
  slot.own_axis = 1;
  expect("is divided by itself, but ranks each have another one");
  slot.own_axis = 0;
  slot.like_weight = true;
  expect("is divided by itself, but is divided as the weight is");
  slot.like_weight = false;
  slot.division->axis = 0;
  expect("is divided over axis 0, allowed are 1 to");
  slot.division->axis = 1;
  slot.division->inner_axes = {1};
  expect("is divided over axis 1 twice");
  slot.division->inner_axes = {};
  slot.division->begin = 3;
  expect("elements from element 3 on of a pack of");
  slot.division->begin = 0;
  slot.division->elements = 0;
  expect("has 0 elements, allowed are 1 to");
  slot.division.reset();
  EXPECT_EQ(check(plan), "");
  slot.name = "sum_error";
  EXPECT_EQ(check(plan), ""); // without replicas
  plan.mesh[1]->name = "dp";
  plan.global_batch *= 2;
  expect("is whole, but replicas add up rows of sums");
}

/// By ZeRO 2, which divides what the optimizer keeps, and nothing else does.
TEST(CompressedPlan, GradientsAreAddedToErrors) {
  fb::PlanT plan = makePlan();
  fb::ProgramT &program = *plan.programs[1];
  fb::ShardT &shard = *program.shards[0];
  fb::StateSlotT &error = *shard.state[1];
  error.name = "error";
  error.own_axis = 1;
  auto region = std::make_unique<fb::RegionT>();
  region->name = "error";
  region->category = fb::Category::Optimizer;
  region->offset = error.offset;
  region->bytes = 96;
  region->last_action = program.actions.size() - 1;
  program.regions.push_back(std::move(region));
  EXPECT_EQ(check(plan), "");
  auto expectNone = [&] {
    EXPECT_NE(check(plan).find("is in no region of category Gradients"),
              std::string::npos)
        << check(plan);
  };
  uint64_t own = shard.gradient;
  shard.gradient = error.offset;
  expectNone();
  plan.zero = 2;
  expectNone();
  shard.division = std::make_unique<fb::DivisionT>();
  shard.division->axis = 1;
  shard.division->elements = 12;
  shard.division->reduced = own;
  EXPECT_EQ(check(plan), "");
  plan.zero = 1;
  expectNone();
  plan.zero = 2;
  error.name = "moment2";
  expectNone();
}

TEST(CompressedPlan, IntegersAreArguments) {
  fb::PlanT plan = makePlan();
  fb::KernelStepT &kernel = findKernel(plan);
  kernel.integers = {0};
  EXPECT_EQ(check(plan), "");
  kernel.integers = {uint32_t(kernel.args.size())};
  EXPECT_NE(check(plan).find("has integers in argument"), std::string::npos)
      << check(plan);
}

} // namespace
