//===- PublishedRunsTest.cpp - Predicted steps against published ones -----===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PublishedRuns.h"
#include "plait/Planner/Search.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>

using namespace plait;
using namespace plait::planner;

namespace {

std::vector<PublishedSource> readRuns(const std::string &file) {
  auto read = readPublishedRuns(PLAIT_PUBLISHED_RUNS "/" + file);
  EXPECT_TRUE(read.ok()) << read.status().message();
  return read.ok() ? *read : std::vector<PublishedSource>();
}

struct Bound {
  const char *source;
  double mean, scaled; // of the absolute error, with one scalar for all runs
};

void expectErrors(const std::vector<PublishedSource> &sources,
                  const std::vector<Bound> &bounds) {
  for (const Bound &bound : bounds) {
    auto source = std::find_if(
        sources.begin(), sources.end(),
        [&](const PublishedSource &s) { return s.name == bound.source; });
    ASSERT_NE(source, sources.end()) << bound.source;
    Comparisons found = compare(*source);
    EXPECT_TRUE(found.failures.empty())
        << bound.source << ": " << found.failures.front();
    ASSERT_FALSE(found.seconds.empty());
    EXPECT_LT(meanAbsoluteError(found.seconds), bound.mean) << bound.source;
    EXPECT_LT(meanAbsoluteError(found.seconds, findBestScale(found.seconds)),
              bound.scaled)
        << bound.source;
  }
}

/// Mean absolute errors that an independent analytic model (Calculon) leaves
/// are 10 % on the first, 4 % on the second (its own validation set) and 15 %
/// on the fourth of these; the bounds are what planning needs, docs/Accuracy.md
/// has what is reached.
TEST(PublishedRuns, MeanErrorsOfPublishedRuns) {
  expectErrors(readRuns("published_runs.json"),
               {{"Megatron SC21 table 1", 0.06, 0.035},
                {"Korthikanti table 4", 0.05, 0.03},
                {"Korthikanti table 5", 0.05, 0.03},
                {"vTrain multi-node", 0.12, 0.08},
                // Early libraries for Hopper, docs/Accuracy.md: bound below.
                {"llm-foundry H100 80GB", 0.15, 0.05},
                {"llm-foundry A100 80GB", 0.08, 0.05},
                {"llm-foundry A100 40GB", 0.08, 0.05},
                {"Zero bubble tables 4 and 6", 0.08, 0.06},
                {"SimuMax B200", 0.15, 0.05}});
}

TEST(PublishedRuns, MeanErrorOfPublicationWithSeveralClusters) {
  std::vector<PublicationError> errors =
      comparePublications(readRuns("published_runs.json"));
  auto foundry = std::find_if(errors.begin(), errors.end(), [](auto &error) {
    return error.publication.starts_with("mosaicml/llm-foundry");
  });
  ASSERT_NE(foundry, errors.end());
  EXPECT_EQ(foundry->sources, 3u);
  EXPECT_EQ(foundry->runs, 191u);
  EXPECT_LT(foundry->mean, 0.12);
  EXPECT_LT(foundry->scaled, 0.08);
}

/// The same programs as above on other models and clusters: the same bounds.
/// DeepSpeed's own pipeline costs what no switch here describes, the same on
/// all runs: its bounds are those of the scaled error (Calculon: 30 and 32 %
/// before, 1.3 and 6.3 % after).
TEST(PublishedRuns, MeanErrorsOfHeldOutRuns) {
  expectErrors(readRuns("held_out_runs.json"),
               {{"Narayanan SC21 table 2", 0.06, 0.035},
                {"MegaScale baseline", 0.06, 0.035},
                {"Llama 3 405B", 0.12, 0.03},
                {"MT-NLG 530B", 0.25, 0.03},
                {"BLOOM, February 26", 0.12, 0.08},
                {"BLOOM, February 28", 0.12, 0.08},
                {"torchtitan A100", 0.12, 0.035},
                {"fms-fsdp A100 80GB, eager", 0.12, 0.035},
                {"GPT-3 175B, H100", 0.06, 0.035},
                {"Llama 3.1, H100", 0.06, 0.035},
                {"Nemotron-4, H100", 0.06, 0.035},
                {"Llama 3.1, GB200", 0.06, 0.03},
                {"Nemotron-4, GB200", 0.06, 0.03}});
}

/// Of every model's measured configurations. Two models have many runs that are
/// up to 60 % slower than their neighbours, for no reason that the publication
/// gives (docs/Accuracy.md): the order of the others is what can be predicted,
/// and the order of all is what exact predictions of them would give, but for
/// pairs that are within 1 % (1 to 10 % of a model's pairs).
TEST(PublishedRuns, RanksConfigurations) {
  struct Expected {
    const char *model;
    size_t slowRuns;
    double tau;
  };
  const Expected expected[] = {{"hidden 12288", 0, 0.79},
                               {"hidden 3072", 3, 0.9},
                               {"hidden 6144", 6, 0.9},
                               {"hidden 8192", 15, 0.9}};
  for (const PublishedSource &source : readRuns("published_runs.json")) {
    if (!source.isRanking)
      continue;
    std::vector<Ranking> rankings = rankByModel(compare(source).seconds);
    ASSERT_EQ(rankings.size(), std::size(expected));
    for (size_t i = 0; i < rankings.size(); ++i) {
      EXPECT_EQ(rankings[i].model, expected[i].model);
      EXPECT_EQ(rankings[i].slowRuns, expected[i].slowRuns);
      EXPECT_GT(rankings[i].tauOfOthers, expected[i].tau);
      if (rankings[i].slowRuns > 0)
        EXPECT_GT(rankings[i].kendallTau, rankings[i].tauIfOthersExact - 0.07);
      EXPECT_LT(rankings[i].regret, 0.1);
    }
  }
}

/// How many times as fast as in 16 bit matmuls are on each device is what these
/// say; runs of mixtures take it from here.
TEST(PublishedRuns, EightBitRatesAreThoseOfADenseModel) {
  std::vector<PublishedSource> dense = readRuns("eight_bit_runs.json");
  std::map<std::string, double> rates;
  for (const PublishedSource &source : dense) {
    for (const PublishedRun &run : source.runs)
      rates[run.cluster.device.name] = run.matmulRate;
    for (const Comparison &seconds : compare(source).seconds)
      EXPECT_LT(std::abs(seconds.error()), 0.01) << seconds.name;
  }
  EXPECT_EQ(rates.size(), 3u);
  rates["b300"] = rates["b200"]; // not known
  for (const char *file : {"mixture_runs.json", "held_out_mixture_runs.json"})
    for (const PublishedSource &source : readRuns(file))
      for (const PublishedRun &run : source.runs)
        if (run.matmulRate > 1 && rates.contains(run.cluster.device.name))
          EXPECT_EQ(run.matmulRate, rates[run.cluster.device.name]) << run.id;
}

/// Within one container and model: of those in sight half are within 6 %, of
/// those held back within 3 %.
TEST(PublishedRuns, RatiosOfMixtures) {
  auto find = [](const char *file, std::string_view name) {
    std::vector<PublishedSource> sources = readRuns(file);
    std::erase_if(sources, [&](auto &source) { return source.name != name; });
    EXPECT_EQ(sources.size(), 1u);
    return compareRatios(sources).half;
  };
  EXPECT_LT(find("mixture_runs.json", "Megatron-Bridge 26.02"), 0.12);
  EXPECT_LT(find("mixture_runs.json", "Megatron-Bridge 26.02.01"), 0.065);
  EXPECT_LT(find("mixture_runs.json", "Megatron-Bridge 26.04"), 0.075);
  EXPECT_LT(compareRatios(readRuns("mixture_runs.json")).half, 0.062);
  EXPECT_LT(compareRatios(readRuns("held_out_mixture_runs.json")).half, 0.04);
}

/// Of mixtures of experts, none of which was looked at while the model of dense
/// runs was made. What hides behind what is not predicted.
TEST(PublishedRuns, MeanErrorsOfMixtures) {
  expectErrors(readRuns("mixture_runs.json"),
               {{"Megatron-Bridge 26.02", 0.24, 0.13},
                {"Megatron-Bridge 26.02.01", 0.23, 0.1},
                {"Megatron-Bridge 26.04", 0.2, 0.11},
                {"Qwen3 30B on 16 H100", 0.21, 0.03},
                {"Qwen3 30B on 8 B200", 0.28, 0.12},
                {"Primus, Qwen3 235B", 0.37, 0.025}});
  expectErrors(readRuns("held_out_mixture_runs.json"),
               {{"Megatron-Bridge 26.04.01", 0.2, 0.14},
                {"Megatron-Bridge 26.06.01", 0.25, 0.15},
                {"Megatron-Bridge 26.08", 0.15, 0.06}});
}

/// As their authors count them.
TEST(PublishedRuns, MixturesHaveTheirParameters) {
  const std::map<std::pair<int64_t, int64_t>, double> billions = {
      {{36, 128}, 117},   // GPT-OSS 120B
      {{48, 128}, 30.5},  // Qwen3 30B
      {{94, 128}, 235},   // Qwen3 235B
      {{61, 256}, 671},   // DeepSeek-V3
      {{61, 384}, 1026}}; // Kimi K2
  for (const PublishedSource &source : readRuns("mixture_runs.json"))
    for (const PublishedRun &run : source.runs) {
      auto known = billions.find({run.shape.layers, run.shape.experts.experts});
      ASSERT_NE(known, billions.end()) << run.id;
      Work work = buildTransformerWork(run.shape, 1, false);
      EXPECT_NEAR(work.totalParameters * 1e-9, known->second,
                  0.006 * known->second)
          << run.id;
    }
}

/// Within one container of the program. Of tokens a second, predictions know
/// more than a constant part of the peak does.
TEST(PublishedRuns, RanksMixtures) {
  for (const char *file : {"mixture_runs.json", "held_out_mixture_runs.json"})
    for (const PublishedSource &source : readRuns(file)) {
      SCOPED_TRACE(source.name);
      std::vector<Comparison> seconds = compare(source).seconds;
      if (source.isRanking) {
        Ranking ranking = rankByModel(seconds).front();
        EXPECT_GT(ranking.kendallTau, 0.7); // 18 of 21 pairs
        EXPECT_EQ(ranking.regret, 0);
        continue;
      }
      ASSERT_TRUE(source.comparesUtilization);
      UtilizationRanking ranking = rankUtilization(seconds);
      EXPECT_GT(ranking.speed, ranking.trivialSpeed);
      // Of eight runs of four models: one pair is 0.07.
      bool isShort = source.runs.size() == 8;
      EXPECT_GE(ranking.utilization, isShort ? 0.4 : 0.7);
    }
}

/// The band within which the simpler of two configurations is picked is what
/// predicted ratios are off by.
TEST(PublishedRuns, OrdersWithinItsBand) {
  std::vector<PublishedSource> sources = readRuns("published_runs.json");
  std::vector<PublishedSource> others = readRuns("held_out_runs.json");
  sources.insert(sources.end(), others.begin(), others.end());
  RatioError error = compareRatios(sources);
  EXPECT_GT(error.sources, 5);
  EXPECT_NEAR(error.half, robustBand, 0.005);
  EXPECT_NEAR(error.most, robustMost, 0.005);
}

} // namespace
