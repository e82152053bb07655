//===- Best.h - The best weights so far -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_BEST_H
#define PLAIT_LIB_RUNTIME_TRAINING_BEST_H

#include "plait/Runtime/Observer.h"

namespace plait::runtime {

/// A model folder with the weights of the lowest loss on held-out data so far.
/// The file plait-best.json in it says which: a run that is resumed replaces
/// only what is worse. All processes make the same calls.
class Best {
public:
  /// `options` outlive it.
  static Result<Best> open(Executor &executor, const TrainOptions &options);

  /// Writes the weights after step `step` where they are better. What fails is
  /// a warning: the run goes on.
  Status offer(Executor &executor, uint64_t step, const Evaluation &evaluation);

  /// Fails where better weights than those in the folder could not be written.
  Status finish(Executor &executor) const;

private:
  Best(const TrainOptions &options, double loss)
      : options(&options), loss(loss) {}

  const TrainOptions *options;
  double loss;    // the lowest
  Status lacking; // why the folder has not the best weights
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_BEST_H
