//===- Options.h - Options of plait-run -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNOPTIONS_OPTIONS_H
#define PLAIT_LIB_RUNOPTIONS_OPTIONS_H

#include "plait/Plan/Container.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Runtime/Supervisor.h"
#include "plait/Runtime/Trainer.h"
#include "plait/Support/CommandLine.h"

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
  std::string stress = "none";
  bool supervise = false;
  runtime::SupervisorOptions supervisor; // what its own options say
  std::string coordinate; // where sites are coordinated; empty: they are not
  double roundTimeout = 30;
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

/// The same for what coordinates sites, and executes nothing.
std::string findExcludedByCoordinator(const CLI::App &app);

/// All options of a parsed command line that have a value, given or by
/// default, by their long names: one JSON object.
std::string describeSettings(const CLI::App &app, const Options &options);

/// Fails where options contradict each other, or an output would take the place
/// of what is read.
Status checkOptions(const CLI::App &app, const Options &options);

/// Refuses what was asked for and means nothing to the plan. Its default may.
Status checkMismatches(const CLI::App &app, const plan::PlanFile &file,
                       const Options &options);

/// Sets those of `options` that depend on the processes of the run, null: this
/// one alone; and what the runtime is told of all options.
void bindOptions(const CLI::App &app, Options &options,
                 runtime::Rendezvous *processes);

/// Sets those of the runtime that words stand for, when all others are known.
Status completeOptions(Options &options);

/// Returns what a process that a supervisor starts is called with, without the
/// plan and --resume: all that was given, in a file, too, but for the
/// supervisor's own.
std::vector<std::string> argumentsOfProcess(const CLI::App &app);

} // namespace plait

#endif // PLAIT_LIB_RUNOPTIONS_OPTIONS_H
