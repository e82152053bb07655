//===- RecipeTest.cpp - What recipes of Megatron-Core add -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PublishedRuns.h"

#include <gtest/gtest.h>

#include <string_view>

using namespace plait;
using namespace plait::planner;

namespace {

/// Qwen3 30B, with fewer layers.
TransformerShape makeMixture() {
  TransformerShape shape;
  shape.layers = 2;
  shape.hidden = 2048;
  shape.heads = 32;
  shape.keyValueHeads = 4;
  shape.headSize = 128;
  shape.ffn = 768;
  shape.ffnMatrices = 3;
  shape.vocabulary = 151936;
  shape.sequence = 4096;
  shape.biases = shape.layerNorm = shape.learnedPositions = shape.tied = false;
  shape.rotary = shape.normsHeads = true;
  shape.experts = {128, 8, 768, 0, 0};
  shape.recipe.isKnown = true;
  return shape;
}

/// DeepSeek-V3, with fewer layers.
TransformerShape makeLatent() {
  TransformerShape shape = makeMixture();
  shape.hidden = 7168;
  shape.heads = shape.keyValueHeads = 128;
  shape.ffn = 18432;
  shape.latent = {1536, 512, 64};
  shape.experts = {256, 8, 2048, 1, 1};
  shape.normsHeads = false;
  return shape;
}

Block getLayer(const TransformerShape &shape, int ranks) {
  return buildTransformerWork(shape, 1, false, ranks).blocks[3];
}

double countSent(const TransformerShape &shape, int ranks) {
  double sent = 0;
  for (const Operation &op : getLayer(shape, ranks).operations)
    if (op.kind == OperationKind::Collective && op.pass == Pass::Forward)
      sent += op.collectivePerSequence;
  return sent;
}

/// Elements of 2 bytes that kernels of the layer move.
double countMoved(const TransformerShape &shape, int ranks) {
  double moved = 0;
  for (const Operation &op : getLayer(shape, ranks).operations)
    moved += op.elementsPerSequence + 2 * op.fourBytePerSequence;
  return moved;
}

double countFlops(const TransformerShape &shape) {
  double flops = 0;
  for (const Operation &op : getLayer(shape, 8).operations)
    flops +=
        2.0 * double(op.batch) * double(op.m) * double(op.n) * double(op.k);
  return flops;
}

/// Two of four experts, two on each of two ranks: one draw in six has both on
/// the other rank, so that a row goes to 5/3 ranks on average, not 2.
TEST(Recipe, RowsGoOnceToEachRank) {
  TransformerShape shape = makeMixture();
  shape.experts = {4, 2, 768, 0, 0};
  double each = countSent(shape, 2);
  shape.recipe.sendsOnce = true;
  EXPECT_DOUBLE_EQ(countSent(shape, 2), each * 5 / 6);
  // A choice alone goes where it goes.
  shape.experts = {4, 1, 768, 0, 0};
  double once = countSent(shape, 2);
  shape.recipe.sendsOnce = false;
  EXPECT_DOUBLE_EQ(once, countSent(shape, 2));
}

/// Of four ranks on two nodes with an expert each: to the nodes of both
/// choices, which are one node in a third of all draws.
TEST(Recipe, RowsGoOnceToEachNode) {
  TransformerShape shape = makeMixture();
  shape.experts = {4, 2, 768, 0, 0};
  double each = countSent(shape, 4);
  shape.recipe.sendsOnce = true;
  EXPECT_DOUBLE_EQ(countSent(shape, 4), each);
  shape.recipe.nodeRanks = 2;
  EXPECT_DOUBLE_EQ(countSent(shape, 4), each * 5 / 6);
}

/// NCCL sends rows in the order of experts: they are read and written once more
/// on either side, in both passes.
TEST(Recipe, RowsAreSortedTwiceForNccl) {
  TransformerShape shape = makeMixture();
  double sorted = countMoved(shape, 8);
  shape.recipe.sendsOnce = true;
  double row = 4096.0 * 2048;
  // Its router has 14 kernels fewer, a third of which are counted: they move
  // an element of 4 bytes each.
  EXPECT_NEAR(sorted - countMoved(shape, 8), 2 * (8 + 1 + 2 * 8) * row, 100);
}

/// What linears multiply, but where a norm makes it, is read in 2 bytes and
/// written twice in one: the result of attention, rows of experts and their
/// activations; of gradients those of queries, keys and values as well.
TEST(Recipe, EightBitIsMadeOfSixteen) {
  TransformerShape shape = makeMixture();
  shape.recipe.sendsOnce = true;
  double without = countMoved(shape, 8);
  shape.recipe.eightBit = true;
  double rows = 8 * 4096.0;
  double forward = 4096.0 * 4096 + rows * (2048 + 768);
  double backward = 4096.0 * (2048 + 5120) + rows * (2048 + 2 * 768);
  EXPECT_NEAR(countMoved(shape, 8) - without, 2 * (forward + backward), 1000);
}

TEST(Recipe, LatentVectorsAreExpandedAgain) {
  TransformerShape shape = makeLatent();
  double without = countFlops(shape);
  shape.recipe.latentAgain = true;
  double up = 1536.0 * 128 * (128 + 64) + 512.0 * 2 * 128 * 128;
  EXPECT_DOUBLE_EQ(countFlops(shape) - without, 2 * 4096 * up);
}

/// Every other layer's attention computes a sixteenth of 4,096 keys.
TEST(Recipe, WindowsLimitKeys) {
  TransformerShape shape = makeMixture();
  shape.window = 128;
  Work work = buildTransformerWork(shape, 1, false, 8);
  auto getKeys = [&](size_t layer) {
    for (const Operation &op : work.blocks[work.order[layer]].operations)
      if (op.kind == OperationKind::Attention)
        return op.keys;
    return int64_t(0);
  };
  EXPECT_EQ(getKeys(1), 256);
  EXPECT_EQ(getKeys(2), 4096);
}

/// It is cut like a layer, and has a layer's parameters and a projection; the
/// tables are those of the model.
TEST(Recipe, FurtherTokensAreALayer) {
  TransformerShape shape = makeLatent();
  Work without = buildTransformerWork(shape, 1, false, 8);
  shape.furtherTokens = 1;
  Work work = buildTransformerWork(shape, 1, false, 8);
  EXPECT_EQ(work.layers(), without.layers() + 1);
  const Block &further = work.blocks[work.order[work.order.size() - 2]];
  auto count = [](const Block &block) {
    double elements = 0;
    for (const ParameterGroup &group : block.parameters)
      elements += group.elements;
    return elements;
  };
  EXPECT_DOUBLE_EQ(count(further) - count(work.blocks[3]), 2.0 * 7168 * 7168);
}

/// A profile of one step of Qwen3 30B on 16 H100 with EP 16 has 463,348 kernels
/// of 64 microbatches and 48 layers (NVIDIA-NeMo/Megatron-Bridge,
/// skills/nemo-mbridge-perf-moe-comm-overlap): 151 of a layer. What is not
/// counted here are copies and fills; what the host issues from C++ counts as a
/// third in the forward pass.
TEST(Recipe, KernelsAreNoMoreThanInAProfile) {
  TransformerShape shape = makeMixture();
  shape.recipe.sendsOnce = true;
  size_t kernels = getLayer(shape, 16).operations.size();
  EXPECT_LE(kernels, 151u);
  EXPECT_GE(kernels, 75u);
}

TEST(Recipe, GraphsRecordPartsOfALayer) {
  TransformerShape shape = makeMixture();
  Block layer = getLayer(shape, 8);
  Recipe recipe;
  for (bool forward : {true, false}) {
    recipe = {};
    EXPECT_EQ(getRecordedPart(layer, recipe, forward), 0);
    recipe.recordsAttention = true;
    double attention = getRecordedPart(layer, recipe, forward);
    recipe.recordsRouter = true;
    double both = getRecordedPart(layer, recipe, forward);
    EXPECT_GT(attention, 0.1);
    EXPECT_GT(both, attention);
    EXPECT_LT(both, 0.9);
    recipe.recordsAll = true;
    EXPECT_EQ(getRecordedPart(layer, recipe, forward), 1);
  }
}

} // namespace
