//===- CompressionTest.cpp - What plans say of compressed gradients -------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestPlan.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
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
