//===- Controls.h - Controls of a training loop -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_CONTROLS_H
#define PLAIT_LIB_RUNTIME_TRAINING_CONTROLS_H

#include "LearningRate.h"
#include "OptimizerOptions.h"
#include "plait/Runtime/TrainingRun.h"

#include <deque>

namespace plait::runtime {

/// Fails where the metrics of a step are not those of a step that could have
/// taught something.
Status checkMetrics(const StepMetrics &metrics);

/// The decisions of a run from step to step. Processes that make the same calls
/// decide the same.
class Controls {
public:
  /// `options` outlive the controls; `optimizer` is what the plan's reads of
  /// them. Fails where they contradict each other or the plan's bounds.
  static Result<Controls> create(const TrainOptions &options,
                                 std::vector<PlanOption> optimizer);

  double learningRate(uint64_t step) const { return rate.at(step); }
  /// After a change of the options' steps. What is known of those so far stays.
  void renewSchedule() { rate.follow(*options); }
  /// The inputs of the step after `state`.
  StepScalars scalars(const RunState &state) const;
  /// How much of each step is done.
  StepScope scope() const {
    return options->onNonFinite == NonFinitePolicy::Skip
               ? StepScope::TrainIfFinite
               : StepScope::Train;
  }
  /// Looks at a step that is done; fails where the run must not go on.
  Result<Verdict> judge(uint64_t step, const StepMetrics &metrics);

private:
  Controls(const TrainOptions &options, std::vector<PlanOption> optimizer,
           const LearningRate &rate)
      : options(&options), optimizer(std::move(optimizer)), rate(rate) {}

  Result<Verdict> judgeLoss(uint64_t step, double loss);

  const TrainOptions *options;
  std::vector<PlanOption> optimizer;
  LearningRate rate;
  uint64_t skippedInARow = 0;
  std::deque<double>
      losses; // the last ones, as many as spikes are held against
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_CONTROLS_H
