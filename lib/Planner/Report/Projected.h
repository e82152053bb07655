//===- Projected.h - A whole training in words ---------------- -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_REPORT_PROJECTED_H
#define PLAIT_LIB_PLANNER_REPORT_PROJECTED_H

#include "Search/Parts.h"
#include "plait/Planner/Report.h"

namespace plait::planner {

/// "300e9", "1.60e12".
std::string printTokens(double tokens);
/// "$1,243", "1,243 EUR", or the number alone.
std::string printMoney(double money, const Goal &goal, int decimals = 0);
/// Rounds an end of a band to three digits: it has no more.
double roundEnd(double value);
/// "12.3 minutes", "34.0 days".
std::string printDuration(double seconds);
/// "12.3 kWh", "5.7 MWh".
std::string printEnergy(double joules);

/// Returns what the report says of `input.goal`, which is there: names and
/// texts.
std::vector<std::pair<std::string, std::string>>
describeProjection(const Projection &projection, const ReportInput &input);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_REPORT_PROJECTED_H
