//===- Greedy.h - A split-backward schedule by simulation -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_SCHEDULE_GREEDY_H
#define PLAIT_LIB_SCHEDULE_GREEDY_H

#include "plait/Schedule/Generators.h"

namespace plait::schedule {

/// How a rank chooses what to do next.
struct GreedyPolicy {
  /// Forwards before the first input gradient, and the most that may wait for
  /// their input gradient later. At least 1 and no more on a rank than on the
  /// one before it.
  std::vector<uint32_t> leads;
  /// A rank waits for an action that is about to become ready, in place of a
  /// weight gradient that would delay it, while its idle time stays below this.
  std::vector<double> allowance;
  /// Counts such a wait as often as microbatches are left, so that the
  /// allowance lasts to the end, where delays are not caught up.
  bool spread = false;
  /// Takes the input gradient when a forward is ready as well.
  bool inputFirst = false;
};

struct GreedyResult {
  double span = 0;
  /// Per rank; microbatches come in order in each kind.
  std::vector<std::vector<ActionKind>> ranks;
};

/// Runs the pipeline, every rank deciding by `policy` when it becomes free.
/// Keeps `memory.limit`. One chunk a rank.
GreedyResult runGreedy(const Problem &problem, const Costs &costs,
                       const MemoryModel &memory, const GreedyPolicy &policy);

} // namespace plait::schedule

#endif // PLAIT_LIB_SCHEDULE_GREEDY_H
