//===- SimulateCommand.cpp - plait-plan simulate --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads a plan and, if there is one, its profile; has the planner replay it
// with predicted and with measured costs; and works out where ranks are idle.
// How that is told is SimulateOutput.cpp's.
//
//===----------------------------------------------------------------------===//

#include "ChartOutput.h"
#include "Commands.h"
#include "PricedPlan.h"
#include "Simulation.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Streams.h"
#include "plait/Planner/PlanBand.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <memory>

using namespace plait;
namespace fb = plait::plan::fb;

namespace {

struct Options {
  std::string plan, cluster, profile;
  std::string json, trace; // files; empty: none
  tool::ChartFlags chart;
};

/// The plan that is simulated, and its costs.
struct Input {
  const fb::Plan &plan;
  tool::PricedPlan priced;
  std::optional<plan::Profile> profile = std::nullopt;

  /// Whether ranks communicate beside computing: as they did where that was
  /// measured, else as plait-run does by itself. Ranks of one machine are taken
  /// for those of one process.
  bool overlaps() const {
    return profile ? profile->overlap
                   : plan::overlaps(plan, /*wanted=*/priced.cluster.nodes > 1);
  }
};

/// Kinds up to the weight gradient are the passes of microbatches.
bool isCompute(const fb::Action &action) {
  return action.kind() <= fb::ActionKind::BackwardWeight;
}

/// When the first forward pass of any rank begins and the last backward pass
/// ends. Nothing is computed: both are the end.
std::pair<double, double> findPipeline(const fb::Plan &plan,
                                       const plan::Replayed &replayed) {
  double begin = replayed.seconds, end = 0;
  for (uint32_t i = 0; i < plan.programs()->size(); ++i)
    for (uint32_t j = 0; j < replayed.programs[i].size(); ++j)
      if (isCompute(*plan.programs()->Get(i)->actions()->Get(j))) {
        begin = std::min(begin, replayed.programs[i][j].start);
        end = std::max(end, replayed.programs[i][j].end);
      }
  return {begin, std::max(begin, end)};
}

/// Returns what of an action's work lies behind `time`, as if it were evenly
/// spread. An action that began before `time` counts in part: only sums of its
/// times are known.
double findBusyAfter(double time, const plan::ActionTime &action) {
  double length = action.end - action.start;
  double after = action.end - std::max(action.start, time);
  return length > 0 && after > 0
             ? (action.computing + action.communicating) * after / length
             : 0;
}

/// Tells where ranks are idle: in the pipeline, or behind it.
/// 1. The pipeline ends with the last backward pass of any rank.
/// 2. What a rank does not work after that is idle at the end; the rest of its
///    idle time is its bubble.
/// 3. The mean of the bubbles over the pipeline's time is the bubble fraction.
void addIdle(const fb::Plan &plan, tool::Simulation &simulation) {
  const plan::Replayed &replayed = simulation.replayed;
  // 1. The pipeline.
  auto [begin, end] = findPipeline(plan, replayed);
  double sum = 0;
  for (uint32_t i = 0; i < replayed.programs.size(); ++i) {
    double busy = 0;
    for (const plan::ActionTime &action : replayed.programs[i])
      busy += findBusyAfter(end, action);
    // Neither computing nor communicating, in the whole step.
    double idle = simulation.idle(i);
    // 2. Clamped, since work is taken to be evenly spread.
    double atEnd = std::clamp(replayed.seconds - end - busy, 0.0, idle);
    simulation.bubbleSeconds.push_back(idle - atEnd);
    sum += idle - atEnd;
  }
  // 3. The mean.
  if (end > begin)
    simulation.bubbleFraction =
        sum / (double(replayed.programs.size()) * (end - begin));
}

/// Compares all calls of a training step, predicted and measured, in sums over
/// all calls and programs, by the name of a kind. Messages are priced once, at
/// their receivers.
std::map<std::string, tool::KindTime> compareKinds(const Input &input) {
  std::map<std::string, tool::KindTime> kinds;
  const plan::Profile &profile = *input.profile;
  for (size_t i = 0; i < profile.programs.size(); ++i) {
    const plan::ProgramProfile &program = profile.programs[i];
    for (size_t j = 0; j < program.functions.size(); ++j)
      for (size_t k = 0; k < program.functions[j].steps.size(); ++k) {
        // A profile has the shape of its plan (checkProfile): the same indices.
        const plan::StepProfile &step = program.functions[j].steps[k];
        double calls = double(program.functions[j].calls);
        tool::KindTime &kind = kinds[step.kind];
        // Costs are of one call, as the profile's times are.
        kind.model += calls * input.priced.costs.steps[i][j][k];
        kind.measured += calls * step.seconds;
        kind.waiting += calls * step.waiting;
      }
    for (const plan::TransferProfile &transfer : program.transfers) {
      tool::KindTime &kind = kinds[fb::EnumNameActionKind(transfer.kind)];
      kind.measured += double(transfer.calls) * transfer.seconds;
      kind.waiting += double(transfer.calls) * transfer.waiting;
    }
  }
  // Sends and waits have no costs of their own in the model.
  for (double seconds : input.priced.costs.messages)
    kinds[fb::EnumNameActionKind(fb::ActionKind::Recv)].model += seconds;
  return kinds;
}

/// 1. With the model's costs.
/// 2. With a profile that is what is compared, and the measured costs are
///    replayed.
Result<tool::Simulation> simulate(const Input &input, const Options &options) {
  // 1. Predicted.
  Result<plan::Replayed> model = planner::predictStep(
      input.plan, input.priced.messages, input.priced.costs,
      input.priced.cluster, input.overlaps());
  if (!model.ok())
    return model.status();
  tool::Simulation simulation;
  simulation.costs = input.priced.cluster.name;
  simulation.overlaps = input.overlaps();
  simulation.replayed = std::move(*model);
  if (!input.profile)
    simulation.band = planner::getBand(input.plan, input.priced.cluster);
  // 2. Measured.
  if (input.profile) {
    const plan::Profile &profile = *input.profile;
    simulation.measurement =
        tool::Measurement{options.profile, profile.steps, profile.stepSeconds,
                          simulation.seconds(), compareKinds(input)};
    Result<plan::Replayed> measured = planner::replayStep(
        input.plan, input.priced.messages,
        planner::measuredCosts(input.plan, input.priced.messages, profile),
        input.overlaps());
    if (!measured.ok())
      return measured.status();
    simulation.replayed = std::move(*measured);
    // What a step takes outside of its actions, only a measurement knows.
    simulation.overhead = profile.overheadSeconds;
    simulation.costs = "measured, " + options.profile;
  }
  addIdle(input.plan, simulation);
  return simulation;
}

/// Costs are predicted also where there is a profile, to be compared with it.
Result<Input> readInput(const plan::PlanFile &file, const Options &options) {
  Result<tool::PricedPlan> priced =
      tool::pricePlan(file.plan(), options.cluster);
  if (!priced.ok())
    return priced.status();
  Input input{file.plan(), std::move(*priced)};
  if (options.profile.empty())
    return input;
  Result<plan::Profile> profile = planner::readProfile(options.profile);
  if (!profile.ok())
    return profile.status();
  // Of another plan times would be put to other steps.
  PLAIT_RETURN_IF_ERROR(planner::checkProfile(*profile, options.profile,
                                              input.plan, file.hash()));
  input.profile = std::move(*profile);
  return input;
}

/// Output that is written to standard output takes the place of the text.
Status run(const Options &options) {
  PLAIT_RETURN_IF_ERROR(
      checkOutputs({{"--json", options.json}, {"--trace", options.trace}},
                   {{"plan", options.plan},
                    {"--profile", options.profile},
                    {"--cluster", options.cluster}}));
  Result<plan::PlanFile> file = plan::PlanFile::open(options.plan);
  if (!file.ok())
    return file.status();
  // The plan stays mapped as long as the file is open: until the end of this
  // function.
  Result<Input> input = readInput(*file, options);
  if (!input.ok())
    return input.status();
  Result<tool::Simulation> simulation = simulate(*input, options);
  if (!simulation.ok())
    return simulation.status();
  if (!options.json.empty())
    PLAIT_RETURN_IF_ERROR(
        writeTextFile(options.json, tool::toJson(input->plan, *simulation)));
  if (!isStandardOutput(options.json) && !isStandardOutput(options.trace))
    std::cout << tool::toText(input->plan, *simulation,
                              tool::getChartOptions(options.chart));
  if (options.trace.empty())
    return Status::success();
  return writeTextFile(options.trace, tool::toTrace(input->plan, *simulation));
}

} // namespace

/// The options live as long as the command does.
tool::Command tool::addSimulateCommand(CLI::App &app) {
  CLI::App *command = app.add_subcommand(
      "simulate", "Replay a plan step by step, with predicted or measured "
                  "times");
  auto options = std::make_shared<Options>();
  command->add_option("plan", options->plan, "The .plan file")->required();
  command->add_option("--cluster", options->cluster,
                      "What it runs on (default: what the plan was made for)");
  command->add_option("--profile", options->profile,
                      "Times that plait-run --profile has measured");
  command->add_option("--json", options->json, tool::jsonHelp);
  command->add_option("--trace", options->trace, "Write a Perfetto trace");
  addChartFlags(*command, options->chart);
  return {command, [options] { return run(*options); }};
}
