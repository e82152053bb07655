//===- SampleLog.h - Log of the samples of a run ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_SAMPLELOG_H
#define PLAIT_LIB_RUNTIME_TRAINING_SAMPLELOG_H

#include "plait/Runtime/Data.h"
#include "plait/Runtime/Executor.h"

#include <cstdio>
#include <memory>

namespace plait::runtime {

/// One JSON object a step, of what the ranks have read, not of what they should
/// have: {"step": 1, "samples": [[source, sample], …]}, row by row of the
/// global batch. Appended to the file, as the log is: where a run is killed and
/// goes on from a checkpoint, the last line of a step counts.
class SampleLog {
public:
  /// All processes call this; that of rank 0 writes the file. The arguments
  /// outlive the object.
  static Result<std::unique_ptr<SampleLog>>
  open(const std::string &path, Executor &executor, Batches &batches);
  ~SampleLog();

  /// After a step; all processes call this.
  Status endStep(uint64_t step);

private:
  SampleLog(std::string path, std::FILE *file, Executor &executor,
            Batches &batches);

  Status write(uint64_t step, const std::vector<uint64_t> &rows);

  std::string path;
  std::FILE *file; // null: this process does not write
  Executor &executor;
  Batches &batches;
  SampleRecord record;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_SAMPLELOG_H
