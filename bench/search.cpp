//===- search.cpp - How long a search takes -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   plait-bench-search [NAME]
//
// searches for five models, or only for rows with NAME in "model space", and
// prints how many configurations were considered, estimated, and how long that
// took; then how both grow with layers and with devices. Works are closed-form:
// what the compiler takes to profile a model is not in the figures.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Search.h"
#include "Models.h"

#include <cstdio>
#include <sys/resource.h>

using namespace plait;
using namespace plait::planner;

namespace {

/// Of rows: part of "model space".
std::string filter;

} // namespace

/// Of the process so far.
static double getCpuSeconds(const struct rusage &usage) {
  auto seconds = [](const struct timeval &time) {
    return double(time.tv_sec) + 1e-6 * double(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

static void run(const Case &one, const SearchSpace &space) {
  if ((one.name + " " + space.name).find(filter) == std::string::npos)
    return;
  TransformerSource source(one.shape);
  Training training = one.getTraining();
  Cluster cluster = *parseCluster(one.cluster);
  struct rusage before, usage;
  getrusage(RUSAGE_SELF, &before);
  Result<SearchResult> result = search(source, cluster, training, space);
  getrusage(RUSAGE_SELF, &usage);
  if (!result.ok()) {
    std::printf("%-22s %-10s %s\n", one.name.c_str(), space.name.c_str(),
                result.status().message().c_str());
    return;
  }
  const SearchCounts &counts = result->counts;
  std::printf(
      "%-22s %-10s %8.3f %7.3f %9lld %9lld %10.0f %8d %7.0f  %8.3f  %s\n",
      one.name.c_str(), space.name.c_str(), counts.seconds,
      getCpuSeconds(usage) - getCpuSeconds(before),
      (long long)counts.considered, (long long)counts.estimated,
      counts.perSecond(), counts.profiles, double(usage.ru_maxrss) / 1024,
      result->estimate.iterationSeconds, print(result->configuration).c_str());
}

static void printHead(const char *what) {
  std::printf("\n%-22s %-10s %8s %7s %9s %9s %10s %8s %7s  %8s  %s\n", what,
              "space", "seconds", "CPU s", "configs", "estimated", "per second",
              "profiles", "MiB", "step, s", "pick");
}

int main(int argc, char **argv) {
  if (argc > 1)
    filter = argv[1];
  // Rows may take seconds: each is shown when it is there.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::vector<Case> cases = getCases();
  printHead("model");
  for (const Case &one : cases)
    for (const SearchSpace &space : {SearchSpace(), SearchSpace::all()})
      run(one, space);
  printHead("70B, 1,024 H100");
  for (int64_t layers : {20, 40, 80, 160, 320}) {
    Case deeper = cases[2];
    deeper.name = std::to_string(layers) + " layers";
    deeper.shape.layers = layers;
    run(deeper, SearchSpace::all());
  }
  printHead("70B");
  for (int nodes : {8, 32, 128, 512, 2048, 8192}) {
    Case larger = cases[2];
    larger.name = std::to_string(8 * nodes) + " H100";
    larger.cluster = "h100:" + std::to_string(nodes) + "x8";
    larger.globalBatch = std::max(256, 8 * nodes);
    run(larger, SearchSpace::all());
  }
  return 0;
}
