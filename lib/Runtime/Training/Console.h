//===- Console.h - A run for those who watch --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_CONSOLE_H
#define PLAIT_LIB_RUNTIME_TRAINING_CONSOLE_H

#include "Observer.h"

#include <chrono>
#include <string>

namespace plait::runtime {

/// The memory of this process that is in use, in bytes.
uint64_t residentBytes();

/// Settings, warnings and progress on standard error: one line that is
/// rewritten where it is a terminal, else a line every TrainOptions::printEvery
/// steps; and the line at the end, on TrainOptions::summary.
class Console : public Observer {
public:
  Status beginRun(const RunInfo &run) override;
  Status endStep(const StepReport &step) override;
  Status endRun(const RunState &state, const Status &outcome) override;

private:
  double elapsed() const;
  std::string printSpeed() const;
  void printProgress(const StepReport &step, bool isTerminal) const;

  const RunInfo *run = nullptr;
  std::chrono::steady_clock::time_point start;
  // Of this process.
  uint64_t steps = 0;
  double tokens = 0;
  double evaluating = 0; // seconds
  uint64_t last = 0;     // the step that was told last
  double loss = 0;       // of that
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_CONSOLE_H
