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

#ifndef PLAIT_LIB_RUNTIME_TRAINING_OBSERVER_H
#define PLAIT_LIB_RUNTIME_TRAINING_OBSERVER_H

#include "Controls.h"
#include "plait/Runtime/Utilization.h"

namespace plait::runtime {

class Stragglers;

struct RunInfo {
  const fb::Plan &plan;
  const TrainOptions &options;
  Utilization utilization;
  RunState start;
};

/// The loss on data that is held out.
struct Evaluation {
  double loss; // mean over the tokens
  double tokens;
  double seconds;    // wall time
  StepMetrics means; // over the tokens; of loss and named losses alone
};

/// Returns a number of each of the plan's named losses that a step reports.
inline std::vector<double> getNamedLosses(const fb::Plan &plan,
                                          const StepMetrics &metrics) {
  return {metrics.begin() + size_t(fb::Metric::Count),
          metrics.begin() + plan::countMetrics(plan)};
}

struct StepReport {
  uint64_t step; // from 1
  StepMetrics metrics;
  double learningRate;
  double seconds; // wall time, without the evaluation
  Verdict verdict;
  std::optional<Evaluation> evaluation; // after the step, where one was due
  const Stragglers *watched; // null where ranks were not watched in this step

  double tokens() const { return at(metrics, fb::Metric::TokenCount); }
  double tokensPerSecond() const { return tokens() / seconds; }
};

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

#endif // PLAIT_LIB_RUNTIME_TRAINING_OBSERVER_H
