//===- ScheduleOutput.cpp - Output of plait-plan schedule -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An Order as JSON and as text: the chart, then figures with the names that the
// JSON has as well. Both simulate the schedule, which is cheap beside making
// it.
//
//===----------------------------------------------------------------------===//

#include "ScheduleOutput.h"
#include "TextOutput.h"

#include <nlohmann/json.hpp>

using namespace plait;
using namespace plait::schedule;

/// Names it as CSV files and plans spell it.
static const char *nameOf(Placement placement) {
  return placement == Placement::VShape ? "v" : "looped";
}

/// Returns the time that each rank works, in the unit of the costs.
static std::vector<double> getBusy(const tool::Order &order) {
  std::vector<double> busy;
  for (uint32_t rank = 0; rank < order.schedule.problem.stages; ++rank)
    busy.push_back(getWork(order.schedule.problem, order.costs, rank));
  return busy;
}

/// Returns the most that each rank holds, in the unit of the schedule's memory
/// model.
static std::vector<double> getPeaks(const Schedule &schedule) {
  std::vector<double> peaks;
  for (uint32_t rank = 0; rank < schedule.problem.stages; ++rank)
    peaks.push_back(peakActivations(schedule, rank));
  return peaks;
}

/// Lists actions in the order of each rank; words as print(Action) has them.
static std::vector<std::vector<std::string>>
listActions(const Schedule &schedule) {
  std::vector<std::vector<std::string>> ranks;
  for (const std::vector<Action> &actions : schedule.ranks) {
    std::vector<std::string> &words = ranks.emplace_back();
    for (const Action &action : actions)
      words.push_back(print(action));
  }
  return ranks;
}

/// Fields that have no value are left out, but for lists of ranks.
Result<std::string> tool::printJson(const Order &order) {
  Result<Timeline> timeline = simulate(order.schedule, order.costs);
  if (!timeline.ok())
    return timeline.status();
  const Problem &problem = order.schedule.problem;
  // Fields in the order of the text.
  nlohmann::ordered_json object = {{"kind", order.schedule.kind},
                                   {"stages", problem.stages},
                                   {"chunks", problem.chunks},
                                   {"placement", nameOf(problem.placement)},
                                   {"microbatches", problem.microbatches},
                                   {"bubble_rate", timeline->bubbleRate},
                                   {"span", timeline->span},
                                   {"makespan", timeline->makespan}};
  // Only searches have one; see ScheduleOutput.h for what it bounds.
  if (order.lowerBound)
    object["lower_bound"] = *order.lowerBound;
  object["busy"] = getBusy(order);
  object["peak_activations"] = getPeaks(order.schedule);
  // Without layers there is nothing to cut.
  if (!order.cut.empty())
    object["cut"] = order.cut;
  object["actions"] = listActions(order.schedule);
  return object.dump() + "\n";
}

template <typename Numbers>
static std::string printRow(const char *name, const Numbers &numbers) {
  std::string line = name;
  // Six digits: sums of times are rounded in the last ones.
  for (auto number : numbers)
    line += tool::format(" %.6g", double(number));
  return line + "\n";
}

/// The bound is of the makespan where there is a cut, and the text says how far
/// that is above it.
Result<std::string> tool::printText(const Order &order,
                                    const ChartFlags &flags) {
  Result<Timeline> timeline = simulate(order.schedule, order.costs);
  if (!timeline.ok())
    return timeline.status();
  const Problem &problem = order.schedule.problem;
  // The chart first: figures stay visible below it.
  std::string text =
      drawChart(order.schedule, *timeline, getChartOptions(flags));
  text += format("bubble_rate %.4f, span %.6g, makespan %.6g\n",
                 timeline->bubbleRate, timeline->span, timeline->makespan);
  if (order.cut.empty() && order.lowerBound)
    text += format("lower_bound %.4f\n", *order.lowerBound);
  if (!order.cut.empty() && order.lowerBound) {
    text += format("lower_bound %.6g", *order.lowerBound);
    // Costs of zero have a makespan of zero.
    if (*order.lowerBound > 0)
      text += format(" (of the makespan, which is %.1f %% above)",
                     100 * (timeline->makespan / *order.lowerBound - 1));
    text +=
        format("\n%s, %u virtual stage%s a rank\n", nameOf(problem.placement),
               problem.chunks, problem.chunks == 1 ? "" : "s");
    text += printRow("cut", order.cut);
  }
  // Rows of numbers by rank, in the order of ranks.
  text += printRow("busy", getBusy(order));
  return text + printRow("peak_activations", getPeaks(order.schedule));
}
