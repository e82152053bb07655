//===- Replicas.h - The copies that hosts have in memory --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_REPLICAS_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_REPLICAS_H

#include "RemoteFiles.h"
#include "ReplicaFolder.h"

namespace plait::runtime {

/// The copies that the hosts of a run have in memory of one checkpoint
/// directory. All processes make the same calls.
class Replicas {
public:
  /// A checkpoint each file of which some host has.
  struct Entry {
    uint64_t step;
    uint64_t hash; // of the index: the same where files belong together
    FilesByHost files;
  };

  /// Those of the run that `directory` speaks of, in folders below `base`; none
  /// where that is empty. What cannot be read is a warning.
  static Result<Replicas> find(Executor &executor, const std::string &base,
                               const std::string &directory);

  /// Newest first.
  std::vector<Entry> &entries() { return list; }
  /// Empty: the directory speaks of none.
  const std::string &id() const { return folder.id; }
  std::string pathOf(const Entry &entry) const;

  /// Reads all files of `entry`; those that are damaged count as lacking, which
  /// is a warning. Fails, in all processes, where no host has a good one.
  Result<CheckpointReader> open(Entry &entry);
  /// Sets weights and what the optimizer keeps of all ranks of this process.
  Status load(const Entry &entry, const CheckpointReader &reader) const;

private:
  Replicas(Executor &executor, HostGroups groups)
      : executor(executor), groups(std::move(groups)) {}

  std::string describeFolder() const;
  void merge(const std::vector<std::string> &texts);
  Status dropIncomplete();
  Result<CheckpointIndex> shareIndex(const Entry &entry) const;
  Result<std::string> findDamaged(const Entry &entry,
                                  const CheckpointIndex &index) const;

  Executor &executor;
  HostGroups groups;
  ReplicaFolder folder;
  std::vector<Entry> list;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_REPLICAS_H
