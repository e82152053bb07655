//===- SampleLog.cpp - Log of the samples of a run ------------------------===//
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

/// Rows of a process as a text; none where its ranks do not agree.
static std::string pack(const Result<std::vector<uint64_t>> &rows) {
  return rows.ok() ? std::string(reinterpret_cast<const char *>(rows->data()),
                                 rows->size() * sizeof(uint64_t))
                   : "";
}

/// Joins what all processes have read, of which each text has that of one. A
/// row is the number of its sample plus one, and 0 where no rank of the process
/// has read it. Ranks of several processes may have read the same row, as those
/// of a tensor-parallel group do; then it must have been the same sample.
static Result<std::vector<uint64_t>> join(std::span<const std::string> texts) {
  std::vector<uint64_t> rows(texts.front().size() / sizeof(uint64_t));
  for (const std::string &one : texts) {
    // A batch has a row.
    bool agrees = !one.empty() && one.size() == texts.front().size();
    for (size_t row = 0; row < rows.size() && agrees; ++row) {
      uint64_t number;
      std::memcpy(&number, one.data() + row * sizeof(number), sizeof(number));
      agrees = !number || !rows[row] || number == rows[row];
      if (number)
        rows[row] = number;
    }
    if (!agrees)
      return Status::failure("ranks have read different samples as one row");
  }
  return rows;
}

/// One agreement a step: whoever fails, all do.
Status SampleLog::endStep(uint64_t step) {
  auto add = [&](std::span<const std::string> texts) {
    auto rows = join(texts);
    return rows.ok() ? write(step, *rows)
                     : fail(rows.status().code(), "step ", step, ": ",
                            rows.status().message());
  };
  std::string mine = pack(record.take());
  Rendezvous *processes = executor.processes();
  return processes ? processes->judge(mine, add) : add({&mine, 1});
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
