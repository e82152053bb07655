//===- StepLog.cpp - A run as JSON lines ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One JSON object a line for every step, for scripts to read. Fields that do
// not apply to a step are left out; numbers that JSON has no text for are null.
// docs/Running.md has the keys.
//
//===----------------------------------------------------------------------===//

#include "StepLog.h"

#include "Stragglers.h"
#include "plait/Plan/Files.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

/// Standard output is duplicated, so that closing the log does not close it.
Result<std::unique_ptr<Observer>> StepLog::open(const std::string &path) {
  std::FILE *file = isStandardOutput(path)
                        ? fdopen(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0), "a")
                        : std::fopen(path.c_str(), "ae");
  if (!file)
    return fail("cannot write '", path, "': ", std::strerror(errno));
  return std::unique_ptr<Observer>(new StepLog(path, file));
}

Status StepLog::beginRun(const RunInfo &info) {
  run = &info;
  return Status::success();
}

/// Prints a number as JSON has it, which knows no infinity and no NaN.
static std::string printNumber(double value) {
  if (!std::isfinite(value))
    return "null";
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

/// Nothing where no rank is slow.
static std::string printStragglers(const Stragglers &watched) {
  std::string text;
  for (uint32_t rank = 0; rank < watched.ranks().size(); ++rank) {
    const Stragglers::Rank &one = watched.ranks()[rank];
    if (!one.isSlow)
      continue;
    nlohmann::ordered_json entry = {{"rank", rank},
                                    {"host", one.host},
                                    {"position", one.position},
                                    {"times", one.times},
                                    {"waited_seconds", one.waitedFor}};
    text += (text.empty() ? "" : ", ") + entry.dump();
  }
  return text.empty() ? "" : ", \"stragglers\": [" + text + "]";
}

/// A part of a line: `, "KEY": {"z_loss": 0.1}`; empty where the plan names
/// none.
static std::string printNamed(const char *key, const fb::Plan &plan,
                              const StepMetrics &metrics) {
  std::string text;
  std::vector<double> losses = getNamedLosses(plan, metrics);
  for (size_t i = 0; i < losses.size(); ++i)
    text += (i ? ", \"" : "\"") + plan.named_losses()->Get(i)->str() +
            "\": " + printNumber(losses[i]);
  return text.empty() ? "" : ", \"" + std::string(key) + "\": {" + text + "}";
}

/// Nine digits bring back every f32, which losses are. Flushed after each line,
/// so that a run that is killed has a log of all its steps.
Status StepLog::endStep(const StepReport &step) {
  std::string more = run->utilization.printFields(step.seconds);
  more += printNamed("losses", run->plan, step.metrics);
  if (step.verdict.skipped)
    more += ", \"skipped\": true";
  if (step.verdict.rollsBack)
    more += ", \"rolled_back\": true";
  if (step.evaluation)
    more += ", \"eval_loss\": " + printNumber(step.evaluation->loss) +
            printNamed("eval_losses", run->plan, step.evaluation->means);
  if (step.watched)
    more += printStragglers(*step.watched);
  std::fprintf(file.get(),
               "{\"step\": %llu, \"loss\": %s, \"grad_norm\": %s, "
               "\"lr\": %.9g, \"tokens\": %.0f, \"step_seconds\": %.9g, "
               "\"tokens_per_second\": %.9g%s}\n",
               static_cast<unsigned long long>(step.step),
               printNumber(at(step.metrics, fb::Metric::Loss)).c_str(),
               printNumber(at(step.metrics, fb::Metric::GradNorm)).c_str(),
               step.learningRate, step.tokens(), step.seconds,
               step.tokensPerSecond(), more.c_str());
  if (std::fflush(file.get()) != 0)
    return fail("cannot write '", path, "': ", std::strerror(errno));
  return Status::success();
}
