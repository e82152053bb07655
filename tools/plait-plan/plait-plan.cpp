//===- plait-plan.cpp - Looks at plans and schedules ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Commands.h"

#include <CLI/CLI.hpp>

#include <iostream>

using namespace plait;

/// Prints one line, the first letter of which CLI11 writes in upper case.
static int reportError(std::string message, int code = 1) {
  if (!message.empty())
    message[0] = std::tolower(static_cast<unsigned char>(message[0]));
  std::cerr << "plait-plan: " << message << "\n";
  return code;
}

int main(int argc, char **argv) {
  CLI::App app("Shows, checks, compares and simulates plan files, draws "
               "pipeline schedules",
               "plait-plan");
  app.require_subcommand(1);
  const tool::Command commands[] = {
      tool::addShowCommand(app),     tool::addCheckCommand(app),
      tool::addScheduleCommand(app), tool::addSimulateCommand(app),
      tool::addDiffCommand(app),     tool::addCalibrateCommand(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0) // --help
      return app.exit(error);
    return reportError(error.what());
  }

  for (const tool::Command &command : commands) {
    if (!command.app->parsed())
      continue;
    if (Status status = command.run(); !status.ok())
      return reportError(status.message(), command.failureCode);
    if (command.exitCode)
      return command.exitCode();
  }
  return 0;
}
