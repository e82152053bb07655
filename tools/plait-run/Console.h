//===- Console.h - A run for those who watch --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITRUN_CONSOLE_H
#define PLAIT_TOOLS_PLAITRUN_CONSOLE_H

#include "plait/Runtime/Observer.h"
#include "plait/Support/CommandLine.h"
#include "plait/Support/Reporter.h"

#include <chrono>
#include <mutex>
#include <string>

namespace plait {

/// Settings, warnings and progress on standard error: one line that is
/// rewritten where it is a terminal, else a line every TrainOptions::printEvery
/// steps; and results, of which the line at the end is one.
class Console : public Reporter, public runtime::Observer {
public:
  explicit Console(const CLI::App &app) : app(app) {}

  /// Gives standard output to somebody else.
  void printResultsOnStandardError() { results = stderr; }

  /// May be called from any thread.
  void message(const Message &message) override;
  void result(const std::string &line) override;

  Status beginRun(const runtime::RunInfo &run) override;
  Status endStep(const runtime::StepReport &step) override;
  Status endRun(const runtime::RunState &state, const Status &outcome) override;

private:
  double elapsed() const;
  std::string printSpeed() const;
  void printProgress(const runtime::StepReport &step, bool isTerminal);
  void leaveLine();

  const CLI::App &app;
  std::FILE *results = stdout;
  const runtime::RunInfo *run = nullptr;
  std::chrono::steady_clock::time_point start;
  // Of this process.
  uint64_t steps = 0;
  double tokens = 0;
  double evaluating = 0; // seconds
  uint64_t last = 0;     // the step that was told last
  double loss = 0;       // of that

  std::mutex mutex;          // of the streams and what follows
  bool isBehindLine = false; // the cursor is behind a line of progress
};

} // namespace plait

#endif // PLAIT_TOOLS_PLAITRUN_CONSOLE_H
