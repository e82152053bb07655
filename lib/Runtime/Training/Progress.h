//===- Progress.h - Resumption and checkpoints of a run ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_PROGRESS_H
#define PLAIT_LIB_RUNTIME_TRAINING_PROGRESS_H

#include "plait/Runtime/Trainer.h"

namespace plait::runtime {

/// The checkpoints of a run: the one that it goes on from, if it does, and
/// those that it writes. All processes make the same calls.
class Progress {
public:
  /// Sets the weights, and with `options.resume` what the optimizer keeps,
  /// `state` and where `batches` go on, too. Everything outlives the object.
  /// What the checkpoint's run has learned with is kept in `options`, unless
  /// others are given.
  static Result<Progress> begin(Executor &executor, TrainOptions &options,
                                Batches &batches, RunState &state);

  /// Takes the directory for the run's own checkpoints, if it has one. Comes
  /// after begin(), once nothing about the options can fail any more: what
  /// others have left in the directory is changed.
  Status openCheckpoints();

  /// Do what Checkpointer's do.
  bool holdsStep() const { return checkpoints && checkpoints->holdsStep(); }
  Status duringStep() { return checkpoints->duringStep(); }
  /// Ends a step that is to stay.
  Status afterStep() {
    return checkpoints ? checkpoints->afterStep(record()) : Status::success();
  }
  /// Undoes a step that must not have been: the run goes on from the newest
  /// checkpoint, with the data after the step. (So do Chowdhery et al. 2022,
  /// "PaLM", section 5.1: data seen between checkpoint and spike is left out as
  /// well.) Fails where there is no checkpoint, or where it has been gone back
  /// to too often.
  Status rollBack();
  /// Ends the run.
  Status finish() {
    return checkpoints ? checkpoints->finish(record()) : Status::success();
  }

private:
  Progress(Executor &executor, TrainOptions &options, Batches &batches,
           RunState &state)
      : executor(executor), options(options), batches(batches), state(state) {}

  Status goOn(const Resumed &resumed);
  void setState(const RunRecord &run);
  RunRecord record() const;

  Executor &executor;
  TrainOptions &options;
  Batches &batches;
  RunState &state;
  std::optional<Resumed> resumed;            // that the run began with
  std::unique_ptr<Checkpointer> checkpoints; // null: none
  // The checkpoint that was gone back to, and how often in a row.
  uint64_t rolledBackTo = UINT64_MAX;
  unsigned rollBacks = 0;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_PROGRESS_H
