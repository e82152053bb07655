//===- GroupedGemmTest.cpp - The checker on grouped GEMMs -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestPlan.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::test;

namespace {

/// A sound step: 6 rows of 3 tokens, 2 experts of 4 x 5, in the arena of 4096
/// bytes.
fb::GroupedGemmStepT makeStep() {
  fb::GroupedGemmStepT step;
  step.kind = fb::GroupedKind::Matrices;
  step.rows = 6, step.repeat = 2, step.experts = 2, step.k = 4, step.n = 5;
  uint64_t offset = 0;
  for (auto *tensor : {&step.a, &step.b, &step.ids, &step.c})
    *tensor = std::make_unique<fb::Ref>(256 * offset++, -1);
  return step;
}

std::string check(fb::GroupedGemmStepT step) {
  fb::PlanT plan = makePlan();
  append(plan.programs[0]->functions[0]->steps).step.Set(std::move(step));
  std::vector<uint8_t> bytes = plan::packPlan(plan);
  Status status = plan::checkPlan(*fb::GetPlan(bytes.data()));
  return status.ok() ? "" : status.message();
}

struct Case {
  const char *name;
  void (*damage)(fb::GroupedGemmStepT &);
  const char *message; // a part of it
};
using S = fb::GroupedGemmStepT;

const Case cases[] = {
    {"Kind", [](S &s) { s.kind = fb::GroupedKind(7); }, "unknown kind 7"},
    {"Accumulate", [](S &s) { s.accumulate = fb::Accumulate(9); },
     "accumulate 9"},
    {"Type", [](S &s) { s.dtype = fb::DType::I32; }, "has dtype 2"},
    {"Narrow", [](S &s) { s.c_dtype = fb::DType::BF16; }, "c_dtype 1"},
    {"NoRows", [](S &s) { s.rows = 0; }, "has 0 rows"},
    {"Repeat", [](S &s) { s.repeat = 4; }, "6 rows, expected a multiple of 4"},
    {"ManyRows", [](S &s) { s.rows = int64_t(1) << 40; },
     "has 1099511627776 rows"},
    {"NoExperts", [](S &s) { s.experts = 0; }, "C has an impossible size"},
    {"Limit", [](S &s) { s.limit = -1; }, "has a limit of -1"},
    {"Range", [](S &s) { s.n = 500; }, "ends beyond"},
    {"NoIds", [](S &s) { s.ids = nullptr; }, "ids is missing"},
    {"Unaligned", [](S &s) { s.ids = std::make_unique<fb::Ref>(514, -1); },
     "ids at byte 514 is not aligned to 4"},
    {"Overlaps", [](S &s) { s.c = std::make_unique<fb::Ref>(260, -1); },
     "B at byte 256 overlaps C at byte 260"},
    {"Axis", [](S &s) { s.first_expert = {fb::RankScalar(0, 1, 9, false)}; },
     "first expert"}};

class CheckGroupedGemm : public ::testing::TestWithParam<Case> {};

TEST_P(CheckGroupedGemm, Refuses) {
  fb::GroupedGemmStepT step = makeStep();
  GetParam().damage(step);
  EXPECT_NE(check(std::move(step)).find(GetParam().message), std::string::npos)
      << check(makeStep());
}

INSTANTIATE_TEST_SUITE_P(Plan, CheckGroupedGemm, ::testing::ValuesIn(cases),
                         [](const auto &info) {
                           return std::string(info.param.name);
                         });

TEST(CheckPlanGroupedGemm, AcceptsASoundStep) {
  EXPECT_EQ(check(makeStep()), "");
  fb::GroupedGemmStepT rows = makeStep();
  rows.kind = fb::GroupedKind::Rows;
  EXPECT_EQ(check(std::move(rows)), "");
}

} // namespace
