//===- LintCommand.cpp - plait-plan lint ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tells how far a plan's step is above its floor, which steps make it so, and
// what in the plan is known to be slow. Nothing here is an error.
//
//===----------------------------------------------------------------------===//

#include "Commands.h"
#include "PricedPlan.h"
#include "TextOutput.h"
#include "plait/Planner/Floor.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <iostream>
#include <memory>

using namespace plait;
using planner::FloorPart;
using tool::format;
using tool::formatSeconds;
using Json = nlohmann::ordered_json;
namespace fb = plait::plan::fb;

namespace {
struct Options : tool::PricedOptions {
  int most = 10;
};

/// One program's floor and what was found in it.
struct Looked {
  planner::StepFloor floor;
  std::vector<planner::LintFinding> findings;
};
} // namespace

static const std::pair<FloorPart, const char *> kParts[] = {
    {FloorPart::Matmuls, "matmuls"},
    {FloorPart::Attention, "attention"},
    {FloorPart::Bytes, "kernels, copies"},
    {FloorPart::Communication, "communication"}};

/// Communication is as if nothing ran beside it.
static std::string writeParts(const planner::StepFloor &floor) {
  std::string text = format("%-18s%10s%14s%14s%14s%14s\n", "", "steps",
                            "predicted", "floor", "launches", "above");
  auto write = [&](const char *name, const planner::FloorEntry &sum) {
    text += format("%-18s%10.0f%14s%14s%14s%14s\n", name, sum.calls,
                   formatSeconds(sum.seconds).c_str(),
                   formatSeconds(sum.floor).c_str(),
                   formatSeconds(sum.launches).c_str(),
                   formatSeconds(sum.getExcess()).c_str());
  };
  for (auto [part, name] : kParts)
    if (planner::FloorEntry sum = floor.getSum(part); sum.calls > 0)
      write(name, sum);
  write("all", floor.getSum());
  return text;
}

static std::string toText(const Looked &looked, int most) {
  std::string text = writeParts(looked.floor);
  double whole = looked.floor.getSum().seconds;
  text += "\nfurthest above their floor\n";
  int rows = 0;
  for (const planner::FloorEntry &entry : looked.floor.entries)
    // Hundredths of a percent are not worth a row.
    if (rows < most && entry.getExcess() > 1e-4 * whole && ++rows)
      text += format("  %10s  of %10s in %6.0f steps  ",
                     formatSeconds(entry.getExcess()).c_str(),
                     formatSeconds(entry.seconds).c_str(), entry.calls) +
              entry.name + "\n";
  text += "\nsigns of lost time\n";
  rows = 0;
  for (const planner::LintFinding &finding : looked.findings)
    if (rows++ < most)
      text += format("  %10s  %-14s", formatSeconds(finding.seconds).c_str(),
                     finding.rule.c_str()) +
              finding.where + ": " + finding.text + "\n";
  if (rows > most)
    text += format("  and %d more (--most)\n", rows - most);
  return rows ? text : text + "  none\n";
}

static Json toJson(const planner::FloorEntry &entry) {
  return {{"steps", entry.calls},
          {"predicted_seconds", entry.seconds},
          {"floor_seconds", entry.floor},
          {"launch_seconds", entry.launches}};
}

/// All entries: who reads it by a program picks.
static Json toJson(const Looked &looked) {
  Json parts = Json::object(), steps = Json::array(), signs = Json::array();
  for (auto [part, name] : kParts)
    parts[name] = toJson(looked.floor.getSum(part));
  for (const planner::FloorEntry &entry : looked.floor.entries) {
    Json own = {{"name", entry.name}};
    own.update(toJson(entry));
    steps.push_back(std::move(own));
  }
  for (const planner::LintFinding &finding : looked.findings)
    signs.push_back({{"rule", finding.rule},
                     {"where", finding.where},
                     {"text", finding.text},
                     {"seconds", finding.seconds}});
  return {{"parts", std::move(parts)},
          {"steps", std::move(steps)},
          {"signs", std::move(signs)}};
}

static Status run(const Options &options) {
  Result<tool::PricedFile> opened = tool::openPriced(options);
  if (!opened.ok())
    return opened.status();
  const fb::Plan &plan = opened->file.plan();
  const auto &[cluster, messages, costs] = opened->priced;
  std::string text = "costs     " + cluster.name + "\n";
  Json programs = Json::array();
  for (uint32_t i = 0; i < plan.programs()->size(); ++i) {
    Looked looked{planner::findFloor(plan, i, costs, cluster),
                  planner::lintPlan(plan, i, costs, cluster)};
    text += format("\nprogram %u, a step of one rank\n", i) +
            toText(looked, options.most);
    programs.push_back(toJson(looked));
  }
  Json content = {{"costs", cluster.name}, {"programs", std::move(programs)}};
  if (!options.json.empty())
    PLAIT_RETURN_IF_ERROR(writeTextFile(options.json, content.dump(2) + "\n"));
  if (!isStandardOutput(options.json))
    std::cout << text;
  return Status::success();
}

/// The options live as long as the command does.
tool::Command tool::addLintCommand(CLI::App &app) {
  CLI::App *command = app.add_subcommand(
      "lint", "Tell what a step is above its floor, and why");
  auto options = std::make_shared<Options>();
  addPricedOptions(*command, *options);
  command->add_option("--most", options->most, "Rows of each list (10)")
      ->check(CLI::Range(0, 1000000));
  return {command, [options] { return run(*options); }};
}
