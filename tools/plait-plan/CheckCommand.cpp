//===- CheckCommand.cpp - plait-plan check --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Commands.h"
#include "plait/Plan/Container.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>

using namespace plait;

tool::Command tool::addCheckCommand(CLI::App &app) {
  CLI::App *command = app.add_subcommand("check", "Prove a plan file sound");
  auto path = std::make_shared<std::string>();
  command->add_option("plan", *path, "The .plan file")->required();
  return {command, [path] {
            // Opening runs every check there is.
            Result<plan::PlanFile> file = plan::PlanFile::open(*path);
            if (file.ok())
              std::cout << "ok\n";
            return file.status();
          }};
}
