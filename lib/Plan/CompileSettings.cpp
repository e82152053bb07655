//===- CompileSettings.cpp - What a plan was compiled with ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/CompileSettings.h"

#include "plait/Configuration/Configuration.h"
#include "plait/Plan/Adapters.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Sites.h"

#include <algorithm>
#include <cstdlib>

using namespace plait;
using namespace plait::plan;

/// Lists what fields beside `settings` tell.
static Settings readFields(const fb::Plan &plan) {
  Settings settings = {{"schedule", plan.schedule()->str()},
                       {"micro-batch", std::to_string(plan.micro_batch())},
                       {"recompute", plan.recompute()->str()},
                       {"zero", std::to_string(plan.zero())}};
  auto add = [&](const char *name, const flatbuffers::String *value) {
    if (value)
      settings.emplace_back(name, value->str());
  };
  add("context-parallel", plan.context_parallel());
  add("offload", plan.offload());
  settings.emplace_back("global-batch", std::to_string(plan.global_batch()));
  settings.emplace_back("seq", std::to_string(plan.sequence()));
  settings.emplace_back("precision", precisionOf(plan));
  settings.emplace_back("reduce-precision", reducePrecisionOf(plan));
  settings.emplace_back("compress", compressOf(plan));
  if (plan.outer())
    settings.emplace_back("outer", print(outerOf(plan)));
  add("optimizer", plan.optimizer());
  settings.emplace_back("deterministic", print(plan.deterministic()));
  return settings;
}

Settings plan::settingsOf(const fb::Plan &plan) {
  if (!plan.settings())
    return readFields(plan);
  Settings settings;
  for (const fb::Setting *setting : *plan.settings())
    settings.emplace_back(setting->name()->str(), setting->value()->str());
  return settings;
}

double plan::findAlpha(const fb::Plan &plan) {
  for (uint32_t i = 0; i < length(plan.settings()); ++i)
    if (const fb::Setting &setting = *plan.settings()->Get(i);
        setting.name()->string_view() == kAlphaSetting)
      return std::strtod(setting.value()->c_str(), nullptr);
  return 0.0;
}

Settings plan::unusualSettingsOf(const fb::Plan &plan) {
  Settings settings = settingsOf(plan);
  const TrainingConfiguration defaults;
  visitConfiguration(
      [&](const Field &field, const auto &usual) {
        std::erase_if(settings, [&](const auto &setting) {
          return setting.first == field.name && setting.second == print(usual);
        });
      },
      defaults);
  return settings;
}
