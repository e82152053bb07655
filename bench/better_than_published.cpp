//===- better_than_published.cpp - Our picks against published runs -------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   plait-bench-better [RUNS.json] [--all]
//
// For every published run: what the planner picks for the same model, cluster,
// batch and program, and how much faster it is predicted to be than the
// configuration that was run. Both are predictions of one model: the difference
// is the choice. Memory is the device's. --all searches everything that is
// modelled; otherwise what those programs could do: zero-bubble schedules,
// context parallelism, sequence parallelism and ZeRO only where the run used
// them.
//
//===----------------------------------------------------------------------===//

#include "PublishedRuns.h"
#include "TransformerSource.h"
#include "plait/Planner/Search.h"

#include <algorithm>
#include <cstdio>

using namespace plait;
using namespace plait::planner;

namespace {

struct Options {
  std::string file = PLAIT_PUBLISHED_RUNS "/published_runs.json";
  bool all = false;
};

struct Tally {
  int runs = 0, faster = 0, same = 0, slower = 0;
};

} // namespace

static SearchSpace getSpace(const PublishedRun &run, const Options &options) {
  SearchSpace space = SearchSpace::all();
  if (options.all)
    return space;
  space.name = "published";
  space.schedule = {"gpipe", "1f1b", "interleaved-1f1b"};
  const Configuration &theirs = run.configuration;
  if (theirs.schedule.starts_with("zb-"))
    space.schedule.insert(space.schedule.end(),
                          {"zb-h1", "zb-h2", "zb-v", "zb-auto"});
  if (theirs.mesh[Axis::CP] == 1)
    space.mesh[Axis::CP] = {1};
  if (theirs.zero == 0)
    space.zero = {0};
  if (!theirs.sequenceParallel)
    space.sequenceParallel = {false};
  return space;
}

static void compareRun(const PublishedRun &run, const Options &options,
                       Tally &tally) {
  Result<Estimate> theirs = run.predict();
  if (!theirs.ok())
    return;
  TransformerSource source(run.shape);
  Pins pins;
  pins.devices = int(run.configuration.ranks());
  Result<SearchResult> ours =
      search(source, run.cluster, run.training, getSpace(run, options), pins);
  if (!ours.ok()) {
    std::printf("%-34s %s\n", run.id.c_str(), ours.status().message().c_str());
    return;
  }
  bool fits = theirs->peakMemory() <= run.cluster.device.usableBytes();
  double gain = theirs->iterationSeconds / ours->estimate.iterationSeconds - 1;
  ++tally.runs;
  constexpr double alike = 1e-4;
  ++(gain > alike ? tally.faster : gain < -alike ? tally.slower : tally.same);
  std::printf("%-34s %8.3f %8.3f %+6.1f%%%s  %s  ->  %s\n", run.id.c_str(),
              theirs->iterationSeconds, ours->estimate.iterationSeconds,
              100 * gain, fits ? " " : "*", print(run.configuration).c_str(),
              print(ours->configuration).c_str());
  if (gain <= alike)
    return;
  const Breakdown &from = theirs->breakdown, &to = ours->estimate.breakdown;
  auto part = [](const char *name, double before, double after) {
    if (before - after > 0.1 * std::max(before, after))
      std::printf(" %s %.3f -> %.3f s;", name, before, after);
  };
  std::printf("%36s", "");
  part("recomputation", from.recompute, to.recompute);
  part("bubble", from.bubble, to.bubble);
  part("tp", from.exposed[Axis::TP], to.exposed[Axis::TP]);
  part("dp", from.exposed[Axis::DP], to.exposed[Axis::DP]);
  part("arithmetic", from.forward + from.backward, to.forward + to.backward);
  part("optimizer", from.optimizer, to.optimizer);
  std::printf("\n");
}

int main(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    options.all |= argument == "--all";
    if (!argument.starts_with("--"))
      options.file = argument;
  }
  auto sources = readPublishedRuns(options.file);
  if (!sources.ok()) {
    std::fprintf(stderr, "plait-bench-better: error: %s\n",
                 sources.status().message().c_str());
    return 1;
  }
  std::printf("%-34s %8s %8s %7s\n", "", "theirs,s", "ours, s", "gain");
  Tally tally;
  for (const PublishedSource &source : *sources) {
    std::printf("%s\n", source.name.c_str());
    for (const PublishedRun &run : source.runs)
      if (run.layerForward == 0) // a whole step
        compareRun(run, options, tally);
  }
  std::printf("%d runs: the pick is faster for %d, as fast for %d, slower for "
              "%d\n* predicted not to fit into the device's memory\n",
              tally.runs, tally.faster, tally.same, tally.slower);
  return 0;
}
