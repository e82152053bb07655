//===- Request.h - What a user asks plaitc for ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITC_REQUEST_H
#define PLAIT_TOOLS_PLAITC_REQUEST_H

#include "plait/Driver/Session.h"

#include <optional>
#include <string>
#include <vector>

namespace plait {

/// Says what is told and written of a choice of the planner.
struct ReportOptions {
  bool predict = false;      // the choice in short, as text
  bool explain = false;      // text
  std::string json;          // file of the prediction; empty: none
  std::string whyNot;        // pins to compare the choice with
  std::string report, trace; // files to write; empty: none
  std::string profile;       // of plait-run, to compare with; empty: none
  double trainTokens = 0;    // tell what they take; 0: nothing
  /// The price of a device-hour; of several clusters one for all, or one each.
  std::vector<double> prices;
};

/// One plan, or what is asked in its place.
struct Request {
  ModelOptions model;
  CompileOptions compile;
  PlanningOptions planning;
  ReportOptions report;
  /// Stop after this phase and write the IR (empty: write the plan).
  std::string compileTo;
  /// The plan, or the IR with `compileTo`; "-" is standard output.
  std::string output;
};

} // namespace plait

#endif // PLAIT_TOOLS_PLAITC_REQUEST_H
