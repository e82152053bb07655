//===- HostGroups.h - Groups of processes by host ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_HOSTGROUPS_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_HOSTGROUPS_H

#include "plait/Runtime/Rendezvous.h"

namespace plait::runtime {

/// The processes of a run by host. Those of a host follow each other.
class HostGroups {
public:
  /// All processes call this; null: there is one.
  static Result<HostGroups> of(Rendezvous *processes);

  uint32_t hosts() const { return uint32_t(firsts.size() - 1); }
  uint32_t processes() const { return firsts.back(); }
  /// This process, and its host.
  uint32_t process() const { return index; }
  uint32_t host() const { return hostOf(index); }
  const std::string &hostName() const { return name; }

  uint32_t hostOf(uint32_t process) const;
  uint32_t firstOf(uint32_t host) const { return firsts[host]; }
  uint32_t sizeOf(uint32_t host) const {
    return firsts[host + 1] - firsts[host];
  }
  /// Whether this process speaks for its host.
  bool leadsHost() const { return index == firsts[host()]; }

  /// The process, on the next host, that keeps copies of what `process` writes.
  /// Itself where there is one host.
  uint32_t neighbourOf(uint32_t process) const;
  /// The others whose neighbour `process` is.
  std::vector<uint32_t> giversOf(uint32_t process) const;

private:
  uint32_t index = 0;
  std::string name;
  std::vector<uint32_t> firsts = {0, 1}; // by host, and the number of processes
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_HOSTGROUPS_H
