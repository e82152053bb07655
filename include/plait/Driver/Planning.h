//===- Planning.h - Let the planner choose the options ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What `plaitc --cluster` does: profiles the model with the compiler's passes,
// searches, tells what it has found, and fills in the options of a compilation.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DRIVER_PLANNING_H
#define PLAIT_DRIVER_PLANNING_H

#include "plait/Driver/Driver.h"
#include "plait/Planner/Projection.h"

namespace plait {

struct PlanningOptions {
  planner::Pins pins;
  std::string framework = "plait"; // as planner::findFramework knows it
  bool compiles = true;            // what is chosen has to be executable
  bool predict = false;            // the choice in short, as text
  bool explain = false;            // text
  std::string json;                // file of the prediction; empty: none
  std::string whyNot;              // pins to compare the choice with
  std::string report, trace;       // files to write; empty: none
  std::string profile;             // of plait-run, to compare with; empty: none
  double trainTokens = 0;          // tell what they take; 0: nothing
  /// The price of a device-hour; of several clusters one for all, or one each.
  std::vector<double> prices;
  std::string currency; // of the prices: "$", "EUR"; empty: not said
  double days = 0;      // that a training may take; 0: any
  std::string asked;    // for pages: version, date, command
  /// Receives why no configuration was found. That is no failure then, and the
  /// options stay as they are. Null: it is one.
  std::string *notFound = nullptr;
};

/// Whether `options` name a model that can be planned for: nothing is decided
/// yet, as it is in what a compilation has left, and it has no batch of its
/// own. What cannot be read is none, and not told of.
bool isPlannable(const CompileOptions &options);

/// Searches for the best configuration of the model, global batch, sequence and
/// cluster that `options` name, writes what `planning` asks for, and sets mesh,
/// schedule, microbatch, recomputation, sequence parallelism and stages of
/// `options`. On failure the reason has been printed to standard error.
bool choose(CompileOptions &options, const PlanningOptions &planning);

/// The parts of a question that one of several predictions has of its own.
struct PlanningCase {
  std::string cluster;
  // Nothing: those of the options.
  std::optional<int64_t> globalBatch = {}, sequence = {};
  std::string label = {}; // "batch 64"; empty: the cluster
};

/// Searches in each of `cases` for what choose() would, and tells what comes
/// out side by side: as text, and as JSON and as a page where `planning` asks
/// for it. One where no configuration is found is told as well. Prices are one
/// for all or one each. On failure the reason has been printed to standard
/// error.
bool compare(const CompileOptions &options, const PlanningOptions &planning,
             const std::vector<PlanningCase> &cases);

} // namespace plait

#endif // PLAIT_DRIVER_PLANNING_H
