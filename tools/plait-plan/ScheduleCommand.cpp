//===- ScheduleCommand.cpp - plait-plan schedule --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Commands.h"
#include "ScheduleCosts.h"
#include "ScheduleOutput.h"
#include "plait/Plan/Files.h"
#include "plait/Schedule/Bound.h"
#include "plait/Schedule/Csv.h"
#include "plait/Schedule/Generators.h"
#include "plait/Schedule/Verify.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <optional>

using namespace plait;
using namespace plait::schedule;

namespace {

/// A kind that is no generator: it searches, for which it needs layers.
constexpr std::string_view automatic = "auto";

struct Options {
  std::string kind = "1f1b";
  std::string file;      // in place of a kind; empty: none
  std::string costsFile; // in place of a problem and of times
  Problem problem;
  std::optional<uint32_t> chunks; // none: as few as the schedule orders
  Costs costs;                    // of a whole rank
  MemoryModel memory;
  std::string json, csv; // files; empty: none
  tool::ChartFlags chart;
};

std::string describeKinds() {
  std::string text;
  for (const Generator &generator : getGenerators())
    text += std::string(generator.name) + ": " + generator.help + "; ";
  return text + std::string(automatic) +
         ": with --costs, the best cut, placement and order found";
}

/// Layers and pipeline from a file; kind or file say in which order.
Result<tool::Order> makeFromCosts(const Options &options) {
  Result<JointProblem> problem = tool::readScheduleCosts(options.costsFile);
  if (!problem.ok())
    return problem.status();
  problem->chunks = options.chunks;
  Result<JointResult> result = fail("");
  if (options.file.empty()) {
    result = options.kind == automatic ? searchJointly(*problem)
                                       : searchCut(*problem, options.kind);
  } else {
    Result<Schedule> order = readCsv(options.file);
    if (!order.ok())
      return order.status();
    result = searchCut(*problem, *order);
  }
  if (!result.ok())
    return result.status();
  return tool::Order{std::move(result->schedule), std::move(result->costs),
                     std::move(result->cut), boundMakespan(*problem)};
}

/// The file says stages, microbatches and chunks; times are those of options.
/// It is verified with the memory limit, which the file does not say.
Result<tool::Order> makeFromFile(const Options &options) {
  Result<Schedule> schedule = readCsv(options.file);
  if (!schedule.ok())
    return schedule.status();
  schedule->memory = options.memory;
  PLAIT_RETURN_IF_ERROR(verify(*schedule));
  return tool::Order{*schedule,
                     perChunk(options.costs, schedule->problem.chunks)};
}

/// Without --chunks, the generator's least number. A lower bound is computed
/// only for generators that search.
Result<tool::Order> makeFromKind(Options options) {
  if (options.kind == automatic)
    return fail("--kind auto needs --costs");
  Result<const Generator *> generator = findGenerator(options.kind);
  if (!generator.ok())
    return generator.status();
  options.problem.chunks = options.chunks.value_or((*generator)->minChunks);
  PLAIT_RETURN_IF_ERROR(options.problem.check());
  PLAIT_RETURN_IF_ERROR(options.costs.check(options.problem));
  tool::Order order;
  order.costs = perChunk(options.costs, options.problem.chunks);
  Result<Schedule> schedule =
      generate(options.kind, options.problem, {order.costs, options.memory});
  if (!schedule.ok())
    return schedule.status();
  order.schedule = std::move(*schedule);
  if ((*generator)->searches) {
    Result<Bound> bound =
        boundSpan(options.problem, order.costs, options.memory);
    if (!bound.ok())
      return bound.status();
    order.lowerBound = bound->bubbleRate;
  }
  return order;
}

Result<tool::Order> makeOrder(const Options &options) {
  if (!options.costsFile.empty())
    return makeFromCosts(options);
  return options.file.empty() ? makeFromKind(options) : makeFromFile(options);
}

/// Order and texts are made and verified before the first file is written.
/// The text gives way to what goes to standard output.
Status run(const Options &options) {
  PLAIT_RETURN_IF_ERROR(checkOneStandardOutput(
      {{"--json", options.json}, {"--csv", options.csv}}));
  Result<tool::Order> order = makeOrder(options);
  if (!order.ok())
    return order.status();
  PLAIT_RETURN_IF_ERROR(verify(insertTransfers(order->schedule)));
  Result<std::string> json = tool::printJson(*order);
  Result<std::string> text = tool::printText(*order, options.chart);
  for (const Result<std::string> *printed : {&json, &text})
    if (!printed->ok())
      return printed->status();
  if (!options.json.empty())
    PLAIT_RETURN_IF_ERROR(writeTextFile(options.json, *json));
  if (!options.csv.empty())
    PLAIT_RETURN_IF_ERROR(
        writeTextFile(options.csv, printCsv(order->schedule)));
  if (!isStandardOutput(options.json) && !isStandardOutput(options.csv))
    std::cout << *text;
  return Status::success();
}

void addTimes(CLI::App &command, Costs &costs) {
  struct Time {
    const char *name;
    double &value;
    const char *help;
  };
  for (auto [name, value, help] :
       {Time{"--tf", costs.forward, "Time of a forward on a whole rank"},
        {"--tb", costs.backwardInput, "Time of an input gradient"},
        {"--tw", costs.backwardWeight, "Time of a weight gradient"},
        {"--tcomm", costs.transfer, "Time of a transfer between ranks"}})
    command.add_option(name, value, help)->capture_default_str();
}

/// Not CLI's own excludes and needs, which the help would list: the files say
/// what the options say otherwise.
Status checkOptions(const CLI::App &command) {
  struct Pair {
    const char *file;
    std::vector<const char *> excluded;
  };
  for (const auto &[file, excluded] :
       {Pair{"--file", {"--kind", "--stages", "--microbatches", "--chunks"}},
        Pair{"--costs",
             {"--stages", "--microbatches", "--memory-limit", "--tf", "--tb",
              "--tw", "--tcomm"}}})
    for (const char *option : excluded)
      if (command.count(file) && command.count(option))
        return fail(file, " excludes ", option);
  if (!command.count("--file") && !command.count("--costs"))
    for (const char *option : {"--stages", "--microbatches"})
      if (!command.count(option))
        return fail(option, " is required");
  return Status::success();
}

void addProblem(CLI::App &command, Options &options) {
  command.add_option("--kind", options.kind, describeKinds())
      ->capture_default_str();
  command.add_option("--file", options.file,
                     "Reads the order: a CSV file as PyTorch writes it");
  command.add_option("--costs", options.costsFile,
                     "Reads a pipeline and its layers: a JSON file");
  command.add_option("--stages", options.problem.stages, "Pipeline ranks");
  command.add_option("--microbatches", options.problem.microbatches,
                     "Microbatches of a step");
  command.add_option("--chunks", options.chunks,
                     "Virtual stages of a rank (default: as few as the "
                     "schedule orders; of auto any number)");
  command.add_option("--memory-limit", options.memory.limit,
                     "Activations of a microbatch that each rank can hold; "
                     "an input gradient frees half of one (default: no "
                     "limit)");
  addTimes(command, options.costs);
}

} // namespace

tool::Command tool::addScheduleCommand(CLI::App &app) {
  CLI::App *command =
      app.add_subcommand("schedule", "Draw and simulate a pipeline schedule");
  auto options = std::make_shared<Options>();
  addProblem(*command, *options);
  command->add_option("--json", options->json, tool::jsonHelp);
  command->add_option("--csv", options->csv,
                      "The order as PyTorch reads it, into a file; -: in "
                      "place of the text");
  addChartFlags(*command, options->chart);
  return {command, [options, command] {
            Status status = checkOptions(*command);
            return status.ok() ? run(*options) : status;
          }};
}
