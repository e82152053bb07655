//===- EstimateTest.cpp - What a predicted step consists of ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EstimateSetting.h"

using namespace plait;
using namespace plait::planner;

namespace {

TEST(Estimate, PartsAddUp) {
  EstimateSetting setting;
  setting.configuration.mesh[Axis::PP] = 4;
  setting.configuration.mesh[Axis::DP] = 4;
  setting.configuration.mesh[Axis::TP] = 4;
  Estimate e = setting.run();
  EXPECT_DOUBLE_EQ(e.iterationSeconds, e.pipelineSeconds + e.waitSeconds +
                                           e.dataSeconds + e.optimizerSeconds +
                                           e.overheadSeconds);
  EXPECT_NEAR(e.breakdown.sum(), e.iterationSeconds,
              1e-12 * e.iterationSeconds);
  EXPECT_DOUBLE_EQ(e.tokensPerSecond, 64 * 2048 / e.iterationSeconds);
  EXPECT_EQ(e.stages.size(), 4u);
  EXPECT_EQ(e.memory.size(), 4u);
  EXPECT_GT(e.breakdown.exposed[Axis::TP], 0);
  // 72 B s L h^2 (1 + s / 6h + V / 12hL) (Korthikanti et al. 2022, equation 7).
  double h = 4096, s = 2048, layers = 16;
  EXPECT_NEAR(e.modelFlops,
              72 * 64 * s * layers * h * h *
                  (1 + s / (6 * h) + 32000 / (12 * h * layers)),
              1e-9 * e.modelFlops);
}

TEST(Estimate, RecomputationCostsAForward) {
  EstimateSetting setting;
  Estimate none = setting.run();
  setting.configuration.recompute = Recompute::Full;
  Estimate full = setting.run();
  const StageTime &time = full.stages[0];
  EXPECT_DOUBLE_EQ(time.backwardInput,
                   none.stages[0].backwardInput + time.recompute);
  EXPECT_LT(full.peakMemory(), none.peakMemory());
  // All of the forward pass but for embedding and head; plait's own ends in
  // front of the last of the layer's four matmuls, which is a third of them.
  EXPECT_GT(time.recompute, 0.6 * time.forward);
  EXPECT_LT(time.recompute, 0.7 * time.forward);
  setting.training.framework.recomputesRead = false;
  const StageTime whole = setting.run().stages[0];
  EXPECT_GT(whole.recompute, 0.8 * whole.forward);
  EXPECT_LT(whole.recompute, whole.forward);
}

TEST(Estimate, InterleavingShrinksTheBubble) {
  EstimateSetting setting;
  setting.shape.vocabulary = 256; // a head that costs next to nothing
  setting.configuration.mesh[Axis::PP] = 4;
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
  EstimateSetting setting;
  setting.shape.vocabulary = 256000;
  setting.configuration.mesh[Axis::PP] = 4;
  Estimate e = setting.run();
  EXPECT_LT(e.layers.back(), 4);
  setting.configuration.layers = {4, 4, 4, 4};
  EXPECT_GT(setting.run().iterationSeconds, e.iterationSeconds);
}

TEST(Estimate, OverlapHidesCommunication) {
  EstimateSetting setting;
  setting.configuration.mesh[Axis::DP] = 16;
  setting.configuration.mesh[Axis::TP] = 4;
  Framework &framework = setting.training.framework;
  framework.overlapTensor = framework.overlapGradients = false;
  Estimate exposed = setting.run();
  framework.overlapTensor = true;
  EXPECT_LT(setting.run().breakdown.exposed[Axis::TP],
            exposed.breakdown.exposed[Axis::TP]);
  framework.overlapGradients = true;
  EXPECT_LT(setting.run().dataSeconds, exposed.dataSeconds);
}

/// Sequences have pieces where they can be dealt out: evenly, in their order.
TEST(Estimate, SequencesAreDealtOutInPieces) {
  EstimateSetting setting;
  setting.configuration.mesh[Axis::DP] = 8;
  setting.configuration.mesh[Axis::CP] = 2;
  setting.configuration.mesh[Axis::TP] = 4;
  setting.configuration.sequenceParallel = true;
  auto isCut = [&] {
    setting.training.tensorOverlap = 1;
    double whole = setting.run().breakdown.exposed[Axis::TP];
    setting.training.tensorOverlap = 4;
    return setting.run().breakdown.exposed[Axis::TP] < whole;
  };
  EXPECT_TRUE(isCut());
  setting.configuration.contextParallel = ContextParallel::Zigzag;
  EXPECT_FALSE(isCut());
  setting.configuration.contextParallel = ContextParallel::Gather;
  setting.shape.sequence = setting.training.sequence = 2048 - 16;
  EXPECT_FALSE(isCut());
}

/// Takes several of each, and attention that is one step.
TEST(Estimate, SequencesGoThroughLayersOneByOne) {
  EstimateSetting setting;
  setting.cluster = *parseCluster("h100:8x8");
  setting.shape.layers = 32;
  setting.training.tensorOverlap = 4;
  setting.configuration.mesh[Axis::PP] = setting.configuration.mesh[Axis::TP] =
      8;
  setting.configuration.sequenceParallel = true;
  auto getShare = [&] { // of what is waited for otherwise
    setting.training.flashAttention = false;
    double apart = setting.run().breakdown.exposed[Axis::TP];
    setting.training.flashAttention = true;
    return setting.run().breakdown.exposed[Axis::TP] / apart;
  };
  EXPECT_DOUBLE_EQ(getShare(), 1);
  setting.configuration.microBatch = 2;
  EXPECT_LT(getShare(), 0.9);
  setting.shape.layers = 8;
  EXPECT_DOUBLE_EQ(getShare(), 1);
}

/// What is gathered beside the forward pass are copies, whose parameters are on
/// the device.
TEST(Estimate, CopiesAreGatheredBesideTheForwardPass) {
  EstimateSetting setting;
  setting.configuration.mesh[Axis::DP] = 16;
  setting.configuration.zero = 1;
  Framework &framework = setting.training.framework;
  auto hides = [&] {
    framework.overlapParameters = false;
    double exposed = setting.run().dataSeconds;
    framework.overlapParameters = true;
    return setting.run().dataSeconds < exposed;
  };
  setting.training.precision = Precision::BF16;
  EXPECT_TRUE(hides());
  setting.configuration.offload = Offload::Optimizer;
  EXPECT_FALSE(hides());
  setting.configuration.offload = Offload::None;
  setting.training.precision = Precision::FP32;
  EXPECT_FALSE(hides());
  framework.overlapsCopies = false;
  EXPECT_TRUE(hides());
}

/// Of a backward pass that is split only the half that computes gradients of
/// weights ends them: there is less to hide their sum behind. What ZeRO 3
/// gathers is hidden behind the other half.
TEST(Estimate, GradientsEndInTheHalfOfTheWeights) {
  EstimateSetting setting;
  setting.configuration.mesh[Axis::PP] = 4;
  setting.configuration.mesh[Axis::DP] = 16;
  setting.cluster.inter.bandwidth /= 16;
  setting.training.framework.overlapsParts = true;
  for (int zero = 0; zero <= 3; ++zero) {
    setting.configuration.zero = zero;
    setting.configuration.schedule = "1f1b";
    double whole = setting.run().dataSeconds;
    setting.configuration.schedule = "zb-h1";
    Estimate split = setting.run();
    // From ZeRO 2 on passes wait where a gradient ends. The small ones of a
    // layer, which queue between its matrices, are in the other half.
    if (zero >= 2)
      EXPECT_LT(split.dataSeconds, whole);
    else
      EXPECT_GT(split.dataSeconds, whole + 0.1 * split.stages[0].backwardInput);
  }
}

/// Rounding and widening take time, which does not count where sums take long;
/// what has two bytes already has none of it.
TEST(Estimate, SumsInBf16SendHalfOfTheBytes) {
  EstimateSetting setting;
  setting.configuration.mesh[Axis::DP] = 16;
  setting.training.framework.overlapGradients = false;
  auto seconds = [&](Precision precision) {
    setting.training.reducePrecision = precision;
    return setting.run().dataSeconds;
  };
  double whole = seconds(Precision::FP32), half = seconds(Precision::BF16);
  EXPECT_LT(half, whole);
  EXPECT_GT(half, whole / 2);
  setting.cluster.inter.bandwidth /= 1000;
  setting.cluster.intra.bandwidth /= 1000;
  whole = seconds(Precision::FP32);
  EXPECT_NEAR(seconds(Precision::BF16), whole / 2, 0.01 * whole);
  setting.training.fp32Gradients = false;
  EXPECT_EQ(seconds(Precision::BF16), seconds(Precision::FP32));
}

/// In a V the first and the last virtual stage are on one rank, which holds one
/// copy: there is nothing to add up.
TEST(Estimate, ATiedTableIsAddedUpBetweenRanks) {
  EstimateSetting setting;
  setting.shape.tied = true;
  setting.configuration.mesh[Axis::PP] = 4;
  EXPECT_GT(setting.run().dataSeconds, 0);
  setting.configuration.schedule = "zb-v";
  setting.configuration.chunks = 2;
  EXPECT_EQ(setting.run().dataSeconds, 0);
}

/// Sums of the same times in another order differ in their last digits.
TEST(Estimate, OneStageHasNoBubble) {
  EstimateSetting setting;
  for (int tensor : {1, 2, 4})
    for (int64_t microBatch : {1, 2, 4, 8})
      for (int64_t layers = 1; layers < 12; ++layers) {
        setting.shape.layers = layers;
        setting.configuration.mesh[Axis::TP] = tensor;
        setting.configuration.microBatch = microBatch;
        Estimate estimate = setting.run();
        EXPECT_GE(estimate.bubbleFraction, 0);
        EXPECT_GE(estimate.breakdown.bubble, 0);
        EXPECT_LT(estimate.bubbleFraction, 1e-12);
      }
}

TEST(Estimate, FasterLinksAndDevicesAreNotSlower) {
  EstimateSetting setting;
  setting.configuration.mesh[Axis::PP] = 2;
  setting.configuration.mesh[Axis::TP] = 4;
  setting.configuration.mesh[Axis::DP] = 8;
  double before = setting.run().iterationSeconds;
  setting.cluster.inter.bandwidth *= 2;
  double links = setting.run().iterationSeconds;
  EXPECT_LT(links, before);
  setting.cluster.device.memoryBandwidth *= 2;
  EXPECT_LT(setting.run().iterationSeconds, links);
}

/// One sequence of 65,536 tokens.
static EstimateSetting getLongSequence() {
  EstimateSetting setting;
  setting.shape.sequence = setting.training.sequence = 65536;
  setting.shape.learnedPositions = false;
  setting.training.globalBatch = 1;
  return setting;
}

/// A sequence over four ranks: a quarter of the tokens each, all of the keys.
/// In a ring all ranks have as much to do; with consecutive queries the last
/// ones see seven eighths of the keys where one rank's see half.
TEST(Estimate, ContextParallelismDividesASequence) {
  EstimateSetting setting = getLongSequence();
  Estimate one = setting.run();
  setting.configuration.mesh[Axis::CP] = 4;
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

/// In zig-zag order the work of flash attention is even, for what it takes to
/// bring gathered keys and values into order: it skips what the last rank has
/// of keys in their own order, three quarters of a share more than the average.
/// Unfused attention computes all scores in any order.
TEST(Estimate, ContextParallelismInZigzagOrder) {
  for (bool fused : {false, true}) {
    SCOPED_TRACE(fused ? "fused" : "unfused");
    EstimateSetting setting = getLongSequence();
    setting.training.flashAttention = fused;
    Estimate one = setting.run();
    setting.configuration.mesh[Axis::CP] = 4;
    Estimate gathered = setting.run();
    setting.configuration.contextParallel = ContextParallel::Zigzag;
    Estimate zigzag = setting.run();
    if (fused) {
      EXPECT_NEAR(workOf(zigzag) / workOf(one), 0.25, 0.02);
      EXPECT_LT(workOf(zigzag), 0.8 * workOf(gathered));
    } else {
      EXPECT_NEAR(workOf(zigzag), workOf(gathered), 1e-9 * workOf(gathered));
    }
    // Two tensors a layer of all positions, each by a kernel that reads and
    // writes it in bf16.
    double layers = double(setting.shape.layers);
    double bytes = 2.0 * 65536 * double(setting.shape.hidden) * 2;
    double reordered =
        zigzag.stages[0].contextForward - gathered.stages[0].contextForward;
    double expected =
        layers * 2 * memoryCost(bytes, setting.cluster.device).seconds;
    EXPECT_NEAR(reordered / expected, 1, 1e-9);
  }
  EstimateSetting setting = getLongSequence();
  setting.configuration.contextParallel = ContextParallel::Zigzag;
  setting.configuration.mesh[Axis::CP] = 32;
  setting.shape.sequence = setting.training.sequence = 65536 - 32;
  EXPECT_EQ(setting.message(),
            "context-parallel is zigzag, but sequence 65504 is not a multiple "
            "of 2 · cp = 64");
}

/// By heads the work is even as in a ring. What is exchanged forward are
/// queries, keys, values and the result, all of one size here.
TEST(Estimate, ContextParallelismByHeads) {
  EstimateSetting setting = getLongSequence();
  Estimate one = setting.run();
  setting.configuration.mesh[Axis::CP] = 4;
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
  setting.configuration.mesh[Axis::CP] = 3;
  setting.shape.sequence = setting.training.sequence = 3 * 16384;
  EXPECT_EQ(setting.message(),
            "context-parallel is heads, but cp 3 does not divide the 32 "
            "key/value heads that a rank of tp 1 has; possible are 1, 2, 4, 8, "
            "16, 32");
}

/// Elementwise work of layers goes through memory more often, all else stays.
TEST(Estimate, ProgramsWithoutACompilerMoveMore) {
  EstimateSetting setting;
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

/// PyTorch takes FlashAttention-2 first, whose kernels are those of A100.
TEST(Estimate, TorchAttendsSlowerOnHopper) {
  EstimateSetting setting;
  auto getForward = [&](const char *device, double part) {
    setting.cluster = *parseCluster(std::string(device) + ":1x8");
    setting.training.framework = *findFramework("fsdp");
    setting.training.framework.hopperAttention = part;
    return setting.run().stages[0].forward;
  };
  double torch = findFramework("fsdp")->hopperAttention;
  EXPECT_GT(getForward("h100", torch), 1.01 * getForward("h100", 1));
  EXPECT_EQ(getForward("a100-80g", torch), getForward("a100-80g", 1));
  EXPECT_EQ(findFramework("torchtitan")->hopperAttention, 1);
}

/// PyTorch's checkpoints stop at the last tensor that was saved, since 2.1.
/// DeepSpeed's own, and those of 2023, run the whole layer again.
TEST(Estimate, TorchRecomputesWhatWasSaved) {
  auto getPart = [](const char *name) {
    EstimateSetting setting;
    setting.configuration.recompute = Recompute::Full;
    setting.training.framework = *findFramework(name);
    const StageTime time = setting.run().stages[0];
    return time.recompute / time.forward;
  };
  for (const char *name : {"fsdp", "fsdp-compiled", "torchtitan"})
    EXPECT_LT(getPart(name), 0.75) << name;
  for (const char *name : {"fsdp-2023", "deepspeed", "megatron-core"})
    EXPECT_GT(getPart(name), 0.8) << name;
}

/// A program that adds to the sum of gradients in the matmul itself has no
/// kernel for it.
TEST(Estimate, FusedAccumulationSavesAKernel) {
  EstimateSetting setting;
  setting.training.framework.fusedAccumulation = true;
  Estimate fused = setting.run();
  setting.training.framework.fusedAccumulation = false;
  Estimate apart = setting.run();
  EXPECT_GT(apart.stages[0].backwardWeight, fused.stages[0].backwardWeight);
  EXPECT_EQ(apart.stages[0].forward, fused.stages[0].forward);
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
