//===- Controls.h - What steers the steps of a run --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_CONTROLS_H
#define PLAIT_LIB_RUNTIME_TRAINING_CONTROLS_H

#include "plait/Runtime/Trainer.h"

namespace plait::runtime {

inline double at(const StepMetrics &metrics, fb::Metric index) {
  return metrics[static_cast<size_t>(index)];
}

/// Fails where the metrics of a step are not those of a step that could have
/// taught something.
Status checkMetrics(const StepMetrics &metrics);

/// What a run decides from step to step. All of it follows from the options and
/// the step's number (from 1), so that all processes decide the same and a run
/// may begin anywhere.
class Controls {
public:
  /// `options` outlive the controls.
  explicit Controls(const TrainOptions &options) : options(options) {}

  double learningRate(uint64_t step) const { return options.learningRate; }
  /// The step's inputs.
  StepScalars scalars(uint64_t step) const;
  /// Whether the run may go on after a step with these metrics.
  Status judge(uint64_t step, const StepMetrics &metrics) const;

private:
  const TrainOptions &options;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_CONTROLS_H
