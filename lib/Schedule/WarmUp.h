//===- WarmUp.h - Forwards before the first backward ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_SCHEDULE_WARMUP_H
#define PLAIT_LIB_SCHEDULE_WARMUP_H

#include "plait/Schedule/Simulate.h"

#include <optional>
#include <utility>

namespace plait::schedule {

/// How many forwards a rank can hold whole.
uint32_t getCapacity(const Problem &problem, const MemoryModel &memory);

/// The number of forwards that each rank should run before its first input
/// gradient, so that rank r is idle for at most allowance[r] in between and the
/// first input gradients run as early as that permits; none when no numbers up
/// to `capacity` do. One chunk a rank. The proof that nothing else does better
/// is in Bound.cpp.
std::optional<std::vector<uint32_t>>
planWarmUp(const Problem &problem, const Costs &costs, uint32_t capacity,
           const std::vector<double> &allowance);

/// Finds, for a predicate that holds at `high` and from some point on, a value
/// below that point (`low` if it holds there) and one above, next to each other
/// but for rounding.
template <typename Predicate>
std::pair<double, double> bisect(double low, double high, Predicate holds) {
  if (holds(low))
    return {low, low};
  for (int i = 0; i < 60; ++i) {
    double middle = low + (high - low) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return {low, high};
}

} // namespace plait::schedule

#endif // PLAIT_LIB_SCHEDULE_WARMUP_H
