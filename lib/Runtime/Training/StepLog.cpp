//===- StepLog.cpp - A run as JSON lines ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepLog.h"

#include "Controls.h"
#include "plait/Plan/Files.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

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

Status StepLog::endStep(const StepReport &step) {
  double tokens = at(step.metrics, fb::Metric::TokenCount);
  std::fprintf(file.get(),
               "{\"step\": %llu, \"loss\": %.9g, \"grad_norm\": %.9g, "
               "\"lr\": %.9g, \"tokens\": %.0f, \"step_seconds\": %.9g, "
               "\"tokens_per_second\": %.9g%s}\n",
               static_cast<unsigned long long>(step.step),
               at(step.metrics, fb::Metric::Loss),
               at(step.metrics, fb::Metric::GradNorm), step.learningRate,
               tokens, step.seconds, tokens / step.seconds,
               run->utilization.printFields(step.seconds).c_str());
  if (std::fflush(file.get()) != 0)
    return fail("cannot write '", path, "': ", std::strerror(errno));
  return Status::success();
}
