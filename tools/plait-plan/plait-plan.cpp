//===- plait-plan.cpp - Looks at plans and schedules ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Commands are in files of their own (Commands.h); here the one that was asked
// for is run, and its failure printed.
//
//===----------------------------------------------------------------------===//

#include "Commands.h"
#include "plait/Plan/Signals.h"
#include "plait/Support/CommandLine.h"
#include "plait/Support/Help.h"

using namespace plait;

/// CLI11 has seen to it that there is exactly one.
int main(int argc, char **argv) {
  CLI::App app("Shows, checks, compares and simulates plan files, draws "
               "pipeline schedules",
               "plait-plan");
  // Commands that are added take it over.
  app.formatter(std::make_shared<tool::HelpFormatter>());
  app.require_subcommand(1);
  // In the order of the help.
  const tool::Command commands[] = {
      tool::addShowCommand(app),     tool::addCheckCommand(app),
      tool::addScheduleCommand(app), tool::addSimulateCommand(app),
      tool::addLintCommand(app),     tool::addExchangesCommand(app),
      tool::addDiffCommand(app),     tool::addCalibrateCommand(app),
      tool::addReshardCommand(app)};
  // After them: they would show the same examples.
  app.footer("Examples:\n"
             "  plait-plan show nano.plan\n"
             "  plait-plan schedule --kind zb-h1 --stages 4 --microbatches 8\n"
             "  plait-plan COMMAND --help prints the options of a command\n");
  if (std::optional<int> code = tool::parse(app, argc, argv))
    return *code;
  // Outputs are written aside first: a signal must not leave halves behind.
  removeTemporaryFilesOnSignals();
  for (const tool::Command &command : commands) {
    if (!command.app->parsed())
      continue;
    if (Status status = command.run(); !status.ok()) {
      tool::printError(app, status.message());
      return command.failureCode;
    }
    // Only `diff` says something by it.
    return tool::finish(app, command.exitCode ? command.exitCode() : 0,
                        command.failureCode);
  }
  return 0;
}
