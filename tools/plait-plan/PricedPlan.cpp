//===- PricedPlan.cpp - A plan with predicted costs -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PricedPlan.h"

#include "Commands.h"
#include "plait/Plan/Files.h"

#include <CLI/CLI.hpp>

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

void tool::addPricedOptions(CLI::App &command, PricedOptions &options) {
  command.add_option("plan", options.plan, "The .plan file")->required();
  command.add_option("--cluster", options.cluster,
                     "What it runs on (default: what the plan was made for)");
  command.add_option("--json", options.json, jsonHelp);
}

Result<tool::PricedFile> tool::openPriced(const PricedOptions &options) {
  PLAIT_RETURN_IF_ERROR(
      checkOutputs({{"--json", options.json}},
                   {{"plan", options.plan}, {"--cluster", options.cluster}}));
  Result<plan::PlanFile> file = plan::PlanFile::open(options.plan);
  if (!file.ok())
    return file.status();
  Result<PricedPlan> priced = pricePlan(file->plan(), options.cluster);
  if (!priced.ok())
    return priced.status();
  return PricedFile{std::move(*file), std::move(*priced)};
}
