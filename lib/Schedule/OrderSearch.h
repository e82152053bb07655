//===- OrderSearch.h - Improves an order and its cut ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_SCHEDULE_ORDERSEARCH_H
#define PLAIT_LIB_SCHEDULE_ORDERSEARCH_H

#include "plait/Schedule/JointSearch.h"

namespace plait::schedule {

/// A way to do a step.
struct Candidate {
  Problem problem;
  std::vector<int> cut;
  std::vector<std::vector<Action>> ranks;
  double makespan = 0; // infinite: there is none
};

/// The work that improveOrder may do.
struct OrderSearchOptions {
  uint64_t visits = 0; // actions to look at
  double bound = 0;    // stops there
  bool movesWork = true;
  bool movesLayers = true;
  uint64_t seed = 1;
};

/// Simulated annealing from `start`, a sound schedule in the limit: two
/// neighbours on the critical path change places, an action moves along its
/// rank, a layer moves to another stage and the stages in between pass one on.
/// Returns the best that was met, sound and in the limit as well.
Candidate improveOrder(const JointProblem &problem, const Candidate &start,
                       const OrderSearchOptions &options);

/// The same step with each W right behind its I where that takes no longer, so
/// that ranks hold less. For `candidate` as for improveOrder.
Candidate advanceWeights(const JointProblem &problem,
                         const Candidate &candidate);

/// The makespan of the order of `candidate` with its cut; infinite where it
/// does not end or does not keep the limit.
double measureOrder(const JointProblem &problem, const Candidate &candidate);

} // namespace plait::schedule

#endif // PLAIT_LIB_SCHEDULE_ORDERSEARCH_H
