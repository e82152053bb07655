//===- Simulate.h - Simulation of pipeline schedules ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A cheap event simulation: every rank works through its list in order, an
// action starts when the rank is free and what it waits for has arrived. One
// visit per action; no search, no clock ticks.
//
// Times are in whatever unit the costs are in (milliseconds, multiples of a
// forward); results are in the same unit.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SCHEDULE_SIMULATE_H
#define PLAIT_SCHEDULE_SIMULATE_H

#include "plait/Schedule/Schedule.h"

namespace plait::schedule {

/// Times of the actions on one virtual stage. Each must be in [0, 1e12].
struct Costs {
  double forward = 1;
  double backwardInput = 1;
  double backwardWeight = 1; // Backward takes backwardInput + backwardWeight
  double transfer = 0; // from the end of the sender's action until it can be
                       // read on another rank; occupies neither of them

  // Uneven stages: one time per virtual stage. Empty: all as given above.
  std::vector<double> forwards = {};
  std::vector<double> backwardInputs = {};
  std::vector<double> backwardWeights = {};

  double forwardOf(uint32_t stage) const {
    return forwards.empty() ? forward : forwards[stage];
  }
  double backwardInputOf(uint32_t stage) const {
    return backwardInputs.empty() ? backwardInput : backwardInputs[stage];
  }
  double backwardWeightOf(uint32_t stage) const {
    return backwardWeights.empty() ? backwardWeight : backwardWeights[stage];
  }

  /// Fails on a time out of range and on a vector that has not one entry per
  /// virtual stage of `problem`.
  Status check(const Problem &problem) const;
};

/// The times of one chunk out of `chunks` equal ones: `costs`, which are those
/// of a whole rank and even, divided; a transfer is not cheaper.
Costs perChunk(const Costs &costs, uint32_t chunks);

/// The compute time of one step on `rank`.
double getWork(const Problem &problem, const Costs &costs, uint32_t rank);

/// The compute time of one step on the busiest rank: no schedule is faster.
double getWork(const Problem &problem, const Costs &costs);

/// When an action holds its rank. A blocked Recv or WaitSend starts when the
/// rank reaches it; Send, Reduce and Optimizer take no time here.
struct Interval {
  double start = 0;
  double end = 0;
};

struct Timeline {
  std::vector<std::vector<Interval>> ranks; // parallel to Schedule::ranks
  double makespan = 0; // from time 0 to the end of the last action
  /// The longest time between the start of a rank's first compute action and
  /// the end of its last: the time of one step in a long row of steps.
  double span = 0;
  /// (span - getWork()) / span; 0 when all costs are 0. The measure used by
  /// Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024).
  double bubbleRate = 0;
};

/// Fails where verify would because the lists are malformed or deadlock, and
/// on a cost out of range; memory bounds do not matter here.
Result<Timeline> simulate(const Schedule &schedule, const Costs &costs);

} // namespace plait::schedule

#endif // PLAIT_SCHEDULE_SIMULATE_H
