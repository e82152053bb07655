//===- Checkpoint.h - Runs that are interrupted and go on -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A checkpoint is a folder: safetensors files, one a rank, whose tensors are
// boxes of the model's tensors and of what the optimizer keeps of them, and
// index.json, which says where each box is, and where the run was. Nothing in
// it depends on a mesh, so that any plan of the model resumes it. See
// docs/Checkpoints.md for the format.
//
// A folder appears under its name, step-00000120, when all of it is on the
// disk: what is being written is called step-00000120.partial.
//
// Copies of the newest state may be kept in the memory of hosts, too: each host
// has the files of its own ranks and those of the host before it, so that any
// one of them may be lost.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_CHECKPOINT_H
#define PLAIT_RUNTIME_CHECKPOINT_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace plait::runtime {

namespace fb = plan::fb;

class Executor;
class Rendezvous;

/// The state of a run, beside its tensors.
struct RunRecord {
  uint64_t step = 0;    // steps done
  uint64_t updates = 0; // steps that were not skipped
  uint64_t samples = 0; // of the data, since its beginning
  double tokens = 0;    // that losses were means over
  uint64_t seed = 0;
  std::string data;     // Batches::describe()
  std::string settings; // of the run, a JSON object; empty: none

  bool operator==(const RunRecord &) const = default;
};

/// The properties of a plan that messages and reports name.
struct PlanIdentity {
  std::string hash; // plan::identify()
  std::string mesh; // "pp=2,dp=4"
  std::string optimizer;
  /// Factors of the learning rate, by parameter, where they are not 1.
  std::map<std::string, double> rates = {};
  /// Optimizers of groups, by parameter, where they are not `optimizer`.
  std::map<std::string, std::string> optimizers = {};
  /// Alpha of adapters; 0: there are none.
  double alpha = 0.0;

  /// Returns all optimizers, "adamw with lion and muon".
  std::string nameOptimizers() const;

  static PlanIdentity of(const fb::Plan &plan, uint64_t hash);
};

/// When checkpoints are written; both 0: after the last step only.
struct CheckpointInterval {
  uint64_t steps = 0;
  std::chrono::seconds seconds{0};
};

struct CheckpointOptions {
  std::string directory; // empty: none are written
  CheckpointInterval every;
  uint64_t keep = 0; // the newest ones; 0: all
  /// A directory in memory, or on a disk, of each host; empty: no copies.
  std::string replica;
  CheckpointInterval replicaEvery;
};

/// "10": steps; "30s", "30m", "2h": time.
Result<CheckpointInterval> parseCheckpointEvery(const std::string &text);

/// The checkpoint that a run goes on from.
struct Resumed {
  RunRecord run;
  std::string path;      // of the folder
  std::string directory; // that resume() was given
  bool isReplica = false;
  /// The id of the run, if its copies in memory were looked for; else empty.
  std::string replicaId;
  /// Steps of newer ones that are damaged.
  std::vector<uint64_t> damaged;
};

/// Sets weights and what the optimizer keeps from the newest complete
/// checkpoint of `path`, which is a directory of them or one itself, or from
/// its copies below `replica` where those are as new. One that is damaged is a
/// warning, and the one before it is taken. Nothing where `mayBeNone` and there
/// is no checkpoint. Fails where the checkpoint does not fit the plan. All
/// processes of a run call this.
Result<std::optional<Resumed>> resume(Executor &executor,
                                      const std::string &path, bool mayBeNone,
                                      const std::string &replica = "");

/// How many bytes of its host's memory this process will take for copies in
/// `options.replica`, beside what they take already. All processes call this.
Result<uint64_t> replicaBytes(const fb::Plan &plan,
                              const CheckpointOptions &options,
                              Rendezvous *processes);

/// Writes the checkpoints of a run. All processes of the run make the same
/// calls.
class Checkpointer {
public:
  /// Makes the directory where there is none, takes it for this run alone, and
  /// removes what earlier runs left unfinished. There must be no checkpoints in
  /// it but those before the one that the run goes on from; damaged ones are
  /// renamed to step-00000120.damaged. Copies in memory of another run that had
  /// the directory are removed. `identity` is that of the plan of `executor`,
  /// which outlives this.
  static Result<std::unique_ptr<Checkpointer>>
  create(Executor &executor, const CheckpointOptions &options,
         const PlanIdentity &identity, const std::optional<Resumed> &resumed);
  virtual ~Checkpointer() = default;

  /// Whether the ranks will wait in the next step until all processes have
  /// copied what changes at its end. Then duringStep() has to be called beside
  /// the step, from one thread. It returns when they need not wait any more;
  /// how long that takes is the disks' business, but a process that has stopped
  /// makes it fail.
  virtual bool holdsStep() const = 0;
  virtual Status duringStep() = 0;

  /// Has to be called after every step. Where a checkpoint is due, each rank
  /// copies what it holds to the page cache of its file; getting it to the
  /// disk, the index and removing old checkpoints goes on beside the next
  /// steps. What fails is a warning, and the folder is gone; only what makes
  /// the run itself impossible is a failure.
  virtual Status afterStep(const RunRecord &run) = 0;

  /// After resume() in the middle of the run: it goes on from `resumed`.
  /// Damaged checkpoints are renamed, as create() does, and what memory has of
  /// later steps is removed.
  virtual Status goBackTo(const Resumed &resumed) = 0;

  /// Waits until what is being written is complete or has failed.
  virtual Status settle() = 0;

  /// Writes the state after the last step where it has not been, and waits.
  /// Fails where the state after the last step is not on the disk; then copies
  /// in memory stay.
  virtual Status finish(const RunRecord &run) = 0;
};

/// The work that `reshard` did, rank by rank of the new plan.
struct ReshardReport {
  struct Rank {
    uint64_t bytes = 0; // it stores
    uint64_t boxes = 0;
    uint32_t sources = 0; // files that they come from
    uint64_t kept = 0;    // bytes that the same rank had
  };

  std::string source, target; // folders
  RunRecord run;
  PlanIdentity from, to;
  std::vector<std::string> slots;
  uint64_t tensors = 0;
  uint64_t elements = 0; // of all slots together
  std::vector<Rank> ranks;
};

/// Writes the checkpoint that `plan` would have written in the place of the
/// one at `path` into `directory`, and reads it back: every element of every
/// slot is in exactly one place and has its bits. Needs memory for a few MiB.
Result<ReshardReport> reshard(const std::string &path, const fb::Plan &plan,
                              const PlanIdentity &identity,
                              const std::string &directory);

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_CHECKPOINT_H
