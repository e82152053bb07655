//===- Hosts.h - Hosts of a supervised run ----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_SUPERVISOR_HOSTS_H
#define PLAIT_LIB_RUNTIME_SUPERVISOR_HOSTS_H

#include "plait/Support/Status.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace plait::runtime {

struct HostSlots {
  std::string host;
  uint64_t slots;

  bool operator==(const HostSlots &) const = default;
};
using Hosts = std::vector<HostSlots>;

uint64_t countSlots(const Hosts &hosts);

/// A host a line, "node3" or "node3 slots=8"; one slot where none are given. A
/// # begins a comment.
Result<Hosts> readHosts(const std::string &path);

/// How the launcher's command goes on for `count` processes on `hosts`; where
/// these are empty it knows by itself where to start them.
std::vector<std::string>
launcherArguments(const std::vector<std::string> &launcher, uint64_t count,
                  const Hosts &hosts);

/// Takes the hosts out of `hosts` on which the launcher cannot start a program
/// within `limit`, and returns their names. This host is always there.
std::vector<std::string> dropLost(Hosts &hosts,
                                  const std::vector<std::string> &launcher,
                                  std::chrono::milliseconds limit);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_SUPERVISOR_HOSTS_H
