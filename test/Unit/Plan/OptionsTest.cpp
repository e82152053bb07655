//===- OptionsTest.cpp - Numbers that a run sets of a plan ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Options.h"

#include "TestPlan.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace plait;
using namespace plait::test;

namespace {

fb::OptimizerOptionT makeOption(const std::string &name, uint8_t scalar) {
  fb::OptimizerOptionT option;
  option.name = name;
  option.scalar = scalar;
  option.value = 0.5;
  option.most = 1;
  return option;
}

/// Packs a plan with these options.
std::vector<uint8_t> pack(const std::vector<fb::OptimizerOptionT> &options) {
  fb::PlanT plan = makePlan();
  for (const fb::OptimizerOptionT &option : options)
    append(plan.options, option);
  return plan::packPlan(plan);
}

/// Says what the plan checker says of a packed plan.
std::string check(const std::vector<uint8_t> &bytes) {
  Status status = plan::checkPlan(*fb::GetPlan(bytes.data()));
  return status.ok() ? "" : status.message();
}

std::string check(const std::vector<fb::OptimizerOptionT> &options) {
  return check(pack(options));
}

TEST(PlanOptions, CountNumbersBehindThoseOfEveryOptimizer) {
  fb::OptimizerOptionT last = makeOption("momentum", 9);
  last.correction = 12;
  EXPECT_EQ(check({makeOption("beta1", 1), last}), "");
  fb::PlanT plan = makePlan();
  auto count = [&] {
    std::vector<uint8_t> bytes = plan::packPlan(plan);
    return plan::countScalars(*fb::GetPlan(bytes.data()));
  };
  EXPECT_EQ(count(), uint32_t(fb::Scalar::Count));
  append(plan.options, last);
  EXPECT_EQ(count(), 13u);
}

TEST(PlanOptions, RefuseNamesThatAreNone) {
  EXPECT_EQ(check({makeOption("beta", 1), makeOption("beta", 2)}),
            "option 1 of the optimizer is called 'beta', as another one or as "
            "nothing is");
  EXPECT_EQ(check({makeOption("", 1)}),
            "option 0 of the optimizer is called '', as another one or as "
            "nothing is");
}

TEST(PlanOptions, RefuseNumbersOfOthers) {
  auto expect = [](const fb::OptimizerOptionT &option, int scalar) {
    EXPECT_EQ(check({option}),
              "option 'beta' of the optimizer is scalar " +
                  std::to_string(scalar) +
                  ", which is another number's or not below 64");
  };
  expect(makeOption("beta", 64), 64);
  // The learning rate and the largest norm are the trainer's.
  expect(makeOption("beta", 0), 0);
  expect(makeOption("beta", 5), 5);
  fb::OptimizerOptionT option = makeOption("beta", 1);
  option.correction = 1;
  expect(option, 1);
}

TEST(PlanOptions, MayBeSetByThoseOfAll) {
  fb::OptimizerOptionT option = makeOption("lion-beta", 20);
  option.shared = "beta";
  EXPECT_EQ(check({makeOption("beta", 1), option}), "");
  EXPECT_EQ(check({option}), ""); // the plan's own optimizer may have none
  // Packing leaves empty names out, so that this one is emptied in the bytes:
  // its length stands four bytes ahead of its letters.
  std::vector<uint8_t> bytes = pack({option});
  const auto *shared = fb::GetPlan(bytes.data())->options()->Get(0)->shared();
  size_t length = shared->Data() - bytes.data() - sizeof(uint32_t);
  std::fill_n(bytes.begin() + length, sizeof(uint32_t), 0);
  EXPECT_EQ(check(bytes), "option 'lion-beta' of the optimizer is set by one "
                          "without a name");
}

TEST(PlanOptions, RefuseDefaultsOutOfBounds) {
  fb::OptimizerOptionT option = makeOption("beta", 1);
  option.value = 2;
  EXPECT_EQ(check({option}),
            "option 'beta' of the optimizer is 2, outside of 0 to 1");
  option = makeOption("beta", 1);
  option.least = NAN;
  EXPECT_EQ(check({option}),
            "option 'beta' of the optimizer is 0.5, outside of nan to 1");
}

} // namespace
