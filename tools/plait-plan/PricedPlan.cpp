//===- PricedPlan.cpp - A plan with predicted costs -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PricedPlan.h"

#include <iostream>

using namespace plait;

Result<tool::PricedPlan> tool::pricePlan(const plan::fb::Plan &plan,
                                         const std::string &cluster) {
  Result<planner::PlanCluster> found = planner::clusterOf(plan, cluster);
  if (!found.ok())
    return found.status();
  if (!found->warning.empty())
    std::cerr << "plait-plan: warning: " << found->warning << "\n";
  Result<std::vector<plan::Message>> messages = plan::matchMessages(plan);
  if (!messages.ok())
    return messages.status();
  Result<plan::ReplayCosts> costs =
      planner::predictCosts(plan, *messages, found->cluster);
  if (!costs.ok())
    return costs.status();
  return PricedPlan{std::move(found->cluster), std::move(*messages),
                    std::move(*costs)};
}
