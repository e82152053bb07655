//===- MemoryTest.cpp - Predicted memory against published figures --------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Case.h"
#include "PublishedRuns.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::planner;

namespace {

//===----------------------------------------------------------------------===//
// Korthikanti et al. 2022
//===----------------------------------------------------------------------===//

/// A model of table 3 in the way the paper trains it.
Case makeKorthikanti(int64_t layers, int64_t hidden, int64_t heads,
                     int64_t microBatch, bool sequenceParallel,
                     Recompute recompute) {
  Case result;
  TransformerShape &shape = result.shape;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = heads;
  shape.vocabulary = 51200;
  shape.sequence = 2048;
  shape.dropout = true;
  Training &training = result.training;
  training.globalBatch = microBatch;
  training.sequence = 2048;
  training.precision = Precision::FP16;
  training.flashAttention = false;
  training.framework.keepsScores = true;
  training.dropout = true;
  Configuration &configuration = result.configuration;
  configuration.mesh[Axis::TP] = 8;
  configuration.microBatch = microBatch;
  configuration.sequenceParallel = sequenceParallel;
  configuration.recompute = recompute;
  return result;
}

/// Bytes that one layer keeps: of a model less those of one that is a layer
/// shallower. Without the statistics of norms and attention (4 bytes a token
/// each), which the paper neglects.
double getLayerBytes(Case shape) {
  double one = shape.run("a100-80g").memory[0].activations;
  ++shape.shape.layers;
  double two = shape.run("a100-80g").memory[0].activations;
  const Configuration &configuration = shape.configuration;
  double tokens = 2048.0 * configuration.microBatch,
         t = configuration.mesh[Axis::TP];
  double norms = 4 * tokens / (configuration.sequenceParallel ? t : 1);
  double attention = tokens * shape.shape.heads / t;
  bool isFull = configuration.recompute == Recompute::Full;
  return two - one - (isFull ? 0 : 4 * (norms + attention));
}

TEST(Memory, ActivationsOfALayerAreThoseOfKorthikantiTable2) {
  const int64_t h = 6144, a = 64, b = 4, s = 2048, t = 8;
  const double sbh = double(s) * b * h, scores = 5.0 * a * s / h;
  auto bytes = [&](bool sequenceParallel, Recompute recompute) {
    return getLayerBytes(
        makeKorthikanti(1, h, a, b, sequenceParallel, recompute));
  };
  // Exact: both sides are sums of products of small integers.
  EXPECT_DOUBLE_EQ(bytes(false, Recompute::None),
                   sbh * (10 + 24.0 / t + scores / t));
  EXPECT_DOUBLE_EQ(bytes(true, Recompute::None), sbh / t * (34 + scores));
  EXPECT_DOUBLE_EQ(bytes(false, Recompute::Selective), sbh * (10 + 24.0 / t));
  EXPECT_DOUBLE_EQ(bytes(true, Recompute::Selective), 34 * sbh / t);
  EXPECT_DOUBLE_EQ(bytes(false, Recompute::Full), 2 * sbh);
}

TEST(Memory, ActivationsWithoutTensorParallelismAreThoseOfTable2) {
  Case shape = makeKorthikanti(1, 1024, 16, 2, false, Recompute::None);
  shape.configuration.mesh[Axis::TP] = 1;
  double sbh = 2048.0 * 2 * 1024;
  EXPECT_DOUBLE_EQ(getLayerBytes(shape), sbh * (34 + 5.0 * 16 * 2048 / 1024));
}

/// Figure 7: percent of what tensor parallelism alone keeps. The figure counts
/// the whole model: embedding and head move it by up to 0.15.
TEST(Memory, ShareOfTechniquesIsThatOfFigure7) {
  struct Row {
    int64_t hidden, heads, microBatch;
    double sequence, selective, both, full;
  };
  const Row rows[] = {{6144, 64, 4, 66.84, 49.42, 16.18, 7.64},
                      {12288, 96, 1, 62.04, 56.53, 18.49, 8.71},
                      {20480, 128, 1, 58.31, 62.04, 20.27, 9.42},
                      {25600, 160, 1, 58.31, 62.04, 20.27, 9.42}};
  for (const Row &row : rows) {
    auto bytes = [&](bool sequenceParallel, Recompute recompute) {
      return getLayerBytes(makeKorthikanti(1, row.hidden, row.heads,
                                           row.microBatch, sequenceParallel,
                                           recompute));
    };
    double base = bytes(false, Recompute::None) / 100;
    constexpr double printed = 0.15;
    EXPECT_NEAR(bytes(true, Recompute::None) / base, row.sequence, printed);
    EXPECT_NEAR(bytes(false, Recompute::Selective) / base, row.selective,
                printed);
    EXPECT_NEAR(bytes(true, Recompute::Selective) / base, row.both, printed);
    EXPECT_NEAR(bytes(false, Recompute::Full) / base, row.full, printed);
  }
}

/// Figure 1 counts 18 bytes a parameter: 45.5625 GiB for the layers of 22B.
TEST(Memory, ResidentBytesOf22BAreThoseOfFigure1) {
  Case deep = makeKorthikanti(48, 6144, 64, 4, false, Recompute::None);
  Case none = makeKorthikanti(1, 6144, 64, 4, false, Recompute::None);
  double layers = (deep.run("a100-80g").memory[0].resident() -
                   none.run("a100-80g").memory[0].resident()) *
                  48 / 47;
  // The figure leaves biases and norms out: 13 h of 12 h^2 parameters, of
  // which 6 h are whole on every rank.
  double small = 48.0 * (7 * 6144 / 8 + 6 * 6144) * 18;
  EXPECT_NEAR(layers - small, 45.5625 * (1 << 30), 1e3);
}

//===----------------------------------------------------------------------===//
// Measured by the allocator
//===----------------------------------------------------------------------===//

TEST(Memory, AllocatorCountersOfPublishedRuns) {
  auto sources = readPublishedRuns(PLAIT_PUBLISHED_RUNS "/published_runs.json");
  ASSERT_TRUE(sources.ok()) << sources.status().message();
  int checked = 0;
  for (const PublishedSource &source : *sources) {
    Comparisons found = compare(source);
    if (found.bytes.empty())
      continue;
    ++checked;
    EXPECT_LT(meanAbsoluteError(found.bytes), 0.04) << source.name;
    for (const Comparison &row : found.bytes)
      EXPECT_LT(std::abs(row.error()), 0.08) << row.name;
  }
  EXPECT_EQ(checked, 3);
}

//===----------------------------------------------------------------------===//
// Schedules and ZeRO
//===----------------------------------------------------------------------===//

Case makePipeline(const char *schedule, int chunks) {
  Case example;
  example.shape.layers = 32;
  example.shape.hidden = 1024;
  example.shape.heads = 8;
  example.shape.vocabulary = 128;
  example.shape.sequence = example.training.sequence = 1024;
  example.shape.learnedPositions = false;
  example.training.globalBatch = 64;
  example.configuration.mesh[Axis::PP] = 4;
  example.configuration.chunks = chunks;
  example.configuration.schedule = schedule;
  example.configuration.layers.assign(size_t(4 * chunks), 8 / chunks);
  return example;
}

TEST(Memory, ActivationsFollowTheSchedule) {
  // Rank 1: neither embedding nor head.
  double one = 0;
  {
    Case example = makePipeline("1f1b", 1);
    example.training.globalBatch = 1;
    one = example.run("a100-80g").memory[1].activations;
  }
  auto held = [&](const char *schedule, int chunks) {
    return makePipeline(schedule, chunks)
               .run("a100-80g")
               .memory[1]
               .activations /
           one;
  };
  EXPECT_NEAR(held("gpipe", 1), 64, 1e-9);
  EXPECT_NEAR(held("1f1b", 1), 3, 1e-9);
  // 2 (p - r - 1) + (v - 1) p + 1 chunks of a half.
  EXPECT_NEAR(held("interleaved-1f1b", 2), (2 * 2 + 4 + 1) / 2.0, 1e-9);
  // After a split backward pass a part stays (Qi et al. 2024, table 1).
  EXPECT_GT(held("zb-h1", 1), 3);
  EXPECT_LE(held("zb-h1", 1), 4);
  EXPECT_GT(held("zb-h2", 1), held("zb-h1", 1));
}

/// Plans compute scores again of what fused attention keeps, too.
TEST(Memory, PlansKeepNoScores) {
  Case example = makePipeline("1f1b", 1);
  StageMemory fused = example.run("a100-80g").memory[0];
  example.training.flashAttention = false;
  StageMemory unfused = example.run("a100-80g").memory[0];
  EXPECT_DOUBLE_EQ(unfused.activations, fused.activations);
  EXPECT_GT(unfused.workspace, fused.workspace);
  example.training.framework.keepsScores = true;
  EXPECT_GT(example.run("a100-80g").memory[0].activations, fused.activations);
}

TEST(Memory, OptimizerKeepsItsState) {
  Case example = makePipeline("1f1b", 1);
  auto at = [&](double bytes) {
    example.training.stateBytes = bytes;
    return example.run("a100-80g").memory[1].optimizer;
  };
  // In bf16 there are master weights of 4 bytes beside it.
  EXPECT_DOUBLE_EQ(at(4) / at(0), 8.0 / 4);
  EXPECT_DOUBLE_EQ(at(8) / at(0), 12.0 / 4);
}

/// Two buffers of all weights where the step's activations were: of a model of
/// short sequences they need more.
TEST(Memory, SitesReceiveWhereActivationsWere) {
  Case own = makeKorthikanti(1, 12288, 96, 1, true, Recompute::Full);
  own.training.precision = Precision::FP32;
  auto find = [&](const char *outer) {
    EXPECT_TRUE(parse("outer", outer, own.training.outer).ok());
    return own.run("a100-80g").memory[0];
  };
  StageMemory mean = find("average:1+sites:2"),
              gossip = find("gossip:ring+sites:2");
  double weights = mean.parameters;
  double room = mean.activations + mean.workspace;
  EXPECT_NEAR(gossip.peak(), mean.peak() + std::max(0.0, 2 * weights - room),
              1);
  EXPECT_GT(2 * weights, room);
  EXPECT_NEAR(find("median:1+sites:2").peak(), gossip.peak(), 1);
  // Enough was there.
  own = makeKorthikanti(1, 12288, 96, 16, false, Recompute::None);
  own.training.precision = Precision::FP32;
  EXPECT_NEAR(find("gossip:ring+sites:2").peak(),
              find("average:1+sites:2").peak(), 1);
}

/// Of the error of sums each of four replicas has a quarter.
TEST(Memory, ReplicasDivideTheErrorOfSums) {
  Case example = makePipeline("1f1b", 1);
  example.configuration.mesh[Axis::DP] = 4;
  auto find = [&](const char *text) {
    EXPECT_TRUE(parse("compress", text, example.training.compress).ok());
    return example.run("a100-80g").memory[1];
  };
  StageMemory one = find("int8+feedback"), both = find("int8+feedback+both");
  double elements = one.parameters / 2; // bf16
  EXPECT_DOUBLE_EQ(both.optimizer, one.optimizer + elements * 4 / 4);
  EXPECT_DOUBLE_EQ(find("int8+both").optimizer, find("int8").optimizer);
}

/// Where replicas alone have parts of sums, what they feed back holds
/// gradients.
TEST(Memory, ErrorsHoldGradients) {
  Case example = makePipeline("1f1b", 1);
  ASSERT_TRUE(
      parse("compress", "int8+feedback", example.training.compress).ok());
  auto at = [&](int zero, int replicas, int context) {
    example.configuration.zero = zero;
    example.configuration.mesh[Axis::DP] = replicas;
    example.configuration.mesh[Axis::CP] = context;
    return example.run("a100-80g").memory[1];
  };
  double whole = at(0, 4, 1).gradients;
  EXPECT_DOUBLE_EQ(at(1, 4, 1).gradients, whole * (1 + 1.0 / 4));
  EXPECT_DOUBLE_EQ(at(2, 4, 1).gradients, whole / 4);
  EXPECT_DOUBLE_EQ(at(2, 4, 1).optimizer, at(1, 4, 1).optimizer);
  EXPECT_DOUBLE_EQ(at(2, 2, 2).gradients, at(1, 2, 2).gradients);
  EXPECT_DOUBLE_EQ(at(2, 1, 1).gradients, whole);
}

TEST(Memory, ZeroDividesWhatItSays) {
  Case example = makePipeline("1f1b", 1);
  example.configuration.mesh[Axis::DP] = 4;
  auto at = [&](int zero) {
    example.configuration.zero = zero;
    return example.run("a100-80g").memory[1];
  };
  EXPECT_DOUBLE_EQ(at(1).optimizer, at(0).optimizer / 4);
  // Beside the sums of its own a rank has its part of all ranks' sums.
  EXPECT_DOUBLE_EQ(at(1).gradients, at(0).gradients * (1 + 1.0 / 4));
  EXPECT_DOUBLE_EQ(at(2).gradients, at(0).gradients / 4);
  EXPECT_DOUBLE_EQ(at(2).parameters, at(0).parameters);
  EXPECT_DOUBLE_EQ(at(3).parameters, at(0).parameters / 4);
  EXPECT_GT(at(3).workspace, at(2).workspace); // gathered blocks
  // 2 + 4 + 12 bytes a parameter.
  EXPECT_DOUBLE_EQ(at(0).resident(), 9 * at(0).parameters);
  example.training.framework.separateReduction = false;
  EXPECT_DOUBLE_EQ(at(1).gradients, at(0).gradients);
}

} // namespace
