//===- HabitsTest.cpp - What other programs keep --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Habits.h"
#include "PublishedRuns.h"
#include "plait/Planner/Cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

using namespace plait;
using namespace plait::planner;

namespace {

/// Llama 3 8B, whose linears are matmuls of their own.
TransformerShape makeLlama() {
  TransformerShape shape;
  shape.layers = 2;
  shape.hidden = 4096;
  shape.heads = 32;
  shape.keyValueHeads = 8;
  shape.ffn = 14336;
  shape.ffnMatrices = 3;
  shape.vocabulary = 128256;
  shape.sequence = 1024;
  shape.biases = shape.layerNorm = shape.learnedPositions = shape.tied = false;
  shape.rotary = shape.separate = true;
  return shape;
}

Work adopt(const char *framework, Precision precision = Precision::BF16) {
  return adoptHabits(buildTransformerWork(makeLlama(), 1, false),
                     *findFramework(framework), precision);
}

const Block &getLayer(const Work &work) { return work.blocks[work.order[1]]; }
const Block &getHead(const Work &work) {
  return work.blocks[work.order.back()];
}

double countLogits() { return 1024.0 * 128256; }

/// Bytes of 16-bit training.
double getBytes(const Saved &saved) {
  return 2 * saved.elements + 4 * saved.fourByte;
}

/// Of each logit 4 bytes until the backward pass, and while that runs 2 more in
/// Megatron-LM, 8 in PyTorch, in place of what the profile has there.
TEST(Habits, LossKeepsLogits) {
  Block own = getHead(adopt("plait"));
  Block megatron = getHead(adopt("megatron-core"));
  Block torch = getHead(adopt("fsdp"));
  double others = getBytes(own.kept) - 4 * countLogits();
  EXPECT_EQ(getBytes(megatron.kept), others + 4 * countLogits());
  EXPECT_EQ(getBytes(torch.kept), others + 4 * countLogits());
  EXPECT_EQ(getBytes(torch.workspace) - getBytes(megatron.workspace),
            6 * countLogits());
  EXPECT_EQ(getBytes(megatron.workspace), getBytes(own.workspace));
}

/// A profile has the logits in 16 bit, and their gradient in their place.
TEST(Habits, LossKeepsLogitsOfProfile) {
  Work work = buildTransformerWork(makeLlama(), 1, false);
  Block &head = work.blocks[work.order.back()];
  head.kept.fourByte -= countLogits();
  head.kept.elements += countLogits();
  head.workspace.elements -= countLogits();
  Work adopted = adoptHabits(work, *findFramework("fsdp"), Precision::BF16);
  EXPECT_EQ(getBytes(getHead(adopted).kept),
            getBytes(getHead(adopt("fsdp")).kept));
  EXPECT_EQ(getBytes(getHead(adopted).workspace),
            getBytes(getHead(adopt("fsdp")).workspace));
}

TEST(Habits, ChangeNothingInFp32) {
  EXPECT_EQ(getBytes(getHead(adopt("fsdp", Precision::FP32)).kept),
            getBytes(getHead(adopt("plait")).kept));
}

/// torchtitan's "selective op" saves the layer's input, what attention makes,
/// and of the seven matmuls wq, wv, w1 and w2; a compiler does not keep the
/// last, which no backward pass reads.
TEST(Habits, SelectiveSavesEveryOtherMatmul) {
  const double tokens = 1024;
  for (auto [name, last] :
       {std::pair("fsdp", 4096.0), std::pair("fsdp-compiled", 0.0)}) {
    Work work = adopt(name);
    ASSERT_EQ(work.cheapBlocks.size(), work.blocks.size());
    const Block &cheap = work.cheapBlocks[work.order[1]];
    EXPECT_EQ(cheap.kept.elements,
              tokens * (4096 + 4096 + 4096 + 1024 + 14336 + last))
        << name;
    EXPECT_EQ(cheap.kept.fourByte, tokens * 32) << name;
    EXPECT_EQ(getBytes(work.cheapBlocks.back().kept),
              getBytes(work.blocks.back().kept));
    // wk, wo and w3 run again.
    auto countMatmuls = [](const Block &block) {
      return std::ranges::count_if(block.operations, [](const Operation &op) {
        return op.kind == OperationKind::Matmul;
      });
    };
    EXPECT_EQ(countMatmuls(cheap) - countMatmuls(getLayer(work)), 3);
  }
  EXPECT_TRUE(adopt("megatron-core").cheapBlocks.empty());
  EXPECT_TRUE(adopt("deepspeed").cheapBlocks.empty());
}

/// What the allocator reserved of runs of torchtitan: with logits of 2 x 8,192
/// and of 32,768 tokens, with and without a compiler, on 8 and on 128 devices.
/// Before, the last of these was predicted at 45.1 GiB, and measured at 83.9.
TEST(Habits, MemoryOfShardedRunsIsWithinEightPercent) {
  auto sources = readPublishedRuns(PLAIT_PUBLISHED_RUNS "/fsdp_runs.json");
  ASSERT_TRUE(sources.ok()) << sources.status().message();
  size_t compared = 0;
  for (const PublishedSource &source : *sources)
    for (const Comparison &bytes : compare(source).bytes) {
      EXPECT_LT(std::abs(bytes.error()), 0.08) << bytes.name;
      ++compared;
    }
  EXPECT_EQ(compared, 5u);
}

/// Of llm-foundry's runs on A100 with 80 GB those with PyTorch's flat
/// parameters.
std::vector<PublishedRun> readFoundry() {
  auto sources = readPublishedRuns(PLAIT_PUBLISHED_RUNS "/published_runs.json");
  EXPECT_TRUE(sources.ok()) << sources.status().message();
  for (const PublishedSource &source : *sources)
    if (source.name == "llm-foundry A100 80GB")
      return source.runs;
  return {};
}

/// Of each parameter 18 bytes are read or written before its gradient is
/// summed: 13B with microbatches of two sequences takes 0.41 of 5.1 s for that.
TEST(Habits, FlatGradientsArePacked) {
  std::vector<PublishedRun> runs = readFoundry();
  auto run = std::ranges::find(runs, "mpt-13b-2048-8-a100_80gb-mb2-bf16",
                               &PublishedRun::id);
  ASSERT_NE(run, runs.end());
  EXPECT_EQ(run->training.framework.packedBytes, 18);
  double packed = run->predict()->iterationSeconds;
  run->training.framework.packedBytes = 0;
  double microbatches = 3, parameters = 12.85e9;
  double seconds =
      microbatches * parameters * 18 / getMemoryRate(run->cluster.device);
  // All replicas wait for the slowest, in proportion.
  EXPECT_NEAR(packed - run->predict()->iterationSeconds, seconds,
              0.05 * seconds);
}

/// They ran with PyTorch 2.1, which recomputes up to the last tensor that was
/// saved; taken to recompute all, they were predicted 3 % slow in the middle,
/// those that do not recompute 8 % fast.
TEST(Habits, RecomputedRunsAreAsFarOffAsOthers) {
  std::vector<double> with, without;
  for (const PublishedRun &run : readFoundry()) {
    EXPECT_TRUE(run.training.framework.recomputesRead);
    bool isRecomputed = run.configuration.recompute == Recompute::Full;
    (isRecomputed ? with : without)
        .push_back(run.predict()->iterationSeconds / run.seconds);
  }
  auto getMiddle = [](std::vector<double> &values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  ASSERT_FALSE(with.empty() || without.empty());
  EXPECT_LT(std::abs(getMiddle(with) - getMiddle(without)), 0.05);
}

/// With and without a compiler, on A100 and H100.
TEST(Habits, SecondsOfShardedRunsAreWithinFifteenPercent) {
  auto sources = readPublishedRuns(PLAIT_PUBLISHED_RUNS "/fsdp_runs.json");
  ASSERT_TRUE(sources.ok()) << sources.status().message();
  size_t compared = 0;
  for (const PublishedSource &source : *sources)
    for (const Comparison &seconds : compare(source).seconds) {
      EXPECT_LT(std::abs(seconds.error()), 0.15) << seconds.name;
      ++compared;
    }
  EXPECT_EQ(compared, 8u);
}

} // namespace
