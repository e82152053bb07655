//===- Commands.h - The subcommands of plait-plan ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each function adds one subcommand to `app` with its options, and returns what
// runs it after parsing. The options live in the returned function; a failure
// it returns is printed by main().
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAIT_PLAN_COMMANDS_H
#define PLAIT_TOOLS_PLAIT_PLAN_COMMANDS_H

#include "plait/Support/Status.h"

#include <functional>

namespace CLI {
class App;
} // namespace CLI

namespace plait::tool {

struct Command {
  CLI::App *app; // the subcommand, owned by the application
  std::function<Status()> run;
  /// The code to exit with after success; none: 0.
  std::function<int()> exitCode = nullptr;
  int failureCode = 1;
};

/// The help of all commands that have --json.
inline constexpr char jsonHelp[] =
    "The same as JSON, into a file; -: in place of the text";

/// `show PLAN`: what a plan is, what it costs and its schedule as a chart.
Command addShowCommand(CLI::App &app);
/// `check PLAN`: prints `ok` when the checker accepts the plan.
Command addCheckCommand(CLI::App &app);
/// `schedule --kind K …`: generates, verifies and simulates a schedule.
Command addScheduleCommand(CLI::App &app);
/// `simulate PLAN`: replays the plan with predicted or measured times.
Command addSimulateCommand(CLI::App &app);
/// `lint PLAN`: what a step is above its floor, and signs of lost time.
Command addLintCommand(CLI::App &app);
/// `exchanges PLAN`: what ranks exchange in a step.
Command addExchangesCommand(CLI::App &app);
/// `diff A B`: what is different; exits as diff(1) does, with 0, 1 or 2.
Command addDiffCommand(CLI::App &app);
/// `calibrate PROFILE…`: fits a hardware file to measured times.
Command addCalibrateCommand(CLI::App &app);
/// `reshard CHECKPOINT --to PLAN -o DIR`: rewrites a checkpoint.
Command addReshardCommand(CLI::App &app);

} // namespace plait::tool

#endif // PLAIT_TOOLS_PLAIT_PLAN_COMMANDS_H
