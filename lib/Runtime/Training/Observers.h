//===- Observers.h - Those who watch a run ----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_OBSERVERS_H
#define PLAIT_LIB_RUNTIME_TRAINING_OBSERVERS_H

#include "plait/Runtime/Observer.h"

#include <memory>
#include <vector>

namespace plait::runtime {

/// Those of the run itself, and all of them in the order in which they are
/// told. Empty in all processes but that of rank 0.
struct Observers {
  std::vector<std::unique_ptr<Observer>> own;
  std::vector<Observer *> all;

  void add(std::unique_ptr<Observer> observer) {
    all.push_back(observer.get());
    own.push_back(std::move(observer));
  }
};

/// Tells all observers in turn, until one fails.
template <typename Tell> Status tell(const Observers &observers, Tell what) {
  for (Observer *observer : observers.all)
    PLAIT_RETURN_IF_ERROR(what(*observer));
  return Status::success();
}

/// Opens those that the options name, in the process of rank 0. What cannot be
/// written fails here, before the first step.
Result<Observers> makeObservers(const TrainOptions &options);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_OBSERVERS_H
