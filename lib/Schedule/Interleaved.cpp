//===- Interleaved.cpp - 1F1B with several chunks on each rank ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The two schedules with several chunks a rank and whole backwards: interleaved
// 1F1B (Narayanan et al., SC 2021) and breadth-first (Lamy-Poirier, MLSys
// 2023). Both take microbatches through all chunks of a rank in an order that
// is fixed for all ranks; they differ in how many go through one chunk before
// the next.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Generators.h"

#include <algorithm>

using namespace plait;
using namespace plait::schedule;

namespace {

/// A unit of work and its place in the order of its kind when the number of
/// microbatches is rounded up to a multiple of the ranks.
struct Step {
  Action action;
  uint64_t place;
};

/// Groups of `stages` microbatches in order, each through all chunks: from the
/// first to the last forwards, from the last to the first backwards.
std::vector<Step> listSteps(const Problem &problem, ActionKind kind) {
  std::vector<Step> steps;
  steps.reserve(size_t(problem.chunks) * problem.microbatches);
  uint64_t groupSize = uint64_t(problem.stages) * problem.chunks;
  for (uint32_t first = 0; first < problem.microbatches;
       first += problem.stages) {
    uint64_t group = first / problem.stages * groupSize;
    // The last group may be short. Its steps keep the places that they would
    // have in a full one: a rank's lead is counted in places, so the order is
    // that of the next multiple of p microbatches without those that do not
    // exist.
    uint32_t end = std::min(problem.microbatches - first, problem.stages);
    for (uint32_t i = 0; i < problem.chunks; ++i) {
      uint32_t chunk = kind == ActionKind::Forward ? i : problem.chunks - 1 - i;
      for (uint32_t m = 0; m < end; ++m)
        steps.push_back({{kind, chunk, first + m},
                         group + uint64_t(i) * problem.stages + m});
    }
  }
  return steps;
}

} // namespace

// With m a multiple of p, rank r runs `lead` forwards, then alternates: forward
// number lead + j comes before backward number j and after number j - 1. Taking
// actions out of a sound schedule together with all that depends on them leaves
// a sound one, so that for other m the missing places are just left out.
Schedule schedule::interleavedOneFOneB(const Problem &problem) {
  Schedule schedule{problem, ""};
  std::vector<Step> forwards = listSteps(problem, ActionKind::Forward);
  std::vector<Step> backwards = listSteps(problem, ActionKind::Backward);
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    uint64_t lead = 2 * uint64_t(problem.stages - rank - 1) +
                    uint64_t(problem.chunks - 1) * problem.stages;
    std::vector<Action> &actions = schedule.ranks.emplace_back();
    actions.reserve(forwards.size() + backwards.size());
    auto forward = forwards.begin();
    for (const Step &backward : backwards) {
      // All forwards that may be in front of this backward. By places and not
      // by positions, so that the microbatches that the last group lacks count
      // as well.
      for (;
           forward != forwards.end() && forward->place <= backward.place + lead;
           ++forward)
        actions.push_back(forward->action);
      actions.push_back(backward.action);
    }
  }
  return schedule;
}

/// Every rank has the same list. That it ends is plain: all forwards come
/// before all backwards on every rank, and in each half the chunks come in the
/// order of their virtual stages, each for all microbatches.
Schedule schedule::breadthFirst(const Problem &problem) {
  std::vector<Action> actions;
  actions.reserve(2 * size_t(problem.chunks) * problem.microbatches);
  for (ActionKind kind : {ActionKind::Forward, ActionKind::Backward})
    for (uint32_t i = 0; i < problem.chunks; ++i)
      for (uint32_t m = 0; m < problem.microbatches; ++m)
        actions.push_back(
            {kind, kind == ActionKind::Forward ? i : problem.chunks - 1 - i,
             m});
  return {problem, "", {problem.stages, actions}};
}
