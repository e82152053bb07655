//===- RemoteFiles.h - Files that are on other hosts ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rank that loads a checkpoint asks for elements in an order that plan and
// index fix. So nobody has to send requests: a process that has files which the
// host of a rank lacks walks what that rank asks for, and sends it what is in
// them, in that order and in blocks of one size.
//
// A process sends to a few ranks at once, taken in their order. Of the ranks
// that are not done the lowest is being served by all who have something for
// it, and waits for nobody else: it gets done.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_REMOTEFILES_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_REMOTEFILES_H

#include "HostGroups.h"
#include "Reader.h"
#include "plait/Runtime/Executor.h"

#include <atomic>
#include <future>

namespace plait::runtime {

/// Which files of a checkpoint are on which host: [host][file].
using FilesByHost = std::vector<std::vector<bool>>;

class RemoteFiles {
public:
  /// Everything outlives the object. Each file is on one host at least.
  RemoteFiles(Executor &executor, const HostGroups &groups,
              const FilesByHost &files, const CheckpointReader &reader);

  /// Returns what the cursors of `rank`, which is of this process, fetch with:
  /// one for all of its cursors, one after the other, on the thread of the
  /// rank.
  CheckpointReader::Fetch fetchFor(uint32_t rank);

  /// Sends the ranks of other hosts what they fetch from here, beside the
  /// caller.
  void startSending();
  /// Waits until they have it.
  Status finishSending();

private:
  /// The process that sends `file` to those of `host`, which lacks it.
  uint32_t senderTo(uint32_t host, uint32_t file) const;
  Status sendTo(uint32_t rank);
  Status sendShards(uint32_t rank, class BlockSender &out);

  Executor &executor;
  const HostGroups &groups;
  const FilesByHost &files;
  const CheckpointReader &reader;
  std::vector<std::vector<uint32_t>> hostsOf; // by file
  std::vector<uint32_t> waiting;              // ranks that get something
  std::atomic<size_t> next = 0;               // of them
  std::vector<std::future<Status>> senders;
};

/// Sets weights and what the optimizer keeps of all ranks of this process.
/// `remote` is null where all files are here.
Status load(Executor &executor, const CheckpointReader &reader,
            RemoteFiles *remote);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_REMOTEFILES_H
