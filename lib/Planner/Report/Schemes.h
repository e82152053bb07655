//===- Schemes.h - What schemes of sites take -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_REPORT_SCHEMES_H
#define PLAIT_LIB_PLANNER_REPORT_SCHEMES_H

#include "plait/Planner/Report.h"

#include <nlohmann/json.hpp>

namespace plait::planner {

/// The pick with another scheme between its sites, for as many tokens.
struct SchemeCost {
  std::string outer;      // as --outer has it
  double seconds = 0;     // of a step, in the mean
  double sent = 0;        // bytes of a rank in a step, in the mean
  double utilisation = 0; // the part of a step that a site alone would take
};

/// The schemes that are compared with that of `input`, it included, the fastest
/// first; none where there are no sites.
std::vector<SchemeCost> rankSchemes(const ReportInput &input);

/// The least that makes sites take no more than a twentieth of a step.
struct Enough {
  /// Steps from one mean to the next; none: what sites tell in each step takes
  /// longer.
  std::optional<int64_t> every;
  /// How much smaller a message of each step has to be; none: what is left is
  /// latency, and too long.
  std::optional<double> smaller;
};
Enough findEnough(const ReportInput &input);

/// "less than 5 % of a step with means every 120 steps, or with …".
std::string describe(const Enough &enough);

/// The utilisation by a scheme over links of several rates, ascending.
struct Utilisation {
  std::string outer;
  std::vector<double> bandwidths, parts; // bytes/s of a site
};

/// One for each compared scheme; none where no link between sites is known.
std::vector<Utilisation> findUtilisation(const ReportInput &input);

nlohmann::ordered_json getSchemes(const ReportInput &input);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_REPORT_SCHEMES_H
