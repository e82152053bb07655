//===- ScheduleOutput.h - Output of plait-plan schedule ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAIT_PLAN_SCHEDULEOUTPUT_H
#define PLAIT_TOOLS_PLAIT_PLAN_SCHEDULEOUTPUT_H

#include "ChartOutput.h"
#include "plait/Schedule/Simulate.h"

#include <optional>

namespace plait::tool {

/// A schedule and what it was made for.
struct Order {
  schedule::Schedule schedule;
  schedule::Costs costs; // of virtual stages
  /// Layers of each virtual stage; empty where none were given.
  std::vector<int> cut = {};
  /// The bound of the makespan where there is a cut, of the bubble rate
  /// otherwise.
  std::optional<double> lowerBound = std::nullopt;
};

/// Fails as simulate() does.
Result<std::string> printJson(const Order &order);
/// The chart and the figures, for people.
Result<std::string> printText(const Order &order, const ChartFlags &flags);

} // namespace plait::tool

#endif // PLAIT_TOOLS_PLAIT_PLAN_SCHEDULEOUTPUT_H
