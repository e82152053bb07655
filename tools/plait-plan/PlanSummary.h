//===- PlanSummary.h - Statistics of a plan ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAIT_PLAN_PLANSUMMARY_H
#define PLAIT_TOOLS_PLAIT_PLAN_PLANSUMMARY_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Schedule/Schedule.h"

#include <map>

namespace plait::tool {

/// The figures of what one rank of a program holds and does in one training
/// step.
struct ProgramSummary {
  uint64_t weights = 0;  // elements, padding included
  uint32_t inFlight = 0; // the most microbatches whose activations are held
  /// The most bytes of a category live at once. The peaks of two categories
  /// may lie at different times, so that they can add up to more than the
  /// arena.
  std::map<plan::fb::Category, uint64_t> peakBytes;
  std::map<plan::fb::StepKind, uint64_t> steps;     // executed, by kind
  std::map<plan::fb::Epilogue, uint64_t> epilogues; // of GEMMs, likewise
  uint64_t kernelBytes = 0; // that generated kernels read and write
  /// Operations of GEMMs, by the bytes that all rows of their matrices are
  /// aligned to, at most 16.
  std::map<uint64_t, double> gemmFlops;
  /// The bytes, by mesh axis, that the rank sends if collectives run as rings.
  std::vector<uint64_t> sentBytes;
  /// The same of one run of each list of sites, which is no part of each step.
  std::vector<uint64_t> agreedBytes;
};

/// `plan` must be one that PlanFile::open accepted, `program` one of it.
ProgramSummary summarise(const plan::fb::Plan &plan,
                         const plan::fb::Program &program);

using LiveBytes = std::map<plan::fb::Category, int64_t>;

/// Returns what is live from an action on, until the next entry.
std::map<uint32_t, LiveBytes> getMemory(const plan::fb::Program &program);

/// The compute actions of a plan, program by program; `withAll`, all actions,
/// messages without their peers. The schedule has no kind: it is what the plan
/// does, whatever it is called.
schedule::Schedule getSchedule(const plan::fb::Plan &plan,
                               bool withAll = false);

} // namespace plait::tool

#endif // PLAIT_TOOLS_PLAIT_PLAN_PLANSUMMARY_H
