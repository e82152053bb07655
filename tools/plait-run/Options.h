//===- Options.h - Options of plait-run -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITRUN_OPTIONS_H
#define PLAIT_TOOLS_PLAITRUN_OPTIONS_H

#include "../CommandLine.h"
#include "plait/Runtime/Supervisor.h"
#include "plait/Runtime/Trainer.h"

namespace plait {

struct Options {
  std::string plan;
  std::string profile, trace;            // empty: none
  std::optional<std::string> traceSteps; // see parseSteps; else the last one
  bool check = false;
  double timeout = 600;
  std::string cudaGraph = "on", overlap = "auto", timeMatmuls = "on";
  std::string checkpointEvery, replicaEvery; // see parseCheckpointEvery
  std::string exportPrecision = "fp32";
  std::string onNan = "stop";
  std::string onSpike = "ignore";
  bool supervise = false;
  runtime::SupervisorOptions supervisor; // what its own options say
  runtime::TrainOptions train;

  bool measures() const { return !profile.empty() || !trace.empty(); }
};

/// Adds all options. `app` and `options` outlive each other's use. With
/// `--config` they come from a TOML file as well, those of the command line
/// first.
void addOptions(CLI::App &app, Options &options);

/// Whether somebody has said so: a flag may be given as false, in a file or as
/// --shuffle=false.
bool isGiven(const CLI::Option &option);

/// The first of the given options that has no meaning for a comparison; empty:
/// none.
std::string findExcludedByCheck(const CLI::App &app);

/// All options of a parsed command line that have a value, given or by
/// default, by their long names: one JSON object.
std::string describeSettings(const CLI::App &app, const Options &options);

/// Returns what a process that a supervisor starts is called with, without the
/// plan and --resume: all that was given, in a file, too, but for the
/// supervisor's own.
std::vector<std::string> argumentsOfProcess(const CLI::App &app);

} // namespace plait

#endif // PLAIT_TOOLS_PLAITRUN_OPTIONS_H
