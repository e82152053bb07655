//===- Hosts.cpp - Hosts of a supervised run ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which hosts there are, how launchers are told, and which hosts answer. Only
// mpirun and srun are known: an option that names hosts is what they differ in.
//
//===----------------------------------------------------------------------===//

#include "Hosts.h"

#include "ChildProcess.h"
#include "plait/Plan/Files.h"

#include <charconv>
#include <cstring>
#include <sstream>
#include <thread>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

/// No overflow: each has at most 2^20.
uint64_t runtime::countSlots(const Hosts &hosts) {
  uint64_t sum = 0;
  for (const HostSlots &host : hosts)
    sum += host.slots;
  return sum;
}

// The format of Open MPI's host files: a host in each line, with slots=N or
// one slot; text from # on is a comment.
Result<Hosts> runtime::readHosts(const std::string &path) {
  // Read again before each start.
  auto content = MappedFile::open(path, "hosts");
  if (!content.ok())
    return content.status();
  std::istringstream file(
      std::string(content->bytes().begin(), content->bytes().end()));
  Hosts hosts;
  std::string line, word;
  for (size_t number = 1; std::getline(file, line); ++number) {
    // Without a # the whole line.
    std::istringstream words(line.substr(0, line.find('#')));
    HostSlots host = {"", 1};
    // Empty, or a comment.
    if (!(words >> host.host))
      continue;
    while (words >> word) {
      constexpr std::string_view key = "slots=";
      const char *begin = word.data() + key.size();
      const char *end = word.data() + word.size();
      bool isNumber = false;
      if (word.starts_with(key)) {
        auto [stop, error] = std::from_chars(begin, end, host.slots);
        isNumber = error == std::errc() && stop == end &&
                   host.slots <= uint64_t(1) << 20;
      }
      if (!isNumber)
        return fail("hosts '", path, "', line ", number, ": '", word,
                    "' is not slots=N, N from 0 to ", 1 << 20);
    }
    for (const HostSlots &other : hosts)
      if (other.host == host.host)
        return fail("hosts '", path, "', line ", number, ": '", host.host,
                    "' is there twice");
    hosts.push_back(host);
  }
  return hosts;
}

/// srun names hosts in another way than mpirun. By the name of the program; all
/// others are taken for mpirun.
static bool isSrun(const std::vector<std::string> &launcher) {
  const std::string &program = launcher.front();
  return program.substr(program.rfind('/') + 1) == "srun";
}

/// `-n` is the same for both. Slots matter to mpirun only, which fills hosts in
/// order; srun spreads processes by itself.
std::vector<std::string>
runtime::launcherArguments(const std::vector<std::string> &launcher,
                           uint64_t count, const Hosts &hosts) {
  std::vector<std::string> words = launcher;
  words.insert(words.end(), {"-n", std::to_string(count)});
  std::string list;
  uint64_t used = 0;
  for (const HostSlots &host : hosts) {
    // A host with no slots is known, but gets no process.
    if (host.slots == 0)
      continue;
    ++used;
    list += (list.empty() ? "" : ",") + host.host;
    if (!isSrun(launcher))
      list += ":" + std::to_string(host.slots);
  }
  if (list.empty())
    return words;
  // srun takes no slots with the names. It refuses more nodes than processes.
  if (isSrun(launcher))
    words.push_back("--nodes=" + std::to_string(std::min(used, count)));
  words.insert(words.end(), {isSrun(launcher) ? "--nodelist" : "--host", list});
  return words;
}

/// 1. Start a probe on every host but this one.
/// 2. Wait for all, until the common limit. Probes that still run are killed by
///    their destructors.
/// 3. Divide the hosts.
std::vector<std::string>
runtime::dropLost(Hosts &hosts, const std::vector<std::string> &launcher,
                  std::chrono::milliseconds limit) {
  char here[256] = "";
  gethostname(here, sizeof(here) - 1);
  // The launcher itself starts `true` on each host: that tests what a launch
  // needs. All probes run at the same time and share one limit, so that many
  // lost hosts cost no more time than one.
  // 1. Probes.
  std::vector<ChildProcess> probes(hosts.size());
  std::vector<bool> answers(hosts.size(), true);
  for (size_t i = 0; i < hosts.size(); ++i) {
    const std::string &host = hosts[i].host;
    if (host == here || host == "localhost" || hosts[i].slots == 0)
      continue;
    auto words = launcherArguments(launcher, 1, {{host, 1}});
    words.push_back("true");
    answers[i] = false;
    if (auto started = ChildProcess::start(words, /*isSilent=*/true);
        started.ok())
      probes[i] = std::move(*started);
  }
  // 2. Answers.
  auto end = std::chrono::steady_clock::now() + limit;
  for (size_t i = 0; i < hosts.size(); ++i) {
    while (probes[i].isRunning() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (!answers[i])
      answers[i] = probes[i].exitCode() == 0;
  }
  // 3. In their order.
  std::vector<std::string> lost;
  Hosts left;
  for (size_t i = 0; i < hosts.size(); ++i)
    if (answers[i])
      left.push_back(hosts[i]);
    else
      lost.push_back(hosts[i].host);
  hosts = std::move(left);
  return lost;
}
