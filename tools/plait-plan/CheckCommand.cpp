//===- CheckCommand.cpp - plait-plan check --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the compiler does before it writes a plan and the runtime after it has
// read one, by itself. The proof that a plan trains its model is another thing,
// and is in the plan (docs/Proof.md).
//
//===----------------------------------------------------------------------===//

#include "Commands.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Defaults.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>

using namespace plait;

/// Notes what is no error, since it depends on the machine. The plan is sound
/// where messages of one route wait for each other; it may hang where all of
/// them do.
static void noteSerialLaunch(const plan::fb::Plan &plan) {
  if (!plan::isCuda(plan))
    return;
  Status status = plan::checkProgress(plan, plan::LaunchOrder::Serial);
  if (!status.ok())
    std::cerr
        << "plait-plan: note: needs --cuda-graph off with a driver before "
           "CUDA 12.9, where NCCL does one thing at a time: "
        << status.message() << "\n";
}

/// "ok" on standard output, whatever is noted.
tool::Command tool::addCheckCommand(CLI::App &app) {
  CLI::App *command = app.add_subcommand("check", "Prove a plan file sound");
  auto path = std::make_shared<std::string>();
  command->add_option("plan", *path, "The .plan file")->required();
  return {command, [path] {
            // Opening runs every check there is.
            Result<plan::PlanFile> file = plan::PlanFile::open(*path);
            if (!file.ok())
              return file.status();
            std::cout << "ok\n";
            noteSerialLaunch(file->plan());
            return Status::success();
          }};
}
