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

#include "Settings.h"
#include "Stragglers.h"
#include "plait/Plan/Container.h"
#include "plait/Support/Quantities.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

/// The second number of statm is the resident set, in pages. 0 where there is
/// no /proc.
uint64_t runtime::residentBytes() {
  unsigned long long pages = 0;
  std::FILE *file = std::fopen("/proc/self/statm", "re");
  if (!file)
    return 0;
  if (std::fscanf(file, "%*u %llu", &pages) != 1)
    pages = 0;
  std::fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
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
void Console::printProgress(const StepReport &step, bool isTerminal) const {
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
  if (isTerminal && step.step == last)
    std::fputc('\n', stderr);
}

/// The cursor of a terminal is behind the progress line: a warning goes to a
/// line below, an evaluation replaces it.
Status Console::endStep(const StepReport &step) {
  ++steps;
  tokens += step.tokens();
  last = step.step;
  loss = at(step.metrics, fb::Metric::Loss);
  bool isTerminal = isatty(STDERR_FILENO);
  if (!step.verdict.warning.empty())
    std::fprintf(stderr, "%splait-run: warning: %s\n", isTerminal ? "\n" : "",
                 step.verdict.warning.c_str());
  for (uint32_t rank :
       step.watched ? step.watched->changed() : std::vector<uint32_t>())
    std::fprintf(stderr, "%splait-run: %s: %s\n", isTerminal ? "\n" : "",
                 step.watched->ranks()[rank].isSlow ? "warning" : "note",
                 step.watched->describe(rank).c_str());
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

/// A failure is reported by whoever started the run. Where the last steps were
/// undone, and none replaced them, the loss of the one that the run ended with
/// is not known any more.
Status Console::endRun(const RunState &state, const Status &outcome) {
  if (!outcome.ok())
    return Status::success();
  std::string text = countOf(run->options.steps, "step");
  if (state.step < run->options.steps)
    text = std::to_string(state.step) + " of " + text;
  char printed[32] = "";
  if (last == state.step)
    std::snprintf(printed, sizeof(printed), ", loss %.6f", loss);
  std::fprintf(run->options.summary, "%s%s%s, %s\n", text.c_str(), printed,
               printSpeed().c_str(), describeArenas(run->plan).c_str());
  return Status::success();
}
