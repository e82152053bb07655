//===- Bound.h - Lower bound of pipeline schedules --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A lower bound says how much a better schedule could still gain. It holds for
// every order of the actions, split backwards or whole, that keeps the memory
// limit, not only for those that some generator emits. The proof is in
// lib/Schedule/Bound.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SCHEDULE_BOUND_H
#define PLAIT_SCHEDULE_BOUND_H

#include "plait/Schedule/Simulate.h"

namespace plait::schedule {

/// Parallel to the members of Timeline, in the unit of the costs.
struct Bound {
  double span = 0;
  double bubbleRate = 0;
};

/// No schedule of `problem` that keeps `memory.limit` has a shorter span under
/// `costs`. With several chunks a rank just the work of the busiest rank. Fails
/// where simulate would on the problem and the costs, and when `memory` does
/// not check.
Result<Bound> boundSpan(const Problem &problem, const Costs &costs,
                        const MemoryModel &memory);

} // namespace plait::schedule

#endif // PLAIT_SCHEDULE_BOUND_H
