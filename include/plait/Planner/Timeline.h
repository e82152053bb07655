//===- Timeline.h - A predicted step, action by action ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a report draws: when every action of every rank of the pipeline runs,
// and what the rank holds meanwhile. The costs are those of estimate(); here
// all microbatches are simulated, where estimate() continues the line of a few.
//
// Time 0 is the start of the first forward pass. All ranks of one stage do the
// same at the same time, so a rank of the pipeline stands for its tp x cp x dp.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_TIMELINE_H
#define PLAIT_PLANNER_TIMELINE_H

#include "plait/Planner/Estimate.h"

#include <cstdint>
#include <vector>

namespace plait::planner {

/// The activities of a rank. Backward is BackwardInput and BackwardWeight in
/// one. The ones after BackwardWeight happen once a step, after the pipeline's
/// last action: Wait is for the slowest replica, Reduce for the gradients (and
/// for parameters that are gathered) as far as no work hides them, Overhead is
/// the host's.
enum class Activity : uint8_t {
  Forward,
  Backward,
  BackwardInput,
  BackwardWeight,
  Wait,
  Reduce,
  Optimizer,
  Overhead,
};

/// "forward", "backward-input", ...
const char *getActivityName(Activity activity);

/// An action of one rank. `chunk` and `microbatch` are 0 for what happens once
/// a step.
struct TimelineAction {
  Activity activity = Activity::Forward;
  /// Whether it is on the longest chain of actions, each of which waits for the
  /// one before: shortening any other action does not shorten the step.
  bool isCritical = false;
  uint32_t chunk = 0, microbatch = 0;
  double start = 0, end = 0; // seconds
};

/// The bytes that a rank holds from `seconds` on, until the next sample.
struct MemorySample {
  double seconds = 0;
  StageMemory bytes;
};

struct RankTimeline {
  /// The actions in order of their start; they do not overlap. The gaps are
  /// idle.
  std::vector<TimelineAction> actions;
  /// The samples in order of time, the first at 0.
  std::vector<MemorySample> memory;
};

struct Timeline {
  /// The estimate with the times of this simulation; its memory's activations
  /// are the largest of the samples.
  Estimate estimate;
  std::vector<RankTimeline> ranks; // by rank of the pipeline
  /// The end of the last action of all: estimate.iterationSeconds.
  double seconds() const { return estimate.iterationSeconds; }
};

/// Simulates a whole step. Fails as estimate() does. Takes time and memory in
/// proportion to microbatches x virtual stages (about 10 million a second).
Result<Timeline> simulateTimeline(const Work &work, const Cluster &cluster,
                                  const Training &training,
                                  const Configuration &configuration);

} // namespace plait::planner

#endif // PLAIT_PLANNER_TIMELINE_H
