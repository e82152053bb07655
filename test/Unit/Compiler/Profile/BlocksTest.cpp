//===- BlocksTest.cpp - Blocks that several shardings have ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Import/HuggingFace.h"
#include "plait/InitAll.h"
#include "plait/Planner/Profile.h"

#include "gtest/gtest.h"

using namespace mlir;
using namespace plait;

static std::string describe(const planner::Saved &saved) {
  return "(" + std::to_string(saved.elements) + " " +
         std::to_string(saved.fourByte) + " " + std::to_string(saved.values) +
         ")";
}

/// All figures of blocks, a line each operation and each parameter.
static std::string describe(const std::vector<planner::Block> &blocks) {
  std::string text;
  auto add = [&](auto... values) {
    ((text += std::to_string(values) + " "), ...);
  };
  auto addSaved = [&](auto... saved) { ((text += describe(saved)), ...); };
  for (const planner::Block &block : blocks) {
    text += block.name + " ";
    addSaved(block.kept, block.lastKept, block.input, block.workspace,
             block.output, block.halves.inputs, block.halves.weights,
             block.halves.made, block.halves.passed, block.halvesAgain.inputs,
             block.halvesAgain.weights);
    for (const planner::Operation &op : block.operations) {
      text += "\n" + op.name + " ";
      add(int(op.kind), int(op.pass), op.again, op.batch, op.m, op.n, op.k,
          int(op.scaled), op.rowAlignment, op.adds, op.joined, op.heads,
          op.queries, op.elementsPerSequence, op.fourBytePerSequence,
          op.elementsFixed, op.flopsPerSequence, int(op.collective),
          op.collectivePerSequence, op.collectiveFixed);
      addSaved(op.taken, op.takenApart, op.leftApart);
    }
    for (const planner::ParameterGroup &group : block.parameters) {
      text += "\n";
      add(group.elements, group.replicated, group.partial, group.tied,
          group.frozen, group.readBackward, group.readAgain, group.decays,
          group.rows, group.columns, group.factorRows, group.factorColumns,
          group.optimizer != nullptr);
    }
    text += "\n";
  }
  return text;
}

/// What was measured of a block for other sequences is that of a profile that
/// has measured nothing before.
TEST(ProfileBlocks, AreMeasuredOnce) {
  DialectRegistry registry;
  registerAllDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  auto import = [&](int64_t batch) {
    return importHuggingFace(context, PLAIT_MODELS "/gpt2", {batch, 64});
  };
  for (bool sequenceParallel : {false, true}) {
    auto ask = [&](std::vector<double> sequences) {
      auto profile = ModelProfile::create(context, import, Precision::BF16,
                                          *planner::parseCluster("h100:1x8"));
      std::vector<const planner::Work *> works;
      std::string reason;
      for (double each : sequences)
        works.push_back(profile->get({2, 1, sequenceParallel}, each, reason));
      EXPECT_TRUE(works.size() == 1 || works.front() != works.back());
      return std::pair(describe(works.back()->blocks),
                       describe(works.back()->cheapBlocks));
    };
    EXPECT_EQ(ask({128, 0.125}), ask({0.125}));
    EXPECT_EQ(ask({0.125, 128}), ask({128}));
  }
}

/// Several threads find what one does that is asked for one after the other,
/// refusals as well.
TEST(ProfileBlocks, AreTheSameFromSeveralThreads) {
  DialectRegistry registry;
  registerAllDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  const planner::WorkQuestion questions[] = {
      {{1, 1}, 1},       {{1, 2}, 1},       {{1, 4}, 1}, {{2, 1, false}, 8},
      {{2, 1, true}, 8}, {{2, 1, true}, 1}, {{5, 1}, 8}, {{4, 1}, 8}};
  auto ask = [&](bool isPrepared) {
    auto profile = ModelProfile::create(
        context,
        [&](int64_t batch) {
          return importHuggingFace(context, PLAIT_MODELS "/mixtral-8x7b",
                                   {batch, 64});
        },
        Precision::BF16, *planner::parseCluster("h100:1x8"));
    if (isPrepared)
      profile->prepare(questions);
    std::string answers;
    for (const auto &[degrees, sequences] : questions) {
      std::string reason;
      const planner::Work *work = profile->get(degrees, sequences, reason);
      answers +=
          work ? describe(work->blocks) + describe(work->cheapBlocks) : reason;
      answers += "\n";
    }
    return answers;
  };
  std::string prepared = ask(true);
  EXPECT_EQ(prepared, ask(false));
  EXPECT_NE(prepared.find("tp=5 does not divide"), std::string::npos);
}
