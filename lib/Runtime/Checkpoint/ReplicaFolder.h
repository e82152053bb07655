//===- ReplicaFolder.h - Folders of copies in memory ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Memory that outlives processes is a folder of a file system in memory, as
// /dev/shm is. A run has one on each host, with checkpoints of the same format
// as on the disk, each with the index of all files and some of the files.
//
// A folder is of one run: its name has the path of the checkpoint directory, as
// a hash, and an id that is drawn when the run begins. The directory has a file
// with that id. So what runs leave that nobody goes on with is known as such.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_REPLICAFOLDER_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_REPLICAFOLDER_H

#include "plait/Runtime/Rendezvous.h"

#include <cstdint>
#include <optional>
#include <string>

namespace plait::runtime {

/// The file in a checkpoint directory that speaks of the copies of its run.
struct ReplicaMark {
  std::string id;    // of the run
  uint64_t step = 0; // of the newest copies, 0: none so far

  static ReplicaMark draw();
  /// Nothing where there is none, or none that can be read.
  static std::optional<ReplicaMark> read(const std::string &directory);
  Status write(const std::string &directory) const;
  static void remove(const std::string &directory);
};

/// The folder of one run on one host.
struct ReplicaFolder {
  std::string base;      // what --replica says
  std::string directory; // a hash of the path of the checkpoint directory
  std::string id;        // of the run
  std::string host;

  /// Finds the folder on this host of the run whose mark process 0 sees in
  /// `directory`, which may be elsewhere on other hosts; without an id where
  /// there is none. All processes call this.
  static Result<ReplicaFolder> find(Rendezvous *processes,
                                    const std::string &base,
                                    const std::string &directory,
                                    const std::string &host);
  /// The same of the run that process 0 names.
  static Result<ReplicaFolder> share(Rendezvous *processes,
                                     const std::string &base,
                                     const std::string &directory,
                                     const std::optional<std::string> &id,
                                     const std::string &host);

  std::string path() const;
  /// Whether it is there, and this user's: others may write to /dev/shm, and
  /// what they write is not resumed.
  bool exists() const;

  /// Makes it where there is none, for this user alone. Fails where it is
  /// another user's.
  Status make() const;
  /// Removes those that other runs with the same checkpoint directory have left
  /// on this host. Returns a line about each, for a warning.
  std::vector<std::string> removeOthers() const;
  /// The bytes of all files in it.
  uint64_t bytes() const;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_REPLICAFOLDER_H
