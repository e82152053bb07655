//===- Checks.h - Configurations that make no sense -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_CHECKS_H
#define PLAIT_LIB_PLANNER_SIMULATOR_CHECKS_H

#include "BlockTime.h"

namespace plait::planner {

/// All that estimate() says about its arguments, but for what the schedule
/// itself finds. Success means that every count is positive, that no product of
/// them overflows, and that the layers can be cut.
Status checkConfiguration(const Context &context);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_CHECKS_H
