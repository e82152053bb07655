//===- OptimizerOptions.cpp - Numbers of a plan's optimizer ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A plan says what a run may set of its optimizer. Plans that were made before
// they did have one of the optimizers of that time, whose row says it.
//
//===----------------------------------------------------------------------===//

#include "OptimizerOptions.h"

#include "plait/Configuration/Optimizers.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Json.h"
#include "plait/Plan/Scalars.h"

using namespace plait;
using namespace plait::runtime;
using Json = nlohmann::ordered_json;

std::vector<PlanOption> runtime::getOptions(const fb::Plan &plan) {
  std::vector<PlanOption> options;
  if (plan.options()) {
    for (const fb::OptimizerOption *option : *plan.options())
      options.push_back({option->name()->string_view(), option->value(),
                         option->least(), option->most(), option->scalar(),
                         option->correction(),
                         option->shared() ? option->shared()->string_view()
                                          : std::string_view()});
    return options;
  }
  auto row = findOptimizer(plan.optimizer() ? plan.optimizer()->string_view()
                                            : "adamw");
  if (!row.ok())
    return options;
  for (const OptimizerOption &option : (*row)->options)
    options.push_back({option.name, option.value, option.least, option.most,
                       size_t(findStepScalar(option.scalar)),
                       option.correction.empty()
                           ? 0
                           : size_t(findStepScalar(option.correction))});
  return options;
}

double PlanOption::choose(const TrainOptions &options) const {
  for (std::string_view option : {name, shared})
    if (auto given = options.optimizer.find(std::string(option));
        given != options.optimizer.end() && given->second)
      return *given->second;
  return value;
}

/// The settings have an entry for every option of any optimizer, in their
/// order; what nobody has given is null.
void runtime::completeSettings(TrainOptions &options, const fb::Plan &plan) {
  if (options.settings.empty())
    return;
  auto settings = parsePrintedJson<Json>(options.settings);
  for (const PlanOption &option : getOptions(plan))
    if (option.name != plan::kStepOption)
      settings[std::string(option.name)] = option.choose(options);
  Json complete = Json::object();
  for (const auto &[name, value] : settings.items())
    if (!value.is_null())
      complete[name] = value;
  options.settings = complete.dump();
}
