//===- Evaluator.h - The loss on data that is held out ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_EVALUATOR_H
#define PLAIT_LIB_RUNTIME_TRAINING_EVALUATOR_H

#include "plait/Runtime/Observer.h"

namespace plait::runtime {

/// Evaluates with the forward passes of the training plan: parameters and what
/// the optimizer keeps stay as they are. An evaluation is over the first
/// batches of its data, always the same.
class Evaluator {
public:
  /// Nothing where the options name no data. `plan` and `options` outlive the
  /// evaluator.
  static Result<std::optional<Evaluator>> open(const fb::Plan &plan,
                                               const TrainOptions &options);

  /// Whether there is one after step `step`.
  bool isDue(uint64_t step) const {
    return step == options->steps ||
           (options->evalEvery && step % options->evalEvery == 0);
  }

  /// All processes call this. Before each batch `interrupted` is asked; nothing
  /// is returned where it said yes.
  Result<std::optional<Evaluation>>
  run(Executor &executor, const std::function<Result<bool>()> &interrupted);

private:
  Evaluator(Batches batches, uint64_t steps, const TrainOptions &options)
      : batches(std::move(batches)), steps(steps), options(&options) {}

  Batches batches;
  uint64_t steps; // of an evaluation
  const TrainOptions *options;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_EVALUATOR_H
