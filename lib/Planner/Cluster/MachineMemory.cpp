//===- MachineMemory.cpp - Memory of the machine this runs on -------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Control groups: Linux kernel documentation, admin-guide/cgroup-v2.rst
// (memory.max) and cgroup-v1/memory.rst (memory.limit_in_bytes).
//
//===----------------------------------------------------------------------===//

#include "Cluster/Hardware.h"

#include <algorithm>
#include <fstream>
#include <unistd.h>

using namespace plait;

/// The least that `file` says in the group at `path` below `root` and in those
/// around it, but no more than `bytes`. "max" and a missing file are no limit.
static double limit(double bytes, const std::string &root, std::string path,
                    const std::string &file) {
  while (true) {
    double value = 0;
    if (std::ifstream(root + path + "/" + file) >> value)
      bytes = std::min(bytes, value);
    size_t slash = path.rfind('/');
    if (slash == path.npos)
      return bytes;
    path.resize(slash);
  }
}

/// The machine's memory, lowered by the limits of all groups that the process
/// is in and by those around them, since a limit holds for everything below it.
/// Both versions of control groups may be mounted at once. What cannot be read
/// is no limit.
double planner::getMachineMemory() {
  double bytes =
      double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGE_SIZE));
  // A line a hierarchy: "4:memory:/path"; that of version 2 is "0::/path".
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos)
      continue;
    std::string controllers = "," + line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (controllers == ",")
      for (const char *root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"})
        bytes = limit(bytes, root, path, "memory.max");
    else if ((controllers + ",").find(",memory,") != controllers.npos)
      bytes =
          limit(bytes, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes");
  }
  return std::max(0.0, bytes);
}
