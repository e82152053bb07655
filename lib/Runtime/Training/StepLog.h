//===- StepLog.h - A run as JSON lines --------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_STEPLOG_H
#define PLAIT_LIB_RUNTIME_TRAINING_STEPLOG_H

#include "plait/Runtime/Observer.h"

#include <cstdio>
#include <memory>
#include <string>

namespace plait::runtime {

/// The log: one JSON object a line, complete after every step. A run that is
/// resumed goes on in the file; another one moves what is there aside, as
/// run.jsonl.1: what took hours to write is never destroyed, nor mixed with
/// another run's.
class StepLog : public Observer {
public:
  /// `path` may be "-". What was moved is told to `reporter`, if there is one.
  static Result<std::unique_ptr<Observer>>
  open(const std::string &path, bool resumes, Reporter *reporter);

  Status beginRun(const RunInfo &run) override;
  Status endStep(const StepReport &step) override;

private:
  struct Close {
    void operator()(std::FILE *file) const { std::fclose(file); }
  };

  StepLog(std::string path, std::FILE *file)
      : path(std::move(path)), file(file) {}

  std::string path;
  std::unique_ptr<std::FILE, Close> file;
  const RunInfo *run = nullptr;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_STEPLOG_H
