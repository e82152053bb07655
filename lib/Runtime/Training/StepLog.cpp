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

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

/// Gives the log of another run, if there is one, the first name behind its own
/// that is free. Devices and pipes have nothing to move.
static Status moveAside(const std::string &path, Reporter *reporter) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) ||
      std::filesystem::file_size(path, error) == 0)
    return Status::success();
  std::string target;
  for (int i = 1; target.empty() || std::filesystem::exists(target); ++i)
    target = path + "." + std::to_string(i);
  std::filesystem::rename(path, target, error);
  if (error)
    return fail("cannot rename '", path, "' to '", target,
                "': ", error.message());
  plait::tell(reporter, Severity::Note,
              "'" + path + "' is of another run, and is now '" + target + "'");
  return Status::success();
}

/// Standard output is duplicated, so that closing the log does not close it.
Result<std::unique_ptr<Observer>>
StepLog::open(const std::string &path, bool resumes, Reporter *reporter) {
  if (!resumes && !isStandardOutput(path))
    PLAIT_RETURN_IF_ERROR(moveAside(path, reporter));
  std::FILE *file = isStandardOutput(path)
                        ? fdopen(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0), "a")
                        : std::fopen(path.c_str(), "ae");
  if (!file)
    return fail("cannot write '", path, "': ", std::strerror(errno));
  return std::unique_ptr<Observer>(new StepLog(path, file));
}

/// Returns the step of the last line of a log; none where there is no such
/// line. Lines have some hundred bytes, and a few more for each straggler.
static std::optional<uint64_t> readLastStep(const std::string &path) {
  constexpr std::streamoff most = 1 << 16;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::streamoff size = file.tellg();
  if (!file || size == 0)
    return std::nullopt;
  std::string text(size_t(std::min(size, most)), '\0');
  file.seekg(size - std::streamoff(text.size()));
  if (!file.read(text.data(), std::streamsize(text.size())))
    return std::nullopt;
  // What follows the last newline was not written as a whole.
  size_t end = text.rfind('\n');
  if (end == text.npos || end == 0)
    return std::nullopt;
  size_t before = text.rfind('\n', end - 1);
  size_t begin = before == text.npos ? 0 : before + 1;
  auto line = nlohmann::json::parse(text.substr(begin, end - begin), nullptr,
                                    /*allow_exceptions=*/false);
  if (!line.is_object() ||
      !line.value("step", nlohmann::json()).is_number_unsigned())
    return std::nullopt;
  return line["step"].get<uint64_t>();
}

/// A resumed run adds to what is there: where that ends before the checkpoint,
/// it may be another run's.
Status StepLog::beginRun(const RunInfo &info) {
  run = &info;
  if (info.start.step == 0 || isStandardOutput(path))
    return Status::success();
  std::optional<uint64_t> last = readLastStep(path);
  if (last && *last < info.start.step)
    plait::tell(info.options.executor.reporter, Severity::Warning,
                "'" + path + "' ends with step " + std::to_string(*last) +
                    ", and the run resumes step " +
                    std::to_string(info.start.step) +
                    ": it lacks steps, or is of another run");
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
  for (const auto &[name, value] : getNamedLosses(plan, metrics))
    text += (text.empty() ? "\"" : ", \"") + name + "\": " + printNumber(value);
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
