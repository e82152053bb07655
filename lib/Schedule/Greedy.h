//===- Greedy.h - A split-backward schedule by simulation -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_SCHEDULE_GREEDY_H
#define PLAIT_LIB_SCHEDULE_GREEDY_H

#include "plait/Schedule/Generators.h"

#include <limits>

namespace plait::schedule {

/// A schedule that repeats itself: the F (kind 0) or I (1) on virtual stage s
/// starts at starts[kind][s] for the first microbatch and one `period` later
/// for each next one. Any unit.
struct Pattern {
  std::vector<double> starts[2];
  double period = 0;

  double getStart(uint32_t kind, uint32_t stage, uint32_t microbatch) const {
    return starts[kind][stage] + period * microbatch;
  }
};

/// How a rank chooses what to do next.
struct GreedyPolicy {
  /// The numbers by rank, for one chunk a rank: forwards before the first input
  /// gradient, and the most that may wait for their input gradient later. At
  /// least 1 and no more on a rank than on the one before it. Empty: neither.
  std::vector<uint32_t> leads = {};
  /// A rank waits for an action that is about to become ready, in place of a
  /// weight gradient that would delay it, while its idle time stays below this.
  std::vector<double> allowance = {};
  /// Counts such a wait as often as microbatches are left, so that the
  /// allowance lasts to the end, where delays are not caught up.
  bool spread = false;
  /// Takes the input gradient when a forward is ready as well.
  bool inputFirst = false;
  /// If given: of several actions that are ready, the one that the pattern
  /// starts first, and none that it starts more than `window` after another
  /// that is still to come.
  const Pattern *pattern = nullptr;
  double window = std::numeric_limits<double>::infinity();
  /// Forwards leave a place in memory for each later chunk of their rank.
  bool reserves = true;
  /// If given: by rank, F and I in the order that they have to run in,
  /// microbatches in order in each kind of each chunk. What is decided is when
  /// W run.
  const std::vector<std::vector<Action>> *order = nullptr;
  /// Ends with work left once no span below this is possible.
  double cutoff = std::numeric_limits<double>::infinity();
};

struct GreedyResult {
  /// The same as in Timeline. Infinite where work is left that nothing can
  /// start: without reserved places, where a window holds back for ever what
  /// would free memory, where an order does not end or does not fit, or by the
  /// cutoff.
  double span = 0, makespan = 0;
  /// Per rank; microbatches come in order in each kind of each chunk.
  std::vector<std::vector<Action>> ranks;
};

/// Runs the pipeline, every rank deciding by `policy` when it becomes free.
/// Keeps `memory.limit`. Any placement and any number of chunks.
GreedyResult runGreedy(const Problem &problem, const Costs &costs,
                       const MemoryModel &memory, const GreedyPolicy &policy);

} // namespace plait::schedule

#endif // PLAIT_LIB_SCHEDULE_GREEDY_H
