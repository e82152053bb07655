//===- Options.h - Numbers that a run sets of a plan ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_OPTIONS_H
#define PLAIT_PLAN_OPTIONS_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

namespace plait::plan {

/// The numbers at Program.scalars, at most.
inline constexpr uint32_t kMostScalars = 64;

/// Returns how many numbers the programs have room for at Program.scalars.
uint32_t countScalars(const fb::Plan &plan);

/// Success where the options of the plan's optimizer have names and numbers of
/// their own, and defaults within their bounds.
Status checkOptions(const fb::Plan &plan);

} // namespace plait::plan

#endif // PLAIT_PLAN_OPTIONS_H
