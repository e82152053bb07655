//===- Writer.h - Writing checkpoints beside the steps ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a checkpoint holds changes at the end of the next step only. On
// processors threads beside that step give it to the system, and the ranks wait
// for them before they change it (so does CheckFreq, Mohan et al. 2021). A disk
// that is slower than the step is not waited for: the rest goes to the page
// cache. Ranks on GPUs copy between two steps.
//
// Ranks wait until all processes have copied: one that went on alone would wait
// for the others in its next collective, whose time limit is that of processes
// that have stopped, not of slow disks.
//
// Of several processes each has such threads. When all have said, after some
// step, that theirs have finished, the keepers of the place write the index and
// give the folder its name.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_WRITER_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_WRITER_H

#include "Place.h"
#include "plait/Runtime/Executor.h"

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

namespace plait::runtime {

/// Writes the checkpoints of a run to one place. All processes make the same
/// calls.
class CheckpointWriter {
public:
  /// `files` are those of the ranks of this process, by rank, and outlive this,
  /// as the executor does. `index` is makeIndex()'s.
  CheckpointWriter(Executor &executor, const CheckpointInterval &every,
                   const std::map<uint32_t, RankFile> &files,
                   std::unique_ptr<CheckpointPlace> place,
                   CheckpointIndex index)
      : executor(executor), every(every), files(files), place(std::move(place)),
        index(std::move(index)),
        isBeside(executor.holdUpdates([this] { awaitCopies(); })) {}
  /// A run that failed: what is complete becomes one, as after a step.
  ~CheckpointWriter();

  /// Do what Checkpointer's do.
  bool holdsStep() const { return holds; }
  Status duringStep();
  Status afterStep(const RunRecord &run);
  Status settle();
  Status finish(const RunRecord &run);

  /// That `step` is complete already.
  void setSaved(uint64_t step) { savedStep = step; }
  /// That what is complete of later steps than `step` is gone.
  void forgetAfter(uint64_t step) {
    if (savedStep > step)
      savedStep = UINT64_MAX;
  }
  const CheckpointPlace &where() const { return *place; }

private:
  enum class Phase { Idle, Writing, Spreading, Committing, Pruning };

  Result<bool> isDue(uint64_t step);
  void warnOfFailure();
  Status begin();
  Status save(const RunRecord &run);
  Status copyFiles();
  Status copyFile(uint32_t rank, const RankFile &file);
  void awaitCopies();
  void start(Phase next, std::function<Status()> job);
  void startWriting();
  Result<StoredFiles> shareFiles();
  void fillIndex(const StoredFiles &all);
  Status goOn();
  Status advance(bool wait);
  Status commit();
  Status prune();
  void conclude(const Status &status);

  Executor &executor;
  CheckpointInterval every;
  const std::map<uint32_t, RankFile> &files;
  std::unique_ptr<CheckpointPlace> place;
  std::chrono::steady_clock::time_point lastSave =
      std::chrono::steady_clock::now();
  uint64_t savedStep = UINT64_MAX; // the newest that is complete

  Phase phase = Phase::Idle;
  uint64_t step = 0;                  // of what is being written
  Status failure = Status::success(); // of `step`, not told yet
  std::shared_future<Status> task;
  // The task's while it lasts:
  CheckpointIndex index; // a keeper's
  std::vector<WrittenFile> written;
  std::mutex copying; // of `written`

  const bool isBeside;             // the next step is what is copied
  std::shared_future<void> copied; // of this process
  // Of all; not valid: nothing has ever been copied.
  std::promise<void> copiedByAll;
  std::shared_future<void> released;
  bool holds = false; // nobody has asked whether all have
  std::atomic<bool> isAwaited = false;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_WRITER_H
