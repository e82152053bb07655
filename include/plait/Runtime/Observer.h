//===- Observer.h - Observers of a run --------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// What watches a run and changes nothing: the log, the console, curves. The
// loop tells them one after the other; of several processes, that of rank 0 has
// them. The first that fails ends the run.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_OBSERVER_H
#define PLAIT_RUNTIME_OBSERVER_H

#include "plait/Runtime/TrainingRun.h"
#include "plait/Runtime/Utilization.h"

namespace plait::runtime {

struct RunInfo {
  const fb::Plan &plan;
  const TrainOptions &options;
  Utilization utilization;
  RunState start;
};

/// Returns a line for each kind of setting, each with a newline: what the plan
/// says, then every option that has a value, given or by default, and a meaning
/// on the plan's target.
std::string describeRun(const RunInfo &run);

/// Returns the memory of this process that is in use, in bytes; 0 where the
/// system does not say.
uint64_t residentBytes();

class Observer {
public:
  virtual ~Observer() = default;

  /// Before the first step. `run` outlives the observer's other calls.
  virtual Status beginRun(const RunInfo &run) { return Status::success(); }
  virtual Status endStep(const StepReport &step) { return Status::success(); }
  /// After the last step, whyever it was the last: `outcome` is the run's.
  virtual Status endRun(const RunState &state, const Status &outcome) {
    return Status::success();
  }
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_OBSERVER_H
