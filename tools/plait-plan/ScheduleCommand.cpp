//===- ScheduleCommand.cpp - plait-plan schedule --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ChartOutput.h"
#include "Commands.h"
#include "plait/Plan/Files.h"
#include "plait/Schedule/Bound.h"
#include "plait/Schedule/Generators.h"
#include "plait/Schedule/Verify.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <iostream>
#include <memory>
#include <optional>

using namespace plait;
using namespace plait::schedule;

namespace {

struct Options {
  std::string kind = "1f1b";
  Problem problem;
  std::optional<uint32_t> chunks; // none: as few as the schedule orders
  Costs costs;                    // of a whole rank
  MemoryModel memory;
  std::string json; // a file; empty: none
  tool::ChartFlags chart;
};

/// What is printed beside the chart.
struct Figures {
  Timeline timeline;
  std::optional<double> lowerBound; // of the bubble rate
  std::vector<double> peaks;        // by rank
};

std::string describeKinds() {
  std::string text;
  for (const Generator &generator : getGenerators())
    text += (text.empty() ? "" : "; ") + std::string(generator.name) + ": " +
            generator.help;
  return text;
}

std::string toJson(const Schedule &schedule, const Figures &figures) {
  nlohmann::ordered_json object = {
      {"kind", schedule.kind},
      {"stages", schedule.problem.stages},
      {"chunks", schedule.problem.chunks},
      {"microbatches", schedule.problem.microbatches},
      {"bubble_rate", figures.timeline.bubbleRate},
      {"span", figures.timeline.span}};
  if (figures.lowerBound)
    object["lower_bound"] = *figures.lowerBound;
  object["peak_activations"] = figures.peaks;
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const std::vector<Action> &actions : schedule.ranks) {
    std::vector<std::string> words;
    for (const Action &action : actions)
      words.push_back(print(action));
    ranks.push_back(words);
  }
  object["actions"] = ranks;
  return object.dump() + "\n";
}

void printText(const Schedule &schedule, const Figures &figures,
               const tool::ChartFlags &flags) {
  const Timeline &timeline = figures.timeline;
  std::cout << drawChart(schedule, timeline, tool::getChartOptions(flags));
  char line[128];
  std::snprintf(line, sizeof line, "bubble_rate %.4f, span %.6g\n",
                timeline.bubbleRate, timeline.span);
  std::cout << line;
  if (figures.lowerBound) {
    std::snprintf(line, sizeof line, "lower_bound %.4f\n", *figures.lowerBound);
    std::cout << line;
  }
  std::cout << "peak_activations";
  for (double peak : figures.peaks)
    std::cout << " " << peak;
  std::cout << "\n";
}

Result<Schedule> makeSchedule(const Options &options, const Costs &costs) {
  Result<Schedule> schedule =
      generate(options.kind, options.problem, {costs, options.memory});
  if (schedule.ok())
    PLAIT_RETURN_IF_ERROR(verify(insertTransfers(*schedule)));
  return schedule;
}

Status run(Options options) {
  Result<const Generator *> generator = findGenerator(options.kind);
  if (!generator.ok())
    return generator.status();
  options.problem.chunks = options.chunks.value_or((*generator)->minChunks);
  PLAIT_RETURN_IF_ERROR(options.problem.check());
  PLAIT_RETURN_IF_ERROR(options.costs.check(options.problem));
  Costs costs = perChunk(options.costs, options.problem.chunks);
  Result<Schedule> schedule = makeSchedule(options, costs);
  if (!schedule.ok())
    return schedule.status();
  Result<Timeline> timeline = simulate(*schedule, costs);
  if (!timeline.ok())
    return timeline.status();

  Figures figures{std::move(*timeline), std::nullopt, {}};
  for (uint32_t rank = 0; rank < options.problem.stages; ++rank)
    figures.peaks.push_back(peakActivations(*schedule, rank));
  if ((*generator)->searches) {
    Result<Bound> bound = boundSpan(options.problem, costs, options.memory);
    if (!bound.ok())
      return bound.status();
    figures.lowerBound = bound->bubbleRate;
  }
  if (!options.json.empty())
    PLAIT_RETURN_IF_ERROR(
        writeTextFile(options.json, toJson(*schedule, figures)));
  if (!isStandardOutput(options.json))
    printText(*schedule, figures, options.chart);
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

} // namespace

tool::Command tool::addScheduleCommand(CLI::App &app) {
  CLI::App *command =
      app.add_subcommand("schedule", "Draw and simulate a pipeline schedule");
  auto options = std::make_shared<Options>();
  command->add_option("--kind", options->kind, describeKinds())
      ->capture_default_str();
  command->add_option("--stages", options->problem.stages, "Pipeline ranks")
      ->required();
  command
      ->add_option("--microbatches", options->problem.microbatches,
                   "Microbatches of a step")
      ->required();
  command->add_option("--chunks", options->chunks,
                      "Equal parts of a rank (default: as few as the schedule "
                      "orders)");
  command->add_option("--memory-limit", options->memory.limit,
                      "Activations of a microbatch that each rank can hold; "
                      "an input gradient frees half of one (default: no "
                      "limit)");
  addTimes(*command, options->costs);
  command->add_option("--json", options->json, tool::jsonHelp);
  addChartFlags(*command, options->chart);
  return {command, [options] { return run(*options); }};
}
