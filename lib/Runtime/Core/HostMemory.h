//===- HostMemory.h - Check of the memory of hosts --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_HOSTMEMORY_H
#define PLAIT_LIB_RUNTIME_CORE_HOSTMEMORY_H

#include "plait/Runtime/Rendezvous.h"

#include <string>
#include <vector>

namespace plait::runtime {

/// A place that a process takes memory from: its host, and each control group
/// (version 1 or 2) above it that has a limit.
struct MemoryPool {
  std::string key;    // the same for all processes that share it
  std::string where;  // for messages: "", or " in control group …"
  uint64_t available; // bytes, with what the system would give up for them
};

/// Those of this process, by the files of /proc and /sys below `root`.
std::vector<MemoryPool> readMemoryPools(const std::string &root = "");

/// Fails where `ranks` ranks of this process, which will take `bytes` bytes,
/// `copies` of them for copies of checkpoints, and those of the other processes
/// (null: there are none) do not fit a pool that they share. All processes call
/// this before they take anything.
Status checkHostMemory(uint64_t bytes, size_t ranks, Rendezvous *processes,
                       uint64_t copies = 0);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_HOSTMEMORY_H
