//===- Writer.h - Writing checkpoints beside the steps ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the next step would overwrite is copied between two steps: each rank
// writes what it holds to its file, which takes it as far as the page cache, at
// the speed of memory and without memory of the rank's own. What makes it safe
// is waited for by a thread beside the steps.
//
// Of several processes each has such a thread. When all have said, after some
// step, that theirs has finished, the keepers of the place write the index and
// give the folder its name.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_WRITER_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_WRITER_H

#include "Place.h"
#include "plait/Runtime/Executor.h"

#include <future>
#include <memory>

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
        index(std::move(index)) {}
  /// A run that failed: what is complete becomes one, as after a step.
  ~CheckpointWriter();

  /// As Checkpointer's.
  Status afterStep(const RunRecord &run);
  Status settle() { return advance(/*wait=*/true); }
  Status finish(const RunRecord &run);

  /// That `step` is complete already.
  void setSaved(uint64_t step) { savedStep = step; }
  const CheckpointPlace &where() const { return *place; }

private:
  enum class Phase { Idle, Securing, Committing, Pruning };

  Result<bool> isDue(uint64_t step);
  Status begin();
  Status save(const RunRecord &run);
  Status copyAside(std::vector<WrittenFile> &written);
  void start(Phase next, std::function<Status()> job);
  void startSecuring(std::vector<WrittenFile> written, StoredFiles all);
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
  uint64_t step = 0; // of what is being written
  std::shared_future<Status> task;
  CheckpointIndex index; // a keeper's; the task's while it lasts
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_WRITER_H
