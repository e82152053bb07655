//===- Words.h - Sentences of screens and pages -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_REPORT_WORDS_H
#define PLAIT_LIB_PLANNER_REPORT_WORDS_H

#include "plait/Planner/Report.h"

#include <span>
#include <utility>

namespace plait::planner {

/// Tells the speed of each device: "11,253 tokens/s/GPU, 651.7 TFLOP/s/GPU".
std::string describeEach(const ReportInput &input);

/// Tells the pick in sentences for somebody who knows none of the words.
std::string describePlainly(const ReportInput &input);

/// Tells between which speeds runs like the pick are: "8 of 10 runs: 5.680 s
/// to 6.580 s, …"; empty where none were held against predictions.
std::string describeBand(const ReportInput &input);

/// "-3 to +13 %"; a dash where there is none.
std::string printBand(const ReportInput &input);

/// The same in a sentence, with what it comes from.
std::string describeTrust(const ReportInput &input);

/// Words of reports and what they mean.
std::span<const std::pair<const char *, const char *>> getLegend();

/// Returns what to call a case: its label, or else its cluster.
std::string getLabel(const Compared &one);

/// Tells which of the cases are the fastest, the cheapest and soon enough, a
/// sentence each.
std::vector<std::string> describeBest(const std::vector<Compared> &compared);

/// Tells what of the pick's time no measurement backs; empty where there is
/// nothing.
std::string describeUnmeasured(const ReportInput &input);

/// Tells what ranks exchange around experts, where that is a choice; else
/// empty.
std::string describeExperts(const ReportInput &input);

/// "pp 2, dp 8, tp 4, 1f1b"; what is offloaded is marked as unmeasured.
std::string printMarked(const Configuration &configuration);

/// The same, or what it has changed.
std::string nameAlternative(const Alternative &other);

/// Alternatives that share a row: runners-up of one mesh, all with the same on
/// hosts. `best` is one of those that shareRows() was given.
struct SharedRow {
  const Alternative *best;
  int others; // slower ones
};
std::vector<SharedRow> shareRows(const std::vector<Alternative> &alternatives);

/// Tells what the best of the row loses, and how many others there are.
std::string describeRow(const SharedRow &row);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_REPORT_WORDS_H
