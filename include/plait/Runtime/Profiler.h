//===- Profiler.h - Measures the steps of a run -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
#ifndef PLAIT_RUNTIME_PROFILER_H
#define PLAIT_RUNTIME_PROFILER_H

#include "plait/Plan/Profile.h"
#include "plait/Runtime/StepNotes.h"

#include <vector>

namespace plait::runtime {

/// Adds up what all steps of a run take. All memory is taken in the
/// constructor.
class Profiler : public StepReader {
public:
  /// `plan` has passed checkPlan and outlives the profiler; `hash` and
  /// `threads` are for the file, `steps` is how many will be added.
  Profiler(const plan::fb::Plan &plan, uint64_t hash, unsigned threads,
           uint64_t steps);

  /// Fails where the run has fewer than two steps.
  Status beginRun(uint64_t first, uint64_t last) override;
  bool wants(uint64_t step) const override { return true; }
  /// The first call only notes that there was a step: libraries and caches warm
  /// up in it.
  void add(uint64_t step, double seconds, const StepNotes &notes) override;

  /// Returns the profile of all steps added but the first. Fails when there are
  /// none.
  Result<plan::Profile> finish() const;

private:
  struct Total {
    double seconds = 0, waiting = 0, processor = 0;
    uint64_t calls = 0;
  };

  void addProgram(const plan::fb::Program &program);

  const plan::fb::Plan &plan;
  plan::Profile skeleton;                     // all but the times
  std::vector<std::vector<uint32_t>> totalOf; // by program and operation
  std::vector<std::vector<Total>> totals;     // by program
  std::vector<double> stepSeconds;
  double overhead = 0;
  bool isWarm = false;
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_PROFILER_H
