//===- published_runs.cpp - Predictions against published runs ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   plait-bench-published [RUNS.json] [--rows] [--parts] [--facts]
//
// predicts every run of a file of published measurements and prints, per
// source, how far off the predictions are: as they come, and after one scalar
// for the whole source. Without a file: those of the repository, first the runs
// that were known when the model was made, then those that were not. --rows
// adds every run, --parts what its time and its memory consist of, --facts the
// rows of lib/Planner/Report/BandFacts.cpp.
//
//===----------------------------------------------------------------------===//

#include "PublishedRuns.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace plait;
using namespace plait::planner;

namespace {

struct Options {
  std::vector<std::string> files;
  bool rows = false, parts = false, facts = false;
};

} // namespace

static void printStage(const Estimate &estimate, size_t index) {
  const StageTime &time = estimate.stages[index];
  std::printf("    stage %zu, %d layers, ms: forward %.3f (tp %.3f) input %.3f "
              "(tp %.3f, recompute %.3f) weight %.3f\n",
              index, estimate.layers[index], 1e3 * time.forward,
              1e3 * time.tensorForward, 1e3 * time.backwardInput,
              1e3 * time.tensorBackward, 1e3 * time.recompute,
              1e3 * time.backwardWeight);
}

static void printRank(const Estimate &estimate, size_t index) {
  const StageMemory &memory = estimate.memory[index];
  std::printf("    rank %zu, GB: parameters %.2f gradients %.2f optimizer %.2f "
              "activations %.2f workspace %.2f\n",
              index, memory.parameters / 1e9, memory.gradients / 1e9,
              memory.optimizer / 1e9, memory.activations / 1e9,
              memory.workspace / 1e9);
}

/// Of the first and the last stage: the others are alike.
static void printParts(const PublishedRun &run) {
  Result<Estimate> estimate = run.predict();
  if (!estimate.ok())
    return;
  std::printf("  %s: pipeline %.3f s (bubble %.1f %%, tp %.3f, transfers %.3f) "
              "data %.3f (wait %.3f) optimizer %.3f overhead %.3f, published "
              "%.3f\n",
              run.id.c_str(), estimate->pipelineSeconds,
              100 * estimate->bubbleFraction,
              estimate->breakdown.exposed[Axis::TP],
              estimate->breakdown.exposed[Axis::PP], estimate->dataSeconds,
              estimate->waitSeconds, estimate->optimizerSeconds,
              estimate->overheadSeconds, run.seconds);
  printStage(*estimate, 0);
  printStage(*estimate, estimate->stages.size() / 2);
  if (estimate->stages.size() > 1)
    printStage(*estimate, estimate->stages.size() - 1);
  printRank(*estimate, 0);
  if (estimate->memory.size() > 1)
    printRank(*estimate, estimate->memory.size() - 1);
}

static void printRows(const std::vector<Comparison> &comparisons,
                      const char *unit, double scale) {
  for (const Comparison &row : comparisons)
    std::printf("  %-60s %9.3f %s, published %9.3f: %+6.1f %%\n",
                row.name.c_str(), scale * row.predicted, unit,
                scale * row.published, 100 * row.error());
}

static void printSource(const PublishedSource &source, const Options &options) {
  Comparisons found = compare(source);
  double scale = findBestScale(found.seconds), worst = 0;
  for (const Comparison &row : found.seconds)
    worst = std::max(worst, std::abs(row.error()));
  std::printf("%-28s %4zu %8.1f %8.1f %8.1f %8.3f %8.1f", source.name.c_str(),
              found.seconds.size(), 100 * meanAbsoluteError(found.seconds),
              100 * meanSignedError(found.seconds), 100 * worst, scale,
              100 * meanAbsoluteError(found.seconds, scale));
  if (found.bytes.empty())
    std::printf("\n");
  else
    std::printf(" %8.1f %8.1f\n", 100 * meanAbsoluteError(found.bytes),
                100 * meanSignedError(found.bytes));
  for (const std::string &failure : found.failures)
    std::printf("  %s\n", failure.c_str());
  if (options.rows) {
    printRows(found.seconds, "s", 1);
    printRows(found.bytes, "GB", 1e-9);
  }
  if (options.parts)
    for (const PublishedRun &run : source.runs)
      printParts(run);
  if (source.comparesUtilization) {
    UtilizationRanking ranking = rankUtilization(found.seconds);
    std::printf("  Kendall tau of MFU %.2f, of tokens/s %.2f; of tokens/s at a "
                "constant MFU %.2f\n",
                ranking.utilization, ranking.speed, ranking.trivialSpeed);
  }
  if (!source.isRanking)
    return;
  for (const Ranking &ranking : rankByModel(found.seconds))
    std::printf("  %s, %zu runs: Kendall tau %.2f, regret %.1f %%; %zu slow, "
                "tau %.2f without, %.2f if all others were exact\n",
                ranking.model.c_str(), ranking.runs, ranking.kendallTau,
                100 * ranking.regret, ranking.slowRuns, ranking.tauOfOthers,
                ranking.tauIfOthersExact);
}

