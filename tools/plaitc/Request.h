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
  std::string emit;          // the program that the output is for; empty: none
  bool audits = false;       // compare with the best that there is
  double trainTokens = 0;    // tell what they take; 0: nothing
  /// The price of a device-hour; of several clusters one for all, or one each.
  std::vector<double> prices;
  std::string currency; // of the prices: "$", "EUR"; empty: not said
  double days = 0;      // that a training may take; 0: any
  std::string asked;    // for pages: version, date, command
};

/// One plan, or what is asked in its place.
struct Request {
  ModelOptions model;
  CompileOptions compile;
  PlanningOptions planning;
  ReportOptions report;
  /// Whether the planner decides what is not given; else that has its defaults.
  bool plans = true;
  /// Stop after this phase and write the IR (empty: write the plan).
  std::string compileTo;
  /// The plan, the IR with `compileTo`, or with `emit` what another program
  /// reads; "-" is standard output.
  std::string output;
};

} // namespace plait

#endif // PLAIT_TOOLS_PLAITC_REQUEST_H
