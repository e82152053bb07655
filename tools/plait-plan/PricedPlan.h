//===- PricedPlan.h - A plan with predicted costs ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAIT_PLAN_PRICEDPLAN_H
#define PLAIT_TOOLS_PLAIT_PLAN_PRICEDPLAN_H

#include "plait/Plan/Container.h"
#include "plait/Planner/PlanCost.h"

#include <string>

namespace CLI {
class App;
} // namespace CLI

namespace plait::tool {

/// A replay's input: what a plan's steps cost on a cluster, and its messages.
struct PricedPlan {
  planner::Cluster cluster;
  std::vector<plan::Message> messages;
  plan::ReplayCosts costs;
};

/// Predicts the costs on the cluster that is called so or, if it is empty, on
/// the one that the plan was made for. Warns on standard error of another one.
Result<PricedPlan> pricePlan(const plan::fb::Plan &plan,
                             const std::string &cluster);

/// Options of the commands that price a plan and print the result.
struct PricedOptions {
  std::string plan, cluster;
  std::string json; // a file; empty: none
};

/// Adds the options to a command. They have to live as long as it does.
void addPricedOptions(CLI::App &command, PricedOptions &options);

struct PricedFile {
  plan::PlanFile file;
  PricedPlan priced;
};

/// Opens and prices the plan; fails as well where an output would take the
/// place of what is read.
Result<PricedFile> openPriced(const PricedOptions &options);

} // namespace plait::tool

#endif // PLAIT_TOOLS_PLAIT_PLAN_PRICEDPLAN_H
