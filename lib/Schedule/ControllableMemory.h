//===- ControllableMemory.h - Two chunks in a V, less memory ----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_SCHEDULE_CONTROLLABLEMEMORY_H
#define PLAIT_LIB_SCHEDULE_CONTROLLABLEMEMORY_H

#include "Greedy.h"

namespace plait::schedule {

/// How a microbatch passes through two chunks in a V, in units of an F, I or W
/// of a chunk.
struct Rhythm {
  /// Between starts on neighbouring virtual stages: F of chunk 0 and I of chunk
  /// 1, F of chunk 1 and I of chunk 0.
  uint32_t intervals[2];
  /// The waiting besides where forwards turn, between the last F and the first
  /// I, and where input gradients turn.
  uint32_t turns[3];
  double window; // of GreedyPolicy
};

Rhythm getHalfRhythm(uint32_t stages);
Rhythm getMinRhythm(uint32_t stages);

/// Microbatches that a rank holds between their F and their W, at most.
inline double getHalfMemory(uint32_t stages) { return stages / 2.0 + 1; }
inline double getMinMemory(uint32_t stages) { return (stages + 1) / 3 + 1; }

/// Makes the pattern of `problem` with two chunks in a V.
Pattern makePattern(const Problem &problem, const Rhythm &rhythm);

/// The greedy engine guided by `rhythm`, with the rest of `policy`.
GreedyResult runRhythm(const Problem &problem, const Costs &costs,
                       const MemoryModel &memory, const Rhythm &rhythm,
                       GreedyPolicy policy);

} // namespace plait::schedule

#endif // PLAIT_LIB_SCHEDULE_CONTROLLABLEMEMORY_H
