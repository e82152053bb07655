//===- Report.h - Reports of the planner ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The same prediction as JSON, as a screen of text, as a page and as a trace.
// All are pure functions of their input: the same input gives the same bytes.
// Wall-clock figures of the search are only in it where they are asked for.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_REPORT_H
#define PLAIT_PLANNER_REPORT_H

#include "plait/Planner/Band.h"
#include "plait/Planner/Exchange.h"
#include "plait/Planner/Projection.h"

namespace plait::planner {

/// The measured times of the same step; 0 or empty where nothing was.
struct Measured {
  std::string source; // "profile p.json"
  double iterationSeconds = 0;
  double pipelineSeconds = 0, dataSeconds = 0, optimizerSeconds = 0;
  std::vector<double> peakBytes; // by rank of the pipeline
};

/// Reads a profile (plait/Plan/Profile.h). Fails when it is none, or was taken
/// on another mesh than the pick's.
Result<Measured> readMeasured(const std::string &path,
                              const Configuration &pick);

/// The content of a report. Has references: lives as long as one call.
struct ReportInput {
  const SearchResult &result;
  const Cluster &cluster;
  const Training &training;
  std::string model = {}; // a name, for titles
  std::string asked = {}; // version, date and command, for pages
  std::optional<Measured> measured = {};
  std::optional<Goal> goal = {}; // adds what a whole training takes
  /// Adds wall-clock figures of the search, which differ from run to run.
  bool withSearchSeconds = false;
};

/// Returns the band of the pick's predicted seconds; nothing for processors, of
/// which no runs are published.
std::optional<Band> getBand(const ReportInput &input);

/// A JSON object, indented, with a newline at the end; docs/Planner.md lists
/// its fields. Seconds, bytes, FLOP.
std::string toJson(const ReportInput &input);

struct TextOptions {
  int width = 80;     // columns; fewer than 60 count as 60
  bool color = false; // ANSI
};

/// --explain: the pick, where time goes, memory against the limit, what else
/// there was and what it loses, the bound.
std::string explainText(const ReportInput &input,
                        const TextOptions &options = {});

/// The pick in short, and with a goal what a whole training takes.
std::string summaryText(const ReportInput &input,
                        const TextOptions &options = {});

/// --compare: one case, with what was found for it or why nothing was.
struct Compared {
  std::string cluster; // as it was given
  /// Says in what it differs from the others, "h100:8, batch 64"; empty: in its
  /// cluster.
  std::string label = {};
  std::optional<ReportInput> report;
  std::string failure; // without a report
};

/// A row a case, in their order, and which are the best. `compared` have the
/// same goal but for its price, or none.
std::string compareText(const std::vector<Compared> &compared,
                        const TextOptions &options = {});
/// {"clusters": […]}: toJson's object for each, and "cluster"; "error" where
/// nothing was found.
std::string compareJson(const std::vector<Compared> &compared);

/// Writes what a rank of each stage exchanges in a step, as tables; stages that
/// do the same have one.
std::string exchangesText(const std::vector<ExchangeList> &lists);
/// {"exchanges": […]}: a list for each stage; docs/Planner.md names the fields.
std::string exchangesJson(const std::vector<ExchangeList> &lists);
/// The same as a page, as writeHtmlReport's. `asked` is of ReportInput.
Status writeHtmlComparison(const std::vector<Compared> &compared,
                           const std::string &asked, const std::string &path);

/// --why-not: the two side by side.
std::string explainText(const WhyNot &answer, const SearchResult &pick,
                        const TextOptions &options = {});

/// How many of the runners-up are too close to call.
std::string describeClose(const SearchResult &result);

/// "a step takes 21.300 s, 11.732 s if it were fused (45 % less)"; `other` is
/// less than `seconds`.
std::string describeFaster(double seconds, double other,
                           const std::string &how);

/// One line for stderr: "considered 5,120 configurations in 0.41 s (…)".
std::string describeSearch(const SearchResult &result);

/// One line: "16 of 256 devices stay idle: …", why that is faster; empty where
/// the pick uses all.
std::string describeIdle(const SearchResult &result);

/// One self-contained page: no script, nothing from the network. Fails when the
/// file cannot be written, or the pick's schedule cannot be generated.
Status writeHtmlReport(const ReportInput &input, const std::string &path);

/// Chrome's trace format, which Perfetto reads: a row for every rank of the
/// pipeline, a counter for its memory. Fails as writeHtmlReport.
Status writeTrace(const ReportInput &input, const std::string &path);

} // namespace plait::planner

#endif // PLAIT_PLANNER_REPORT_H