static void printFact(const PublishedSource &source) {
  if (std::optional<BandFact> fact = getBandFact(source))
    std::printf(
        "    {\"%s\", \"%s\", \"%s\", %d, %lld, %lld, %.3f, %.3f, %.3f},\n",
        fact->source, fact->program, fact->target, fact->runs,
        static_cast<long long>(fact->fewest),
        static_cast<long long>(fact->most), fact->centre, fact->below,
        fact->above);
}

/// Of a publication that several rows are from.
static void printPublication(const PublicationError &error) {
  std::string place = error.publication;
  place = place.substr(0, place.find(','));
  std::printf("  %s: %zu runs, |err| %.1f %%, %.1f %% with a scale for each of "
              "its %zu rows\n",
              place.c_str(), error.runs, 100 * error.mean, 100 * error.scaled,
              error.sources);
}

static void printRatios(const std::vector<PublishedSource> &sources) {
  RatioError error = compareRatios(sources);
  std::printf("ratios of two runs of one task: %zu pairs of %zu sources, half "
              "within %.1f %%, 8 of 10 within %.1f %%\n",
              error.pairs, error.sources, 100 * error.half, 100 * error.most);
}

static void printBands(const std::vector<PublishedSource> &sources) {
  BandCoverage found = checkBands(sources);
  if (found.runs == 0)
    return; // of no program whose predictions have a band
  std::printf("bands: of %zu runs, each held out, %.0f %% inside, half-width "
              "%.1f %% in the middle, %.1f %% at most\n",
              found.runs, 100 * found.insideOfRuns, 100 * found.halfOfRuns,
              100 * found.widest);
  std::printf("bands: of %zu sources, each held out, %.0f %% of its runs "
              "inside, half-width %.1f %% in the middle\n",
              found.sources, 100 * found.insideOfSources,
              100 * found.halfOfSources);
}

/// Adds the file's sources to `all`.
static Status printFile(const std::string &file, const Options &options,
                        std::vector<PublishedSource> &all) {
  auto sources = readPublishedRuns(file);
  if (!sources.ok())
    return sources.status();
  std::printf("%-28s %4s %8s %8s %8s %8s %8s %8s %8s\n",
              file.substr(file.rfind('/') + 1).c_str(), "runs", "|err| %",
              "err %", "max %", "scale", "|err| %", "|mem| %", "mem %");
  for (const PublishedSource &source : *sources)
    printSource(source, options);
  if (options.facts)
    for (const PublishedSource &source : *sources)
      printFact(source);
  for (const PublicationError &error : comparePublications(*sources))
    if (error.sources > 1)
      printPublication(error);
  all.insert(all.end(), sources->begin(), sources->end());
  return Status::success();
}

int main(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    options.rows |= argument == "--rows";
    options.parts |= argument == "--parts";
    options.facts |= argument == "--facts";
    if (!argument.starts_with("--"))
      options.files.push_back(argument);
  }
  if (options.files.empty())
    options.files = {PLAIT_PUBLISHED_RUNS "/published_runs.json",
                     PLAIT_PUBLISHED_RUNS "/held_out_runs.json",
                     PLAIT_PUBLISHED_RUNS "/fsdp_runs.json"};
  std::vector<PublishedSource> all;
  for (const std::string &file : options.files) {
    Status status = printFile(file, options, all);
    if (!status.ok()) {
      std::fprintf(stderr, "plait-bench-published: error: %s\n",
                   status.message().c_str());
      return 1;
    }
  }
  printRatios(all);
  printBands(all);
  return 0;
}
