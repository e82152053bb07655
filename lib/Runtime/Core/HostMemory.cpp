//===- HostMemory.cpp - Check of the memory of hosts ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Pages of an arena are granted when they are first written: what does not fit
// shows as a killed process in the middle of a step. What all will take is
// known before, and so is checked before. A pool is the host or a control group
// with a limit; each process reads those that it lives in, and what all of them
// want of one pool is added up in process 0.
//
//===----------------------------------------------------------------------===//

#include "HostMemory.h"

#include "plait/Runtime/Observer.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Empty where there is no file: other systems have other files.
std::string readLine(const std::string &path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The number in a file that has nothing else; nothing where there is no file,
/// or a word ("max").
std::optional<uint64_t> readNumber(const std::string &path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

/// The numbers behind those of `names` in a file of names and numbers, added
/// up. memory.stat and /proc/meminfo both are lines of a name and a number.
uint64_t sumOf(const std::string &path,
               std::initializer_list<std::string_view> names) {
  std::ifstream file(path);
  uint64_t sum = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    if (words >> name >> value &&
        std::find(names.begin(), names.end(), name) != names.end())
      sum += value;
  }
  return sum;
}

/// The files of one version of control groups.
struct GroupVersion {
  const char *controller; // in /proc/self/cgroup
  std::vector<const char *> mounts;
  const char *limit, *usage;
  std::initializer_list<std::string_view> caches; // in memory.stat
};

/// Adds each group with a limit among `path`, which is below `mount`, and all
/// above it. A limit anywhere above applies as well, so that the path is walked
/// to its root. A group whose limit is a word, or that has no such file (the
/// root), is no pool. The key has the controller and the namespace in it: the
/// same path in two containers is two groups.
void addGroups(const GroupVersion &version, const std::string &mount,
               std::string path, const std::string &space,
               std::vector<MemoryPool> &pools) {
  std::error_code error;
  // In a container the path may be the host's, and the mount the group itself.
  if (!std::filesystem::exists(mount + path, error))
    path = "/";
  while (true) {
    std::string folder = mount + path + "/";
    auto limit = readNumber(folder + version.limit);
    auto usage = readNumber(folder + version.usage);
    if (limit && usage) {
      // The system gives up what it has cached of files.
      uint64_t used = *usage - std::min(*usage, sumOf(folder + "memory.stat",
                                                      version.caches));
      pools.push_back({space + version.controller + path,
                       " in control group " + path,
                       *limit - std::min(*limit, used)});
    }
    if (path == "/" || path.empty())
      return;
    path.erase(path.rfind('/'));
    if (path.empty())
      path = "/";
  }
}

} // namespace

/// 1. The host, named by its boot id: host names may be equal.
/// 2. The control groups of this process: version 2 is the line without a
///    controller, version 1 that of "memory". Both may be mounted at once.
std::vector<MemoryPool> runtime::readMemoryPools(const std::string &root) {
  static const GroupVersion versions[] = {
      {"",
       {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"},
       "memory.max",
       "memory.current",
       {"active_file", "inactive_file"}},
      {"memory",
       {"/sys/fs/cgroup/memory"},
       "memory.limit_in_bytes",
       "memory.usage_in_bytes",
       {"total_active_file", "total_inactive_file"}}};
  // 1. The host.
  std::string host = readLine(root + "/proc/sys/kernel/random/boot_id");
  std::vector<MemoryPool> pools;
  if (uint64_t kilobytes = sumOf(root + "/proc/meminfo", {"MemAvailable:"}))
    pools.push_back({host, "", kilobytes * 1024});
  std::error_code error;
  // 2. Groups: paths mean something within a namespace only.
  std::string space =
      host + std::filesystem::read_symlink(root + "/proc/self/ns/cgroup", error)
                 .string();
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // NUMBER:CONTROLLERS:PATH
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos)
      continue;
    std::string controller = line.substr(first + 1, second - first - 1);
    for (const GroupVersion &version : versions)
      if (controller == version.controller)
        for (const char *mount : version.mounts)
          addGroups(version, root + mount, line.substr(second + 1), space,
                    pools);
  }
  return pools;
}

/// Process 0 adds up, by pool: two processes in one group take from one limit.
/// Available is the least that anyone has read, for others may have allocated
/// in between. The first pool that is too small is the message for all.
static Status judgePools(std::span<const std::string> texts) {
  struct Load {
    uint64_t bytes = 0, copies = 0, ranks = 0, available = UINT64_MAX;
    std::string host, where;
  };
  std::map<std::string, Load> pools;
  for (const std::string &text : texts) {
    std::istringstream lines(text);
    uint64_t bytes = 0, copies = 0, ranks = 0;
    std::string host, key, where, available;
    lines >> bytes >> copies >> ranks >> std::ws;
    std::getline(lines, host);
    while (std::getline(lines, key) && std::getline(lines, where) &&
           std::getline(lines, available)) {
      Load &load = pools[key];
      // All of a process's ranks live in all of its pools.
      load.bytes += bytes;
      load.copies += copies;
      load.ranks += ranks;
      load.available =
          std::min<uint64_t>(load.available, std::stoull(available));
      load.host = host;
      load.where = where;
    }
  }
  for (const auto &[key, load] : pools)
    if (load.bytes > load.available)
      return fail(load.ranks, load.ranks == 1 ? " rank on " : " ranks on ",
                  load.host, load.ranks == 1 ? " needs " : " need ", load.bytes,
                  " bytes of memory",
                  load.copies ? ", " + std::to_string(load.copies) +
                                    " of them for `replica`"
                              : "",
                  ", ", load.available, " are free", load.where);
  return Status::success();
}

/// The second number of statm is the resident set, in pages. 0 where there is
/// no /proc.
uint64_t runtime::residentBytes() {
  unsigned long long pages = 0;
  std::FILE *file = std::fopen("/proc/self/statm", "re");
  if (!file)
    return 0;
  if (std::fscanf(file, "%*u %llu", &pages) != 1)
    pages = 0;
  std::fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

/// Each process says what its ranks will take and which pools it sees.
Status runtime::checkHostMemory(uint64_t bytes, size_t ranks,
                                Rendezvous *processes, uint64_t copies) {
  std::ostringstream mine;
  mine << bytes << ' ' << copies << ' ' << ranks << ' '
       << (processes ? processes->place().host : "this host") << '\n';
  // Paths of groups may have blanks: each field has its line.
  for (const MemoryPool &pool : readMemoryPools())
    mine << pool.key << '\n' << pool.where << '\n' << pool.available << '\n';
  std::string text = mine.str();
  return processes ? processes->judge(text, judgePools)
                   : judgePools({&text, 1});
}
