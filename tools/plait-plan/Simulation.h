//===- Simulation.h - A training step, replayed -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAIT_PLAN_SIMULATION_H
#define PLAIT_TOOLS_PLAIT_PLAN_SIMULATION_H

#include "PlanSummary.h"
#include "plait/Plan/Replay.h"
#include "plait/Planner/Band.h"
#include "plait/Schedule/Chart.h"

#include <algorithm>
#include <optional>
#include <string>

namespace plait::tool {

/// Seconds of all steps of one kind in a training step, summed over programs.
struct KindTime {
  double model = 0, measured = 0, waiting = 0;
};

/// The figures of a profile of the same step.
struct Measurement {
  std::string path;
  uint64_t steps = 0;
  double stepSeconds = 0;  // the median
  double modelSeconds = 0; // as the cluster's figures predict it
  /// Times by the name of the step's or action's kind.
  std::map<std::string, KindTime> kinds;
};

struct Simulation {
  std::string costs; // where they are from: "cpu:8", "measured, p.json"
  plan::Replayed replayed;
  /// Outside of the action lists; only known from a profile.
  double overhead = 0;
  /// The part of the time from the first forward pass to the last backward pass
  /// that ranks are idle, on average; as planner::Estimate::bubbleFraction.
  double bubbleFraction = 0;
  std::vector<double> bubbleSeconds; // by program: of idle()
  std::optional<Measurement> measurement;
  /// The band of what is predicted; nothing for processors and measured times.
  std::optional<planner::Band> band;
  /// Whether ranks communicate beside computing.
  bool overlaps = false;

  double seconds() const { return replayed.seconds + overhead; }
  /// Returns the time that the ranks of a program neither compute nor
  /// communicate.
  double idle(uint32_t program) const {
    const plan::RankTime &rank = replayed.ranks[program];
    return std::max(0.0,
                    replayed.seconds - rank.computing - rank.communicating);
  }
};

/// The chart, a table of ranks, memory over time, predicted against measured.
std::string toText(const plan::fb::Plan &plan, const Simulation &simulation,
                   const schedule::ChartOptions &options);
/// One object with the same, indented.
std::string toJson(const plan::fb::Plan &plan, const Simulation &simulation);
/// Chrome's trace format: a row, on GPUs two, and a memory counter for every
/// program.
std::string toTrace(const plan::fb::Plan &plan, const Simulation &simulation);

} // namespace plait::tool

#endif // PLAIT_TOOLS_PLAIT_PLAN_SIMULATION_H
