//===- Execute.h - Runs the lists of a schedule together --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_SCHEDULE_EXECUTE_H
#define PLAIT_LIB_SCHEDULE_EXECUTE_H

#include "plait/Schedule/Simulate.h"

#include <optional>

namespace plait::schedule {

/// Executes a schedule for which verifyLists() holds. Fails only when it
/// deadlocks; whether it does, depends on no cost.
Result<Timeline> execute(const Schedule &schedule, const Costs &costs);

/// An action that a rank waits at for ever.
struct Blocked {
  uint32_t rank;
  size_t action; // index
};

/// Tells where execute() would fail, on the lowest rank that it fails on.
std::optional<Blocked> findBlocked(const Schedule &schedule);

} // namespace plait::schedule

#endif // PLAIT_LIB_SCHEDULE_EXECUTE_H
