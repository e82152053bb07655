//===- Execute.h - Runs the lists of a schedule together --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_SCHEDULE_EXECUTE_H
#define PLAIT_LIB_SCHEDULE_EXECUTE_H

#include "plait/Schedule/Simulate.h"

namespace plait::schedule {

/// Executes a schedule for which verifyLists() holds. Fails only when it
/// deadlocks; whether it does, depends on no cost.
Result<Timeline> execute(const Schedule &schedule, const Costs &costs);

} // namespace plait::schedule

#endif // PLAIT_LIB_SCHEDULE_EXECUTE_H
