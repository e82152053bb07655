//===- ExchangesCommand.cpp - plait-plan exchanges ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Prints what goes over wires, axis by axis: of a compiled plan, so that a
// prediction (plaitc --explain) can be held against it.
//
//===----------------------------------------------------------------------===//

#include "Commands.h"
#include "PricedPlan.h"
#include "TextOutput.h"
#include "plait/Planner/Report.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>

using namespace plait;
using tool::format;
namespace fb = plait::plan::fb;

/// Times are predicted, with ranks that communicate beside computing if those
/// of the plan can: else all are in one stream, of which each has its time.
static Result<std::vector<planner::ExchangeList>>
listOf(const fb::Plan &plan, const tool::PricedPlan &priced) {
  Result<plan::Replayed> replayed = planner::replayStep(
      plan, priced.messages, priced.costs, /*overlaps=*/true);
  if (!replayed.ok())
    return replayed.status();
  return planner::listExchanges(plan, *replayed);
}

static Status run(const tool::PricedOptions &options) {
  Result<tool::PricedFile> opened = tool::openPriced(options);
  if (!opened.ok())
    return opened.status();
  const fb::Plan &plan = opened->file.plan();
  auto lists = listOf(plan, opened->priced);
  if (!lists.ok())
    return lists.status();
  if (!options.json.empty())
    PLAIT_RETURN_IF_ERROR(
        writeTextFile(options.json, planner::exchangesJson(*lists)));
  if (!isStandardOutput(options.json))
    std::cout << "mesh      " << planner::printMesh(plan) << "\ncosts     "
              << opened->priced.cluster.name << "\n\n"
              << planner::exchangesText(*lists);
  return Status::success();
}

/// The options live as long as the command does.
tool::Command tool::addExchangesCommand(CLI::App &app) {
  CLI::App *command = app.add_subcommand(
      "exchanges", "Print what ranks exchange in a step, axis by axis");
  auto options = std::make_shared<PricedOptions>();
  addPricedOptions(*command, *options);
  return {command, [options] { return run(*options); }};
}
