//===- Console.cpp - A run for those who watch ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a person sees of a run: the settings at the beginning, warnings, a line
// of progress that is rewritten in place where standard error is a terminal,
// and one line at the end. Where it is not a terminal, as in the log of a job,
// progress is a line every few steps.
//
//===----------------------------------------------------------------------===//

#include "Console.h"

#include "plait/Plan/Container.h"
#include "plait/Support/Quantities.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <utility>

using namespace plait;
using namespace plait::runtime;
namespace fb = plan::fb;

/// A message goes to a line below.
void Console::leaveLine() {
  if (std::exchange(isBehindLine, false))
    std::fputc('\n', stderr);
}

/// A message about what is merely done has no prefix.
void Console::message(const Message &message) {
  std::lock_guard lock(mutex);
  leaveLine();
  if (message.severity == Severity::Info)
    std::fprintf(stderr, "%s\n", message.getLine().c_str());
  else
    tool::printMessage(app,
                       message.severity == Severity::Note ? "note" : "warning",
                       message.getLine());
}

void Console::result(const std::string &line) {
  std::lock_guard lock(mutex);
  leaveLine();
  std::fprintf(results, "%s\n", line.c_str());
}

/// Says what ranks have allocated, "memory of ranks 7.28 MB to 9.58 MB".
static std::string describeArenas(const fb::Plan &plan) {
  uint64_t least = UINT64_MAX, most = 0;
  for (const fb::Program *program : *plan.programs()) {
    least = std::min(least, program->arena_bytes());
    most = std::max(most, program->arena_bytes());
  }
  return least == most ? "memory of a rank " + describeBytes(most)
                       : "memory of ranks " + describeBytes(least) + " to " +
                             describeBytes(most);
}

/// Settings are printed in full, defaults too: a log has to say what was run.
Status Console::beginRun(const RunInfo &info) {
  run = &info;
  std::fprintf(stderr, "proof of the plan: %s\n",
               plan::describeProof(info.plan).c_str());
  std::fputs(describeRun(info).c_str(), stderr);
  start = std::chrono::steady_clock::now();
  return Status::success();
}

double Console::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// ", 1234.5 tokens/s, 12.3 GFLOP/s, MFU 5.3 %", evaluations left out.
std::string Console::printSpeed() const {
  double seconds = elapsed() - evaluating;
  char text[64];
  std::snprintf(text, sizeof(text), ", %.1f tokens/s", tokens / seconds);
  return text + run->utilization.print(seconds / double(steps));
}

/// "2.5 h" of what is left.
static std::string printLeft(double seconds) {
  char text[32];
  if (seconds < 90)
    std::snprintf(text, sizeof(text), "%.0f s", seconds);
  else if (seconds < 5400)
    std::snprintf(text, sizeof(text), "%.0f min", seconds / 60);
  else
    std::snprintf(text, sizeof(text), "%.1f h", seconds / 3600);
  return text;
}

/// Some blanks at the end cover, on a terminal, what is left of a longer line
/// before. The time that is left counts evaluations as they have been so far.
void Console::printProgress(const StepReport &step, bool isTerminal) {
  uint64_t last = run->options.steps, every = run->options.printEvery;
  bool isPrinted = isTerminal || (every && step.step % every == 0);
  if (!isPrinted)
    return;
  double left = elapsed() / double(steps) * double(last - step.step);
  std::fprintf(stderr, "%sstep %llu/%llu, loss %.4f%s, %s, %s left%s",
               isTerminal ? "\r" : "",
               static_cast<unsigned long long>(step.step),
               static_cast<unsigned long long>(last), loss,
               printSpeed().c_str(), describeBytes(residentBytes()).c_str(),
               printLeft(left).c_str(), isTerminal ? "   " : "\n");
  isBehindLine = isTerminal;
  if (step.step == last)
    leaveLine();
}

/// An evaluation replaces the progress line of a terminal.
Status Console::endStep(const StepReport &step) {
  ++steps;
  tokens += step.tokens();
  last = step.step;
  loss = at(step.metrics, fb::Metric::Loss);
  bool isTerminal = isatty(STDERR_FILENO);
  std::lock_guard lock(mutex);
  if (step.evaluation) {
    evaluating += step.evaluation->seconds;
    std::fprintf(stderr, "%sstep %llu, loss on held-out data %.6f\n",
                 isTerminal ? "\r\033[K" : "",
                 static_cast<unsigned long long>(step.step),
                 step.evaluation->loss);
  }
  printProgress(step, isTerminal);
  return Status::success();
}

/// A failure is reported by whoever started the run, on a line below. Where the
/// last steps were undone, and none replaced them, the loss of the one that the
/// run ended with is not known any more.
Status Console::endRun(const RunState &state, const Status &outcome) {
  std::unique_lock lock(mutex);
  leaveLine();
  lock.unlock();
  if (!outcome.ok())
    return Status::success();
  std::string text = countOf(run->options.steps, "step");
  if (state.step < run->options.steps)
    text = std::to_string(state.step) + " of " + text;
  char printed[32] = "";
  if (last == state.step)
    std::snprintf(printed, sizeof(printed), ", loss %.6f", loss);
  result(text + printed + printSpeed() + ", " + describeArenas(run->plan));
  return Status::success();
}
