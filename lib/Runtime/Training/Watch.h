//===- Watch.h - Which steps are noted, and who reads the notes -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_WATCH_H
#define PLAIT_LIB_RUNTIME_TRAINING_WATCH_H

#include "plait/Runtime/Trainer.h"

namespace plait::runtime {

/// The notes of a run's steps. All processes make the same calls.
class Watch {
public:
  /// `options` have notes where they have readers. All outlive the watch.
  explicit Watch(const TrainOptions &options)
      : notes(options.executor.notes), readers(options.readers) {}

  /// Of the run that ends with step `steps`.
  Status beginRun(Executor &executor, uint64_t steps);
  void beforeStep(uint64_t step);
  /// Of a step that took `seconds`.
  Status afterStep(Executor &executor, uint64_t step, double seconds);

private:
  StepNotes *notes; // null: none
  const std::vector<StepReader *> &readers;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_WATCH_H
