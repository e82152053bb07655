//===- Costs.cpp - Times of actions ---------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the actions of a schedule cost, before anything is executed: the ranges
// that all else in this library may rely on, and the sums that need no order. A
// sum of work is the simplest lower bound on a step there is; Bound.cpp has the
// better ones.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Simulate.h"

#include <algorithm>

using namespace plait;
using namespace plait::schedule;

/// The limit keeps every sum over actions finite, so that no difference of two
/// sums is NaN. The comparison is written so that a NaN fails.
static Status checkCost(const char *name, double cost) {
  constexpr double limit = 1e12;
  if (cost >= 0 && cost <= limit)
    return Status::success();
  return fail("cost of ", name, " is ", cost, ", expected 0 to ", limit);
}

/// The single figure is checked even where a vector takes its place, so that a
/// value is in range whichever of the two a caller reads.
Status Costs::check(const Problem &problem) const {
  struct Entry {
    const char *name;
    double even;
    const std::vector<double> *uneven;
  };
  for (auto [name, even, uneven] :
       {Entry{"forward", forward, &forwards},
        {"backward input", backwardInput, &backwardInputs},
        {"backward weight", backwardWeight, &backwardWeights}}) {
    PLAIT_RETURN_IF_ERROR(checkCost(name, even));
    if (!uneven->empty() && uneven->size() != problem.virtualStages())
      return fail("costs of ", name, " are given for ", uneven->size(),
                  " virtual stages, expected ", problem.virtualStages());
    for (double cost : *uneven)
      PLAIT_RETURN_IF_ERROR(checkCost(name, cost));
  }
  return checkCost("transfer", transfer);
}

/// Even stages only: the vectors of the result stay empty, so that a problem
/// with any number of virtual stages may use it.
Costs schedule::perChunk(const Costs &costs, uint32_t chunks) {
  Costs result;
  result.forward = costs.forward / chunks;
  result.backwardInput = costs.backwardInput / chunks;
  result.backwardWeight = costs.backwardWeight / chunks;
  result.transfer = costs.transfer;
  return result;
}

/// Whole and split backwards take the same time here, so that the result holds
/// for every order of the rank's actions.
double schedule::getWork(const Problem &problem, const Costs &costs,
                         uint32_t rank) {
  double work = 0;
  for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk) {
    uint32_t stage = problem.stageOf(rank, chunk);
    work += costs.forwardOf(stage) + costs.backwardInputOf(stage) +
            costs.backwardWeightOf(stage);
  }
  return work * problem.microbatches;
}

/// The busiest rank need not hold the slowest stage where there are several
/// chunks and uneven stages: the maximum is over sums, not of single stages.
double schedule::getWork(const Problem &problem, const Costs &costs) {
  double most = 0;
  for (uint32_t rank = 0; rank < problem.stages; ++rank)
    most = std::max(most, getWork(problem, costs, rank));
  return most;
}
