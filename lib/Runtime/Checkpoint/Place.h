//===- Place.h - Directories of checkpoints ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_PLACE_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_PLACE_H

#include "HostGroups.h"
#include "RankFile.h"
#include "ReplicaFolder.h"

namespace plait::runtime {

/// The files of a step, by name.
using StoredFiles = std::map<std::string, StoredFile>;

/// A directory of checkpoints as processes that write one see it. Each writes
/// the files of its ranks into a folder that the keeper of the directory has
/// made; when all are safe the keeper adds the index and gives the folder its
/// name.
class CheckpointPlace {
public:
  CheckpointPlace(std::string directory, std::string words, uint64_t keep,
                  bool isKeeper)
      : store(std::move(directory)), words(std::move(words)), keep(keep),
        isKeeper(isKeeper) {}
  virtual ~CheckpointPlace() = default;

  // Beside the next steps:

  /// Returns when the files that this process has written are as safe as the
  /// place is.
  virtual Status secure(std::vector<WrittenFile> &written) = 0;

  /// Whether processes give each other files then.
  virtual bool spreads() const { return false; }
  /// Does that; `all` are the files of `step` of all processes.
  virtual Status spread(uint64_t step, const StoredFiles &all) {
    return Status::success();
  }

  /// Tells the process of rank 0 that all keepers have given the folder of
  /// `step` its name.
  virtual void conclude(uint64_t step) {}

  /// Removes what is no longer needed.
  virtual Status prune() {
    return keep ? store.prune(keep, /*keepsSpare=*/false) : Status::success();
  }

  CheckpointStore store;
  std::string words; // for messages: "" or " in memory"
  uint64_t keep;     // the newest ones; 0: all
  bool isKeeper;     // is this process
};

/// The directory that all processes share.
class DiskPlace : public CheckpointPlace {
public:
  DiskPlace(const std::string &directory, uint64_t keep, bool isKeeper)
      : CheckpointPlace(directory, "", keep, isKeeper) {}

  Status secure(std::vector<WrittenFile> &written) override;
};

/// The folder in memory of each host, which one of its processes keeps. What a
/// process writes there it sends to its neighbour on the next host, too.
class HostFolderPlace : public CheckpointPlace {
public:
  /// `checkpoints` is the directory on the disk. `processes` is null where
  /// there is one, and outlives this.
  HostFolderPlace(const ReplicaFolder &folder, const std::string &checkpoints,
                  HostGroups groups, Rendezvous *processes)
      : CheckpointPlace(folder.path(), " in memory", 1, groups.leadsHost()),
        folder(folder), checkpoints(checkpoints), groups(std::move(groups)),
        processes(processes) {}

  Status secure(std::vector<WrittenFile> &) override {
    return Status::success(); // nothing is safer than it is
  }
  bool spreads() const override { return groups.hosts() > 1; }
  Status spread(uint64_t step, const StoredFiles &all) override;
  void conclude(uint64_t step) override;
  Status prune() override { return store.prune(keep, /*keepsSpare=*/true); }

  const ReplicaFolder folder;

private:
  Status send(uint64_t step, const StoredFiles &all) const;
  Status receive(uint64_t step, const StoredFiles &all, uint32_t giver) const;
  /// Returns the files of the ranks of a process.
  std::vector<StoredFile> filesOf(uint32_t process,
                                  const StoredFiles &all) const;

  std::string checkpoints;
  HostGroups groups;
  Rendezvous *processes;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_PLACE_H
