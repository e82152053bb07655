//===- ControllableMemory.cpp - Two chunks in a V with less memory --------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Qi et al. ("Pipeline Parallelism with Controllable Memory", NeurIPS 2024)
// repeat what one microbatch does every six units, the work of a rank on it: a
// unit is an F, I or W of a chunk. What a rank holds is then the time from F to
// W of its two chunks, added up, by six; in a V that sum is about the same on
// all ranks. Starts on neighbours one unit apart (V-Min) make it 4p, which is
// p / 3 microbatches; one and two units in turn (V-Half) make it 6p, so p / 2.
//
// Repeated to the letter such a schedule begins and ends slowly. Here the
// pattern only gives the priorities of the greedy engine, which keeps the
// rhythm in between, starts forwards as soon as memory lets it and runs W where
// nothing else can run. For even stages that is nowhere slower than the paper's
// schedules at their memory, and up to two microbatches' worth of units faster.

#include "ControllableMemory.h"

#include <utility>

using namespace plait;
using namespace plait::schedule;

// Indices of Pattern::starts.
enum : uint32_t { F, I };

/// One microbatch is followed through all stages and back, stage by stage.
/// Where it turns on a rank, the next stage comes right after the unit that it
/// takes, and the rhythm's wait.
Pattern schedule::makePattern(const Problem &problem, const Rhythm &rhythm) {
  uint32_t p = problem.stages, stages = 2 * p;
  Pattern pattern{{std::vector<double>(stages), std::vector<double>(stages)},
                  6};
  double time = 0;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    pattern.starts[F][stage] = time;
    time += stage + 1 == p ? 1 + rhythm.turns[0]
                           : rhythm.intervals[problem.chunkOf(stage)];
  }
  time = pattern.starts[F][stages - 1] + 1 + rhythm.turns[1];
  for (uint32_t stage = stages; stage-- > 0;) {
    pattern.starts[I][stage] = time;
    time += stage == p ? 1 + rhythm.turns[2]
                       : rhythm.intervals[1 - problem.chunkOf(stage)];
  }
  return pattern;
}

// Waits and windows are what a search over all of up to two units and six units
// found fastest for 4 to 34 ranks; of V-Half's on even p that are as fast, the
// one that is faster with an I of 1.2 and a W of 0.8 F as well. They depend on
// which units of the six the actions of a rank meet in, hence on p modulo 2 and
// 3.

Rhythm schedule::getHalfRhythm(uint32_t stages) {
  if (stages % 2 == 0)
    return {{1, 2}, {1, 2, 1}, 1};
  return {{1, 2}, {2, 2, 2}, 3};
}

Rhythm schedule::getMinRhythm(uint32_t stages) {
  switch (stages % 3) {
  case 0:
    return {{1, 1}, {0, 1, 0}, 2};
  case 1:
    return {{1, 1}, {0, 0, 0}, 2};
  default:
    return {{1, 1}, {0, 2, 1}, 4};
  }
}

GreedyResult schedule::runRhythm(const Problem &problem, const Costs &costs,
                                 const MemoryModel &memory,
                                 const Rhythm &rhythm, GreedyPolicy policy) {
  Pattern pattern = makePattern(problem, rhythm);
  policy.pattern = &pattern;
  policy.window = rhythm.window;
  policy.reserves = false;
  return runGreedy(problem, costs, memory, policy);
}

/// Generates for even stages: the order does not depend on costs. With a weight
/// share of 1 activations count as whole up to their W.
static Schedule generateV(const Problem &problem, const Rhythm &rhythm,
                          double microbatches) {
  GreedyResult result =
      runRhythm(problem, Costs(), {1, microbatches}, rhythm,
                {.allowance = std::vector<double>(problem.stages, 0)});
  return {problem, "", std::move(result.ranks)};
}

Schedule schedule::vHalf(const Problem &problem) {
  return generateV(problem, getHalfRhythm(problem.stages),
                   getHalfMemory(problem.stages));
}

Schedule schedule::vMin(const Problem &problem) {
  return generateV(problem, getMinRhythm(problem.stages),
                   getMinMemory(problem.stages));
}
