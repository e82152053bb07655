//===- OptimizerOptions.h - Numbers of a plan's optimizer -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_OPTIMIZEROPTIONS_H
#define PLAIT_LIB_RUNTIME_TRAINING_OPTIMIZEROPTIONS_H

#include "plait/Runtime/Trainer.h"

namespace plait::runtime {

/// A number that an optimizer of a plan reads. Names live as long as the plan.
struct PlanOption {
  std::string_view name;
  double value; // where the run does not set it
  double least, most;
  size_t scalar;         // index in StepScalars
  size_t correction = 0; // index of 1 - value^updates; 0: there is none
  /// The option of all optimizers of the plan, which sets it where a run does
  /// not; empty: `name`, or none.
  std::string_view shared = {};

  /// Whether a run sets it by `option`.
  bool isSetBy(std::string_view option) const {
    return option == name || (!shared.empty() && option == shared);
  }
  /// Returns what `options` have of it.
  double choose(const TrainOptions &options) const;
};

/// Returns what the plan says that a run may set; of one that is older than
/// that, what its optimizer reads.
std::vector<PlanOption> getOptions(const fb::Plan &plan);

/// Completes the settings of a run with the defaults of the plan, and leaves
/// out what its optimizer does not read.
void completeSettings(TrainOptions &options, const fb::Plan &plan);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_OPTIMIZEROPTIONS_H
