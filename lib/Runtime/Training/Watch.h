//===- Watch.h - Recording of a run's steps ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_WATCH_H
#define PLAIT_LIB_RUNTIME_TRAINING_WATCH_H

#include "Stragglers.h"
#include "plait/Runtime/Trainer.h"

namespace plait::runtime {

/// The notes of a run's steps: of those that readers want, and of some by which
/// ranks are known that others wait for. All processes make the same calls.
class Watch {
public:
  /// Gives the executor's options notes where they have none. Both outlive the
  /// watch.
  Watch(const fb::Plan &plan, TrainOptions &options);

  /// Begins the run that goes from step `first` to step `last`.
  Status beginRun(Executor &executor, uint64_t first, uint64_t last);
  void beforeStep(uint64_t step);
  /// Ends a step that took `seconds`.
  Status afterStep(Executor &executor, uint64_t step, double seconds);

  /// Returns, in process 0, the last step; null where it was not watched.
  const Stragglers *watched() const {
    return isWatched ? &*stragglers : nullptr;
  }

private:
  Status findHosts(const fb::Plan &plan, Rendezvous *processes);

  std::optional<StepNotes> own;
  StepNotes *notes; // null: none
  std::vector<StepReader *> readers;
  std::optional<Stragglers> stragglers;
  bool isWatched = false; // the last step
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_WATCH_H
