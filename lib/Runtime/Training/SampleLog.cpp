//===- SampleLog.cpp - Which samples a run has read -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The log by which a run can be held against the order of samples that it
// should have had. Each rank notes what it has read; the rows of all processes
// are put together after each step.
//
//===----------------------------------------------------------------------===//

#include "SampleLog.h"

#include "Setup.h"
#include "plait/Runtime/Rendezvous.h"

#include <cerrno>
#include <cstring>

using namespace plait;
using namespace plait::runtime;

Result<std::unique_ptr<SampleLog>>
SampleLog::open(const std::string &path, Executor &executor, Batches &batches) {
  std::FILE *file = nullptr;
  // Appended to, never cut: see SampleLog.h.
  if (executor.leads() && !(file = std::fopen(path.c_str(), "ae")))
    return fail("cannot write '", path, "': ", std::strerror(errno));
  return std::unique_ptr<SampleLog>(
      new SampleLog(path, file, executor, batches));
}

/// Batches write to the record while a step runs, from the threads of the
/// ranks.
SampleLog::SampleLog(std::string path, std::FILE *file, Executor &executor,
                     Batches &batches)
    : path(std::move(path)), file(file), executor(executor), batches(batches),
      record(static_cast<uint64_t>(executor.plan().global_batch())) {
  batches.recordTo(&record);
}

SampleLog::~SampleLog() {
  batches.recordTo(nullptr);
  if (file)
    std::fclose(file);
}

/// What all processes have read.
/// A row is the number of its sample plus one, and 0 where no rank of the
/// process has read it. Ranks of several processes may have read the same row,
/// as those of a tensor-parallel group do; then it must have been the same
/// sample.
Result<std::vector<uint64_t>> SampleLog::gather() {
  auto mine = record.take();
  PLAIT_RETURN_IF_ERROR(agree(executor, mine.status()));
  Rendezvous *processes = executor.processes();
  if (!processes)
    return mine;
  auto all = processes->exchange(
      std::string(reinterpret_cast<const char *>(mine->data()),
                  mine->size() * sizeof(uint64_t)));
  if (!all.ok())
    return all.status();
  for (const std::string &one : *all)
    for (size_t row = 0; row < mine->size(); ++row) {
      uint64_t number;
      std::memcpy(&number, one.data() + row * sizeof(number), sizeof(number));
      if (number && (*mine)[row] && number != (*mine)[row])
        return Status::failure(
            "processes have read different samples as one row");
      if (number)
        (*mine)[row] = number;
    }
  return mine;
}

Status SampleLog::endStep(uint64_t step) {
  auto rows = gather();
  if (!rows.ok())
    return fail("step ", step, ": ", rows.status().message());
  return file ? write(step, *rows) : Status::success();
}

/// A row that nobody has read is an error: the log would hide it. Flushed at
/// once, as the step's log is.
Status SampleLog::write(uint64_t step, const std::vector<uint64_t> &rows) {
  std::string line = "{\"step\": " + std::to_string(step) + ", \"samples\": [";
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row] == 0)
      return fail("step ", step, ": no rank has read row ", row);
    Sample sample = batches.order().sample(rows[row] - 1);
    line += (row ? ", [" : "[") + std::to_string(sample.source) + ", " +
            std::to_string(sample.index) + "]";
  }
  line += "]}\n";
  if (std::fputs(line.c_str(), file) < 0 || std::fflush(file) != 0)
    return fail("cannot write '", path, "': ", std::strerror(errno));
  return Status::success();
}
