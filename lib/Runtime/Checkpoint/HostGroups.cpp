//===- HostGroups.cpp - Groups of processes by host -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Who shares a host with whom, and the ring of hosts along which copies in
// memory are kept: each process's files are also with a process of the next
// host. Any one host may then be lost. All is computed from the list of hosts
// by process, which all processes have.
//
//===----------------------------------------------------------------------===//

#include "HostGroups.h"

#include <algorithm>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

/// A process that is alone is one host by itself, under the name that the
/// system gives.
Result<HostGroups> HostGroups::of(Rendezvous *processes) {
  HostGroups groups;
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  groups.name = name;
  if (!processes)
    return groups;
  if (!processes->engine()) // it is what asks for the hosts
    PLAIT_RETURN_IF_ERROR(processes->openEngine({}));
  const ProcessPlace &place = processes->place();
  groups.index = place.index;
  groups.name = place.host;
  groups.firsts.clear();
  for (uint32_t i = 0; i < place.count; ++i)
    if (i == 0 || place.hosts[i] != place.hosts[i - 1])
      groups.firsts.push_back(i);
  // A sentinel: sizes are differences of neighbours.
  groups.firsts.push_back(place.count);
  return groups;
}

uint32_t HostGroups::hostOf(uint32_t process) const {
  auto next = std::upper_bound(firsts.begin(), firsts.end(), process);
  return uint32_t(next - firsts.begin() - 1);
}

/// The process of the next host, in a ring of hosts, that keeps the replica of
/// `process`. Hosts may have different numbers of processes: where the next one
/// has fewer, some of its processes keep several replicas.
uint32_t HostGroups::neighbourOf(uint32_t process) const {
  if (hosts() == 1)
    return process;
  uint32_t mine = hostOf(process), next = (mine + 1) % hosts();
  return firstOf(next) + (process - firstOf(mine)) % sizeOf(next);
}

/// The inverse of neighbourOf, ascending; empty on a single host, where nobody
/// would survive the loss of it.
std::vector<uint32_t> HostGroups::giversOf(uint32_t process) const {
  std::vector<uint32_t> givers;
  uint32_t mine = hostOf(process);
  uint32_t before = (mine + hosts() - 1) % hosts();
  for (uint32_t other = firstOf(before); other < firsts[before + 1]; ++other)
    if (other != process && neighbourOf(other) == process)
      givers.push_back(other);
  return givers;
}
