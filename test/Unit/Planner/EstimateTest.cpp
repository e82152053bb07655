//===- EstimateTest.cpp - Predicted steps against published ones ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PublishedRuns.h"
#include "plait/Planner/Cost.h"
#include "plait/Planner/Search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

using namespace plait;
using namespace plait::planner;

namespace {

//===----------------------------------------------------------------------===//
// Published runs
//===----------------------------------------------------------------------===//

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
TEST(Estimate, MeanErrorsOfPublishedRuns) {
  expectErrors(readRuns("published_runs.json"),
               {{"Megatron SC21 table 1", 0.06, 0.035},
                {"Korthikanti table 4", 0.05, 0.03},
                {"Korthikanti table 5", 0.05, 0.03},
                {"vTrain multi-node", 0.12, 0.08},
                // Early libraries for Hopper, docs/Accuracy.md: bound below.
                {"llm-foundry H100 80GB", 0.15, 0.1},
                {"llm-foundry A100 80GB", 0.12, 0.08},
                {"llm-foundry A100 40GB", 0.12, 0.08},
                {"Zero bubble tables 4 and 6", 0.08, 0.06},
                {"SimuMax B200", 0.15, 0.05}});
}

TEST(Estimate, MeanErrorOfPublicationWithSeveralClusters) {
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
TEST(Estimate, MeanErrorsOfHeldOutRuns) {
  expectErrors(readRuns("held_out_runs.json"),
               {{"Narayanan SC21 table 2", 0.06, 0.035},
                {"MegaScale baseline", 0.06, 0.035},
                {"Llama 3 405B", 0.12, 0.03},
                {"MT-NLG 530B", 0.25, 0.03},
                {"BLOOM, February 26", 0.2, 0.08},
                {"BLOOM, February 28", 0.2, 0.08},
                {"GPT-3 175B, H100", 0.06, 0.035},
                {"Llama 3.1, H100", 0.06, 0.035},
                {"Nemotron-4, H100", 0.06, 0.035},
                {"Llama 3.1, GB200", 0.12, 0.03},
                {"Nemotron-4, GB200", 0.12, 0.03}});
}

/// Of every model's measured configurations. Two models have many runs that are
/// up to 60 % slower than their neighbours, for no reason that the publication
/// gives (docs/Accuracy.md): the order of the others is what can be predicted,
/// and the order of all is what exact predictions of them would give, but for
/// pairs that are within 1 % (1 to 10 % of a model's pairs).
TEST(Estimate, RanksConfigurations) {
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

/// The band within which the simpler of two configurations is picked is what
/// predicted ratios are off by.
TEST(Estimate, OrdersWithinItsBand) {
  std::vector<PublishedSource> sources = readRuns("published_runs.json");
  std::vector<PublishedSource> others = readRuns("held_out_runs.json");
  sources.insert(sources.end(), others.begin(), others.end());
  RatioError error = compareRatios(sources);
  EXPECT_GT(error.sources, 5);
  EXPECT_NEAR(error.half, robustBand, 0.005);
  EXPECT_NEAR(error.most, robustMost, 0.005);
}

//===----------------------------------------------------------------------===//
// What makes no sense
//===----------------------------------------------------------------------===//

struct Setting {
  TransformerShape shape;
  Training training;
  Configuration configuration;
  Cluster cluster = *parseCluster("a100-80g:8x8");

  Setting() {
    shape.layers = 16;
    shape.hidden = 4096;
    shape.heads = 32;
    shape.vocabulary = 32000;
    shape.sequence = training.sequence = 2048;
    training.globalBatch = 64;
  }
  Result<Estimate> tryRun() const {
    Work work = buildTransformerWork(shape, configuration.tensor,
                                     configuration.sequenceParallel);
    return estimate(work, cluster, training, configuration);
  }
  Estimate run() const {
    auto estimate = tryRun();
    EXPECT_TRUE(estimate.ok()) << estimate.status().message();
    return estimate.ok() ? *estimate : Estimate();
  }
  std::string message() const {
    auto estimate = tryRun();
    return estimate.ok() ? "" : estimate.status().message();
  }
};

template <typename Change> static std::string messageOf(Change change) {
  Setting setting;
  change(setting);
  return setting.message();
}

// Every count, below and above what it may be.
TEST(Estimate, SaysWhichCountIsOutOfRange) {
  using Change = void (*)(Setting &, int64_t);
  const std::pair<const char *, Change> counts[] = {
      {"pipeline",
       [](Setting &s, int64_t n) { s.configuration.pipeline = int(n); }},
      {"data", [](Setting &s, int64_t n) { s.configuration.data = int(n); }},
      {"context",
       [](Setting &s, int64_t n) { s.configuration.context = int(n); }},
      {"chunks",
       [](Setting &s, int64_t n) { s.configuration.chunks = int(n); }},
      {"microbatch",
       [](Setting &s, int64_t n) { s.configuration.microBatch = n; }},
      {"global batch",
       [](Setting &s, int64_t n) { s.training.globalBatch = n; }},
      {"sequence", [](Setting &s, int64_t n) { s.training.sequence = n; }}};
  for (auto [name, change] : counts)
    for (int64_t count : {0, -3}) {
      Setting setting;
      change(setting, count);
      EXPECT_EQ(setting.message(), std::string(name) + " is " +
                                       std::to_string(count) +
                                       ", expected at least 1");
    }
  for (auto [name, change] : std::span(counts).subspan(4)) {
    Setting setting;
    change(setting, int64_t(1) << 31);
    EXPECT_EQ(setting.message(), std::string(name) +
                                     " is 2147483648, expected at most "
                                     "2147483647");
  }
  EXPECT_EQ(messageOf([](Setting &s) { s.configuration.zero = -1; }),
            "zero stage is -1, expected 0 to 3");
  EXPECT_EQ(messageOf([](Setting &s) { s.configuration.zero = 4; }),
            "zero stage is 4, expected 0 to 3");
}

TEST(Estimate, SaysWhichMeshDoesNotFit) {
  EXPECT_EQ(messageOf([](Setting &s) { s.configuration.data = 128; }),
            "the configuration (pipeline 1, data 128, tensor 1, context 1) "
            "needs more than the cluster's 64 devices");
  // A product that does not fit into 64 bit.
  EXPECT_EQ(messageOf([](Setting &s) {
              s.configuration.pipeline = s.configuration.data =
                  s.configuration.context = 2147483647;
            }),
            "the configuration (pipeline 2147483647, data 2147483647, tensor "
            "1, context 2147483647) needs more than the cluster's 64 devices");
  EXPECT_EQ(messageOf([](Setting &s) {
              s.configuration.chunks = 2147483647;
              s.configuration.pipeline = 64;
            }),
            "the pipeline has 137438953408 virtual stages, the model 16 "
            "layers");
  EXPECT_EQ(messageOf([](Setting &s) { s.configuration.pipeline = 32; }),
            "the pipeline has 32 virtual stages, the model 16 layers");
  EXPECT_NE(messageOf([](Setting &s) {
              s.configuration.context = 3;
            }).find("not a multiple of context 3"),
            std::string::npos);
}

TEST(Estimate, SaysWhichLayersDoNotAddUp) {
  EXPECT_EQ(messageOf([](Setting &s) { s.configuration.layers = {17, -1}; }),
            "layers are given for 2 virtual stages, the pipeline has 1");
  EXPECT_EQ(messageOf([](Setting &s) {
              s.configuration.pipeline = 2;
              s.configuration.layers = {17, -1};
            }),
            "a virtual stage is given -1 layers");
  EXPECT_EQ(messageOf([](Setting &s) { s.configuration.layers = {8, 8}; }),
            "layers are given for 2 virtual stages, the pipeline has 1");
  EXPECT_EQ(messageOf([](Setting &s) { s.configuration.layers = {15}; }),
            "the layers given add up to 15, the model has 16");
}

TEST(Estimate, SaysWhichScheduleOrSizeMakesNoSense) {
  EXPECT_NE(
      messageOf([](Setting &s) { s.configuration.chunks = 2; }).find("1f1b"),
      std::string::npos);
  EXPECT_NE(messageOf([](Setting &s) {
              s.configuration.schedule = "2f2b";
            }).find("unknown schedule '2f2b'"),
            std::string::npos);
  EXPECT_EQ(messageOf([](Setting &s) { s.configuration.microBatch = 3; }),
            "global batch 64 is not a multiple of microbatch 3 x data 1");
  EXPECT_EQ(messageOf([](Setting &s) { s.training.sequence = 1024; }),
            "the work is for sequences of 2048 tokens, the training has 1024");
}

TEST(Estimate, SaysWhatTheWorkIsNotFor) {
  Setting setting;
  Work work = buildTransformerWork(setting.shape, 2, false);
  auto mismatch =
      estimate(work, setting.cluster, setting.training, setting.configuration);
  ASSERT_FALSE(mismatch.ok());
  EXPECT_EQ(mismatch.status().message(),
            "the work is for tensor 2, the configuration has 1");
  setting.configuration.tensor = 2;
  setting.configuration.sequenceParallel = true;
  mismatch =
      estimate(work, setting.cluster, setting.training, setting.configuration);
  ASSERT_FALSE(mismatch.ok());
  EXPECT_EQ(mismatch.status().message(),
            "the work is without sequence parallelism, the configuration is "
            "with");
}

//===----------------------------------------------------------------------===//
// What must hold
//===----------------------------------------------------------------------===//

TEST(Estimate, PartsAddUp) {
  Setting setting;
  setting.configuration.pipeline = 4;
  setting.configuration.data = 4;
  setting.configuration.tensor = 4;
  Estimate e = setting.run();
  EXPECT_DOUBLE_EQ(e.iterationSeconds, e.pipelineSeconds + e.waitSeconds +
                                           e.dataSeconds + e.optimizerSeconds +
                                           e.overheadSeconds);
  EXPECT_NEAR(e.breakdown.sum(), e.iterationSeconds,
              1e-12 * e.iterationSeconds);
  EXPECT_DOUBLE_EQ(e.tokensPerSecond, 64 * 2048 / e.iterationSeconds);
  EXPECT_EQ(e.stages.size(), 4u);
  EXPECT_EQ(e.memory.size(), 4u);
  EXPECT_GT(e.breakdown.exposed.tensor, 0);
  // 72 B s L h^2 (1 + s / 6h + V / 12hL) (Korthikanti et al. 2022, equation 7).
  double h = 4096, s = 2048, layers = 16;
  EXPECT_NEAR(e.modelFlops,
              72 * 64 * s * layers * h * h *
                  (1 + s / (6 * h) + 32000 / (12 * h * layers)),
              1e-9 * e.modelFlops);
}

TEST(Estimate, RecomputationCostsAForward) {
  Setting setting;
  Estimate none = setting.run();
  setting.configuration.recompute = Recompute::Full;
  Estimate full = setting.run();
  const StageTime &time = full.stages[0];
  EXPECT_DOUBLE_EQ(time.backwardInput,
                   none.stages[0].backwardInput + time.recompute);
  // All of the forward pass but for embedding and head.
  EXPECT_GT(time.recompute, 0.8 * time.forward);
  EXPECT_LT(time.recompute, time.forward);
  EXPECT_LT(full.peakMemory(), none.peakMemory());
}

TEST(Estimate, InterleavingShrinksTheBubble) {
  Setting setting;
  setting.shape.vocabulary = 256; // a head that costs next to nothing
  setting.configuration.pipeline = 4;
  setting.training.globalBatch = 8;
  Estimate plain = setting.run();
  setting.configuration.schedule = "interleaved-1f1b";
  setting.configuration.chunks = 2;
  Estimate interleaved = setting.run();
  // (p - 1) / (m + p - 1) and (p - 1) / (v m + p - 1), and transfers.
  EXPECT_NEAR(plain.bubbleFraction, 3.0 / 11, 0.01);
  EXPECT_NEAR(interleaved.bubbleFraction, 3.0 / 19, 0.01);
}

TEST(Estimate, EmbeddingAndHeadShortenTheirStages) {
  Setting setting;
  setting.shape.vocabulary = 256000;
  setting.configuration.pipeline = 4;
  Estimate e = setting.run();
  EXPECT_LT(e.layers.back(), 4);
  setting.configuration.layers = {4, 4, 4, 4};
  EXPECT_GT(setting.run().iterationSeconds, e.iterationSeconds);
}

TEST(Estimate, OverlapHidesCommunication) {
  Setting setting;
  setting.configuration.data = 16;
  setting.configuration.tensor = 4;
  Framework &framework = setting.training.framework;
  framework.overlapTensor = framework.overlapGradients = false;
  Estimate exposed = setting.run();
  framework.overlapTensor = true;
  EXPECT_LT(setting.run().breakdown.exposed.tensor,
            exposed.breakdown.exposed.tensor);
  framework.overlapGradients = true;
  EXPECT_LT(setting.run().dataSeconds, exposed.dataSeconds);
}

TEST(Estimate, FasterLinksAndDevicesAreNotSlower) {
  Setting setting;
  setting.configuration.pipeline = 2;
  setting.configuration.tensor = 4;
  setting.configuration.data = 8;
  double before = setting.run().iterationSeconds;
  setting.cluster.inter.bandwidth *= 2;
  double links = setting.run().iterationSeconds;
  EXPECT_LT(links, before);
  setting.cluster.device.memoryBandwidth *= 2;
  EXPECT_LT(setting.run().iterationSeconds, links);
}

/// One sequence of 65,536 tokens.
static Setting getLongSequence() {
  Setting setting;
  setting.shape.sequence = setting.training.sequence = 65536;
  setting.shape.learnedPositions = false;
  setting.training.globalBatch = 1;
  return setting;
}

/// A sequence over four ranks: a quarter of the tokens each, all of the keys.
/// In a ring all ranks have as much to do; with consecutive queries the last
/// ones see seven eighths of the keys where one rank's see half.
TEST(Estimate, ContextParallelismDividesASequence) {
  Setting setting = getLongSequence();
  Estimate one = setting.run();
  setting.configuration.context = 4;
  Estimate four = setting.run();
  EXPECT_NEAR(four.memory[0].activations / one.memory[0].activations, 0.25,
              0.001);
  EXPECT_DOUBLE_EQ(four.memory[0].parameters, one.memory[0].parameters);
  double share = four.stages[0].forward / one.stages[0].forward;
  EXPECT_GT(share, 0.25);
  EXPECT_LT(share, 0.25 * 7 / 4 + 0.02);
  setting.training.framework.gathersContext = false;
  EXPECT_NEAR(setting.run().stages[0].forward / one.stages[0].forward, 0.25,
              0.02);
}

/// Of the forward pass, without what cp exchanges.
static double workOf(const Estimate &e) {
  return e.stages[0].forward - e.stages[0].contextForward;
}

/// In zig-zag order the work is even, for what it takes to bring gathered keys
/// and values into order; GPUs do that with unfused attention alone.
TEST(Estimate, ContextParallelismInZigzagOrder) {
  Setting setting = getLongSequence();
  setting.training.flashAttention = false;
  Estimate one = setting.run();
  setting.configuration.context = 4;
  Estimate gathered = setting.run();
  setting.configuration.contextParallel = ContextParallel::Zigzag;
  Estimate zigzag = setting.run();
  EXPECT_NEAR(workOf(zigzag) / workOf(one), 0.25, 0.02);
  EXPECT_LT(workOf(zigzag), 0.99 * workOf(gathered));
  // Two tensors a layer of all positions, each read and written in bf16.
  double layers = double(setting.shape.layers);
  double bytes = 2.0 * 2 * 65536 * double(setting.shape.hidden) * 2;
  double reordered =
      zigzag.stages[0].contextForward - gathered.stages[0].contextForward;
  EXPECT_NEAR(reordered /
                  (layers * memoryCost(bytes, setting.cluster.device).seconds),
              1, 1e-9);
  setting.training.flashAttention = true;
  EXPECT_EQ(setting.message(),
            "context-parallel is zigzag, which GPUs compute with --attention "
            "unfused alone");
  setting.training.flashAttention = false;
  setting.configuration.context = 32;
  setting.shape.sequence = setting.training.sequence = 65536 - 32;
  EXPECT_EQ(setting.message(),
            "context-parallel is zigzag, but sequence 65504 is not a multiple "
            "of 2 · cp = 64");
}

/// By heads the work is even as in a ring. What is exchanged forward are
/// queries, keys, values and the result, all of one size here.
TEST(Estimate, ContextParallelismByHeads) {
  Setting setting = getLongSequence();
  Estimate one = setting.run();
  setting.configuration.context = 4;
  Estimate gathered = setting.run();
  setting.configuration.contextParallel = ContextParallel::Heads;
  Estimate heads = setting.run();
  EXPECT_NEAR(workOf(heads) / workOf(one), 0.25, 0.02);
  EXPECT_LT(workOf(heads), 0.9 * workOf(gathered));
  // The result of attention is kept by heads and by positions.
  double layers = double(setting.shape.layers);
  double result = 65536 / 4 * double(setting.shape.hidden) * 2;
  EXPECT_NEAR(heads.memory[0].activations,
              gathered.memory[0].activations + layers * result, 1);
  double exchange = collectiveSeconds(CollectiveKind::AllToAll, result, {4, 4},
                                      setting.cluster);
  EXPECT_NEAR(heads.stages[0].contextForward / (layers * 4 * exchange), 1,
              1e-9);
  setting.configuration.context = 3;
  setting.shape.sequence = setting.training.sequence = 3 * 16384;
  EXPECT_EQ(setting.message(),
            "context-parallel is heads, but cp 3 does not divide the 32 "
            "key/value heads that a rank of tp 1 has; possible are 1, 2, 4, 8, "
            "16, 32");
}

/// Elementwise work of layers goes through memory more often, all else stays.
TEST(Estimate, ProgramsWithoutACompilerMoveMore) {
  Setting setting;
  setting.training.framework = *findFramework("fsdp-compiled");
  Estimate compiled = setting.run();
  setting.training.framework.kernelPasses = 3;
  Estimate eager = setting.run();
  // Of a layer of 4,096 on 2,048 tokens, kernels take about a tenth.
  double more = eager.stages[0].forward / compiled.stages[0].forward;
  EXPECT_GT(more, 1.1);
  EXPECT_LT(more, 1.4);
  EXPECT_EQ(findFramework("fsdp")->kernelPasses, 3);
}

/// A program that adds to the sum of gradients in the matmul itself has no
/// kernel for it.
TEST(Estimate, FusedAccumulationSavesAKernel) {
  Setting setting;
  setting.training.framework.fusedAccumulation = true;
  Estimate fused = setting.run();
  setting.training.framework.fusedAccumulation = false;
  Estimate apart = setting.run();
  EXPECT_GT(apart.stages[0].backwardWeight, fused.stages[0].backwardWeight);
  EXPECT_EQ(apart.stages[0].forward, fused.stages[0].forward);
}

/// State and masters: 12 bytes a parameter in bf16. They go and come at the
/// rate of the link to the host, at once, and nothing of the update takes as
/// long.
TEST(Estimate, WhatTheOptimizerKeepsCanBeOnTheHost) {
  Setting setting;
  setting.training.precision = Precision::BF16;
  Estimate before = setting.run();
  setting.configuration.offload = Offload::Optimizer;
  Estimate after = setting.run();
  const StageMemory &memory = after.memory[0];
  EXPECT_EQ(memory.optimizer, 0);
  EXPECT_DOUBLE_EQ(memory.host, before.memory[0].optimizer);
  EXPECT_DOUBLE_EQ(memory.peak() + memory.host, before.memory[0].peak());
  EXPECT_EQ(after.pipelineSeconds, before.pipelineSeconds);
  EXPECT_NEAR(after.optimizerSeconds,
              memory.host / setting.cluster.device.hostBandwidth,
              0.01 * after.optimizerSeconds);
}

/// But for what comes from other stages. Passes that compute longer than it
/// takes to copy are no longer; a slow link makes them so.
TEST(Estimate, WhatIsKeptForTheBackwardPassCanBeOnTheHost) {
  Setting setting;
  setting.configuration.pipeline = 4;
  Estimate before = setting.run();
  setting.configuration.offload = Offload::Activations;
  setting.cluster.device.hostBandwidth = 1e15;
  Estimate after = setting.run();
  EXPECT_LT(after.memory[1].activations, 0.1 * before.memory[1].activations);
  EXPECT_GT(after.memory[1].activations, 0);
  EXPECT_DOUBLE_EQ(after.memory[1].activations + after.memory[1].host,
                   before.memory[1].activations);
  EXPECT_EQ(after.pipelineSeconds, before.pipelineSeconds);
  setting.cluster.device.hostBandwidth = 1e9;
  Estimate slow = setting.run();
  EXPECT_GT(slow.stages[1].forward, 10 * before.stages[1].forward);
  EXPECT_NEAR(slow.stages[1].forward,
              slow.stages[1].backwardInput + slow.stages[1].backwardWeight,
              1e-9 * slow.stages[1].forward);
}

TEST(Estimate, FrameworksAreFoundByName) {
  EXPECT_STREQ(findFramework("megatron-2022")->name, "megatron-2022");
  auto unknown = findFramework("jax");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().message().rfind("unknown framework 'jax', "
                                             "expected one of plait, ",
                                             0),
            0u);
}

} // namespace
