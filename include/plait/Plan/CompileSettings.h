//===- CompileSettings.h - What a plan was compiled with --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_COMPILESETTINGS_H
#define PLAIT_PLAN_COMPILESETTINGS_H

#include "plait/Plan/Plan_generated.h"

#include <string>
#include <utility>
#include <vector>

namespace plait::plan {

/// An option of plaitc without its dashes, and its value as it is typed.
using Settings = std::vector<std::pair<std::string, std::string>>;

/// Returns what the plan was compiled with, in the order of plaitc's options.
/// Of plans that do not say it, which earlier versions have written, returns
/// what their other fields tell.
Settings settingsOf(const fb::Plan &plan);

/// Returns those of them that are not at plaitc's default.
Settings unusualSettingsOf(const fb::Plan &plan);

/// Returns alpha of adapters; 0: the plan trains none.
double findAlpha(const fb::Plan &plan);

} // namespace plait::plan

#endif // PLAIT_PLAN_COMPILESETTINGS_H
