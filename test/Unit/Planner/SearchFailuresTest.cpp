//===- SearchFailuresTest.cpp - What does not fit, or was not picked ------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SearchSetting.h"

using namespace plait;
using namespace plait::planner;

namespace {

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

TEST(Search, SaysWhatIsShort) {
  Setting setting;
  setting.shape.layers = 96;
  setting.shape.hidden = 12288;
  setting.shape.heads = 96;
  std::string message = setting.message();
  EXPECT_TRUE(contains(message, "nothing fits into memory: ")) << message;
  EXPECT_TRUE(contains(message, "(optimizer ")) << message;
  EXPECT_TRUE(contains(message, " GB short; what fits: ")) << message;
  // What is advised is true, and one node fewer is too few.
  size_t at = message.find("`cluster` a100-80g:");
  ASSERT_NE(at, std::string::npos) << message;
  std::string advised = message.substr(at + 10);
  setting.cluster = *parseCluster(advised.substr(0, advised.find(' ')));
  EXPECT_EQ(setting.message(), "");
  --setting.cluster.nodes;
  EXPECT_NE(setting.message(), "");
}

/// More ranks of a processor share its memory; what nothing helps says so.
TEST(Search, AdvisesOnlyWhatHelps) {
  Setting setting;
  setting.cluster = *parseCluster("cpu:1");
  setting.shape.layers = 32;
  std::string message = setting.message();
  EXPECT_TRUE(contains(message, "GB short; no change of options or cluster was "
                                "found that fits"))
      << message;
}

TEST(Search, NamesTheOptionThatFits) {
  Setting setting;
  setting.shape.layers = 24;
  setting.pins = *parsePins("pp=1,tp=2,sp=off");
  setting.training.globalBatch = 32;
  // 5.1e9 parameters over two ranks: 16 bytes each but for ZeRO.
  std::string message = setting.message();
  EXPECT_TRUE(message.empty() || contains(message, "what fits: ")) << message;
  setting.pins = *parsePins("pp=1,tp=1");
  setting.shape.layers = 32;
  message = setting.message();
  EXPECT_TRUE(contains(message, "what fits: another `mesh` (")) << message;
}

TEST(Search, NamesDividedState) {
  // One layer of one head of 5.1e9 parameters: only the batch can be split.
  Setting setting;
  setting.shape.layers = setting.shape.heads = 1;
  setting.shape.hidden = 20480;
  setting.training.globalBatch = 8;
  setting.pins.zero = 0;
  setting.pins.microBatch = 1;
  setting.space.sequenceParallel = {false};
  std::string message = setting.message();
  EXPECT_TRUE(contains(message, "what fits: `zero` 1 (")) << message;
  setting.space.zero = {0, 1};
  message = setting.message();
  EXPECT_TRUE(contains(message, "what fits: `zero` 1 (")) << message;
}

TEST(Search, SaysWhatContradicts) {
  Setting setting;
  setting.pins.zero = 1;
  EXPECT_EQ(setting.message(),
            "zero 1 is not in the search space 'plainest', which has 0");
  setting.pins = *parsePins("schedule=zb-v");
  EXPECT_EQ(setting.message(), "schedule zb-v is not in the search space "
                               "'plainest', which has 1f1b, gpipe");
  setting.pins = *parsePins("pp=4,dp=4,tp=4");
  EXPECT_EQ(setting.message(), "the mesh has 64 ranks, the cluster 8 devices");
  setting.pins = Pins();
  setting.training.globalBatch = 7;
  setting.shape.layers = 1; // and stages for embedding and head: pp up to 3
  setting.shape.heads = 2;
  // GPUs may idle; as many ranks of a processor are wanted as are asked for.
  EXPECT_EQ(setting.message(), "");
  setting.cluster = *parseCluster("cpu:8");
  setting.shape.hidden = 256;
  EXPECT_EQ(setting.message(),
            "no mesh of 8 ranks divides a global batch of 7; possible: "
            "`global-batch` 6, `global-batch` 8, `cluster` cpu:1x7");
  setting.training.globalBatch = 8;
  setting.pins = *parsePins("micro-batch=3");
  EXPECT_EQ(setting.message(),
            "micro-batch 3 does not divide the sequences of a replica: a "
            "global batch of 8 on 8 ranks");
  setting.pins = *parsePins("tp=8");
  EXPECT_EQ(setting.message(), "the model cannot be split as asked: tp 8: tp "
                               "does not divide the 2 heads");
  setting.pins = *parsePins("tp=3");
  EXPECT_EQ(setting.message(), "tp 3 does not divide 8 ranks");
}

/// One replica sends nothing, and would round its gradient all the same.
TEST(Search, CompressesBetweenReplicas) {
  Setting setting;
  // Over so slow a network activations cost less than gradients, compressed or
  // not.
  setting.cluster.inter.bandwidth = 1e7;
  setting.pins = *parsePins("tp=4");
  EXPECT_EQ(setting.run().configuration.mesh[Axis::DP], 1);
  ASSERT_TRUE(
      parse("compress", "int8+feedback", setting.training.compress).ok());
  EXPECT_GT(setting.run().configuration.mesh[Axis::DP], 1);
  setting.pins = *parsePins("dp=1");
  EXPECT_EQ(setting.run().configuration.mesh[Axis::DP], 1);
  setting.pins = Pins();
  setting.cluster = *parseCluster("cpu:1");
  EXPECT_EQ(setting.message(),
            "no mesh of 1 ranks divides a global batch of 24 among two "
            "replicas, and one alone sends nothing that `compress` "
            "int8+feedback would make less");
}

//===----------------------------------------------------------------------===//
// Why not another
//===----------------------------------------------------------------------===//

/// Memory that the compiler has placed is the pick's, in either column.
TEST(Search, WhyNotKeepsPlacedMemory) {
  Setting setting;
  TransformerSource source(setting.shape);
  auto pick = search(source, setting.cluster, setting.training, setting.space);
  ASSERT_TRUE(pick.ok());
  pick->estimate.isPlaced = true;
  for (StageMemory &memory : pick->estimate.memory)
    memory.workspace += 1e9;
  auto ask = [&](const Pins &pins) {
    return *whyNot(*pick, source, setting.cluster, setting.training,
                   setting.space, pins);
  };
  auto getPeak = [](const WhyNot &answer) {
    return *std::ranges::find(answer.differences, "peak memory",
                              &Difference::part);
  };
  WhyNot other = ask(*parsePins("tp=8")), same = ask({});
  EXPECT_FALSE(other.other.estimate.isPlaced);
  EXPECT_EQ(getPeak(other).pick, pick->estimate.peakMemory());
  EXPECT_TRUE(same.other.estimate.isPlaced);
  for (const Difference &difference : same.differences)
    EXPECT_EQ(difference.pick, difference.other) << difference.part;
}

TEST(Search, SaysWhyNot) {
  Setting setting;
  TransformerSource source(setting.shape);
  auto pick = search(source, setting.cluster, setting.training, setting.space);
  ASSERT_TRUE(pick.ok());
  auto ask = [&](const char *pins) {
    return whyNot(*pick, source, setting.cluster, setting.training,
                  setting.space, *parsePins(pins));
  };
  auto other = ask("tp=8");
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(other->other.configuration.mesh[Axis::TP], 8);
  EXPECT_TRUE(contains(other->other.why, " % slower: ")) << other->other.why;
  EXPECT_TRUE(contains(other->other.why, "tp communication"))
      << other->other.why;
  const Difference &step = other->differences.front();
  EXPECT_EQ(step.part, "step");
  EXPECT_DOUBLE_EQ(step.pick, pick->estimate.iterationSeconds);
  double sum = 0;
  for (size_t i = 1; !other->differences[i].isBytes; ++i)
    sum += other->differences[i].other;
  EXPECT_NEAR(sum, step.other, 1e-9 * step.other);
  // What the compiler has placed is known of the pick alone: it differs from
  // itself in nothing.
  for (StageMemory &memory : pick->estimate.memory)
    memory.activations *= 0.9;
  auto itself = ask("tp=1");
  ASSERT_TRUE(itself.ok()) << itself.status().message();
  for (const Difference &difference : itself->differences)
    EXPECT_DOUBLE_EQ(difference.pick, difference.other) << difference.part;
  // Outside of the space, and impossible.
  EXPECT_TRUE(ask("zero=1").ok());
  auto never = ask("pp=16");
  ASSERT_FALSE(never.ok());
  EXPECT_TRUE(contains(never.status().message(), "no mesh of 8 ranks"))
      << never.status().message();
}

} // namespace
