//===- HostNode.cpp - Cores next to a GPU ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The driver names the node of a GPU, and Linux the cores of a node. Pages are
// placed by who touches them first, so that no library for it is needed. All of
// this is about speed: what fails on the way is not told.
//
//===----------------------------------------------------------------------===//

#include "HostNode.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

using namespace plait;
using namespace plait::runtime;

std::optional<cpu_set_t> runtime::parseCores(const std::string &list) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::istringstream in(list);
  while (true) {
    unsigned first = 0, last = 0;
    if (!(in >> first))
      return std::nullopt;
    last = first;
    if (in.peek() == '-' && !(in.ignore() >> last))
      return std::nullopt;
    if (last < first || last >= CPU_SETSIZE)
      return std::nullopt;
    for (unsigned core = first; core <= last; ++core)
      CPU_SET(core, &cores);
    if (in.peek() != ',')
      break;
    in.ignore();
  }
  return (in >> std::ws).eof() ? std::optional(cores) : std::nullopt;
}

/// Finds the cores of the node that GPU `ordinal` is attached to.
static std::optional<cpu_set_t> findCores(const Driver &driver, int ordinal) {
#if CUDA_VERSION >= 12020
  CUdevice device = 0;
  int node = -1;
  // Drivers that are older than the header do not know the attribute.
  if (driver.cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
      driver.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
                                  device) != CUDA_SUCCESS ||
      node < 0)
    return std::nullopt;
  // Another folder is for tests.
  const char *named = std::getenv("PLAIT_HOST_NODES");
  std::ifstream in((named ? named : "/sys/devices/system/node") +
                   ("/node" + std::to_string(node)) + "/cpulist");
  std::string list;
  return std::getline(in, list) ? parseCores(list) : std::nullopt;
#else
  (void)driver, (void)ordinal;
  return std::nullopt;
#endif
}

/// The calling thread is 0 to both functions.
OnHostNode::OnHostNode(const Driver &driver, int ordinal) {
  std::optional<cpu_set_t> cores = findCores(driver, ordinal);
  cpu_set_t now;
  if (!cores || sched_getaffinity(0, sizeof(now), &now))
    return;
  CPU_AND(&*cores, &*cores, &now);
  if (CPU_COUNT(&*cores) && !sched_setaffinity(0, sizeof(now), &*cores))
    before = now;
}

OnHostNode::~OnHostNode() {
  if (before)
    sched_setaffinity(0, sizeof(*before), &*before);
}
