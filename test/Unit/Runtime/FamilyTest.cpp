//===- FamilyTest.cpp - Plans that a run may go on with -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Supervisor/Family.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

struct Case {
  void (*change)(fb::PlanT &);
  const char *message;
};

TEST(PlanFamily, HasOneModelAndOneTraining) {
  std::string directory = makeDirectory();
  std::string first = directory + "/a.plan", other = directory + "/a-4.plan";
  ASSERT_TRUE(plan::writePlan(first, makePlan()).ok());
  const Case cases[] = {
      {[](fb::PlanT &plan) { plan.sequence = 3; },
       "it has sequence 3, the first one 2"},
      {[](fb::PlanT &plan) { plan.optimizer = "lion"; },
       "it has optimizer lion, the first one adamw"},
      {[](fb::PlanT &plan) { plan.parameters[0]->file_name = "other"; },
       "its model has other tensors"}};
  for (const Case &one : cases) {
    fb::PlanT changed = makePlan();
    one.change(changed);
    for (auto &program : changed.programs)
      for (auto &input : program->inputs)
        input->columns = changed.sequence;
    ASSERT_TRUE(plan::writePlan(other, changed).ok());
    EXPECT_EQ(PlanFamily::open(first).status().message(),
              "plan '" + other + "' is not of the same family: " + one.message);
  }
}

} // namespace
