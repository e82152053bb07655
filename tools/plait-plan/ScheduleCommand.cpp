//===- ScheduleCommand.cpp - plait-plan schedule --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ChartOutput.h"
#include "Commands.h"
#include "plait/Schedule/Generators.h"
#include "plait/Schedule/Verify.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <iostream>
#include <memory>

using namespace plait;
using namespace plait::schedule;

namespace {

struct Options {
  std::string kind = "1f1b";
  Problem problem;
  Costs costs;
  bool json = false;
  tool::ChartFlags chart;
};

std::string describeKinds() {
  std::string text;
  for (const Generator &generator : getGenerators())
    text += (text.empty() ? "" : "; ") + std::string(generator.name) + ": " +
            generator.help;
  return text;
}

std::vector<uint32_t> peaksOf(const Schedule &schedule) {
  std::vector<uint32_t> peaks;
  for (uint32_t rank = 0; rank < schedule.problem.stages; ++rank)
    peaks.push_back(peakInFlight(schedule, rank));
  return peaks;
}

void printJson(const Schedule &schedule, const Timeline &timeline) {
  std::vector<std::string> rows;
  for (const std::vector<Action> &actions : schedule.ranks)
    rows.push_back(print(actions));
  nlohmann::ordered_json object = {
      {"schedule", schedule.kind},
      {"stages", schedule.problem.stages},
      {"microbatches", schedule.problem.microbatches},
      {"span", timeline.span},
      {"makespan", timeline.makespan},
      {"bubble_rate", timeline.bubbleRate},
      {"peak_in_flight", peaksOf(schedule)},
      {"ranks", rows}};
  std::cout << object.dump(2) << "\n";
}

void printText(const Schedule &schedule, const Timeline &timeline,
               const tool::ChartFlags &flags) {
  std::cout << drawChart(schedule, timeline, tool::getChartOptions(flags));
  char line[128];
  std::snprintf(line, sizeof line, "span %.6g, bubble rate %.4f\n",
                timeline.span, timeline.bubbleRate);
  std::cout << line << "microbatches in flight, rank by rank:";
  for (uint32_t peak : peaksOf(schedule))
    std::cout << " " << peak;
  std::cout << "\n";
}

Status run(const Options &options) {
  Result<Schedule> schedule = generate(options.kind, options.problem);
  if (!schedule.ok())
    return schedule.status();
  PLAIT_RETURN_IF_ERROR(verify(insertTransfers(*schedule)));
  Result<Timeline> timeline = simulate(*schedule, options.costs);
  if (!timeline.ok())
    return timeline.status();
  if (options.json)
    printJson(*schedule, *timeline);
  else
    printText(*schedule, *timeline, options.chart);
  return Status::success();
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
  command->add_option("--tf", options->costs.forward, "Time of a forward")
      ->capture_default_str();
  command
      ->add_option("--tb", options->costs.backwardInput,
                   "Time of an input gradient")
      ->capture_default_str();
  command
      ->add_option("--tw", options->costs.backwardWeight,
                   "Time of a weight gradient")
      ->capture_default_str();
  command
      ->add_option("--tcomm", options->costs.transfer,
                   "Time of a transfer between ranks")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON in place of a chart");
  addChartFlags(*command, options->chart);
  return {command, [options] { return run(*options); }};
}
