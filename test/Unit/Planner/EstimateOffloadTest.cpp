//===- EstimateOffloadTest.cpp - Steps with tensors on hosts --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EstimateSetting.h"

using namespace plait;
using namespace plait::planner;

namespace {

/// State and masters: 12 bytes a parameter in bf16. They go and come at the
/// rate of the link to the host, at once, and nothing of the update takes as
/// long. Parameters of other sizes are waited for.
TEST(Estimate, WhatTheOptimizerKeepsCanBeOnTheHost) {
  EstimateSetting setting;
  setting.training.precision = Precision::BF16;
  Estimate before = setting.run();
  setting.configuration.offload = Offload::Optimizer;
  Estimate after = setting.run();
  const StageMemory &memory = after.memory[0];
  EXPECT_EQ(memory.optimizer, 0);
  EXPECT_DOUBLE_EQ(memory.offloaded[MemoryPlace::Host],
                   before.memory[0].optimizer);
  EXPECT_DOUBLE_EQ(memory.peak() + memory.offloaded[MemoryPlace::Host],
                   before.memory[0].peak());
  EXPECT_EQ(after.pipelineSeconds, before.pipelineSeconds);
  double least = memory.offloaded[MemoryPlace::Host] /
                 setting.cluster.device.places[MemoryPlace::Host].bandwidth;
  EXPECT_GT(after.optimizerSeconds, least);
  EXPECT_LT(after.optimizerSeconds, 2 * least);
  // Buckets hide each other, but for the last one on its way back.
  setting.configuration.mesh[Axis::DP] = 8;
  setting.configuration.zero = 1;
  double divided = setting.run().optimizerSeconds;
  EXPECT_GT(divided, least / 8);
  EXPECT_NEAR(divided, least / 8, 0.05 * least / 8);
}

/// But for what comes from other stages. Passes that compute longer than it
/// takes to copy are no longer; a slow link makes them so.
TEST(Estimate, WhatIsKeptForTheBackwardPassCanBeOnTheHost) {
  EstimateSetting setting;
  setting.configuration.mesh[Axis::PP] = 4;
  Estimate before = setting.run();
  setting.configuration.offload = Offload::Activations;
  setting.cluster.device.places[MemoryPlace::Host].bandwidth = 1e15;
  Estimate after = setting.run();
  EXPECT_LT(after.memory[1].activations, 0.1 * before.memory[1].activations);
  EXPECT_GT(after.memory[1].activations, 0);
  EXPECT_DOUBLE_EQ(after.memory[1].activations +
                       after.memory[1].offloaded[MemoryPlace::Host],
                   before.memory[1].activations);
  // Nothing hides the last copy.
  EXPECT_NEAR(after.pipelineSeconds, before.pipelineSeconds,
              1e-4 * before.pipelineSeconds);
  EXPECT_GT(after.pipelineSeconds, before.pipelineSeconds);
  setting.cluster.device.places[MemoryPlace::Host].bandwidth = 1e9;
  Estimate slow = setting.run();
  // Nothing of it hides what replicas exchange.
  EXPECT_GT(slow.stages[1].copiedForward, 0.9 * slow.stages[1].forward);
  EXPECT_GT(slow.stages[1].forward, 10 * before.stages[1].forward);
  EXPECT_NEAR(slow.stages[1].forward,
              slow.stages[1].backwardInput + slow.stages[1].backwardWeight,
              1e-9 * slow.stages[1].forward);
}

/// What gradients of weights read of those of inputs goes to the host and comes
/// back, as what the forward pass has left does.
TEST(Estimate, HalvesOfABackwardPassCopyTheirResiduals) {
  EstimateSetting setting;
  Configuration &c = setting.configuration;
  c.mesh[Axis::PP] = 4;
  c.schedule = "zb-h1";
  c.offload = Offload::Activations;
  setting.cluster.device.places[MemoryPlace::Host].bandwidth = 1e9;
  Work work = buildTransformerWork(setting.shape, 1, false);
  auto getInput = [&] {
    auto found = estimate(work, setting.cluster, setting.training, c);
    return found.ok() ? found->stages[1].backwardInput : 0;
  };
  Block &layer = work.blocks[1];
  EXPECT_GT(layer.halves.made.elements, 0);
  EXPECT_LT(layer.halves.made.elements, layer.halves.weights.elements);
  // More than the forward pass has left, which comes the other way meanwhile.
  layer.halves.made = layer.kept;
  layer.halves.made.elements *= 3;
  layer.halves.made.fourByte *= 3;
  double sent = getInput();
  layer.halves.made = {};
  // What comes from the stage before is not copied.
  EXPECT_GT(sent, 3 * getInput());
  EXPECT_NEAR(sent, 3 * getInput(), 0.1 * sent);
}

/// A backward pass reads what is kept here and there. Where much of it is read
/// by operations that follow each other, little is computed beside its copies,
/// though all of the pass takes longer than these.
TEST(Estimate, TensorsFromAHostAreWaitedForOneByOne) {
  EstimateSetting setting;
  Configuration &c = setting.configuration;
  c.offload = Offload::Activations;
  for (const char *schedule : {"1f1b", "zb-h1"}) {
    c.schedule = schedule;
    Work work = buildTransformerWork(setting.shape, 1, false);
    Block &layer = work.blocks[1];
    setting.cluster.device.places[MemoryPlace::Host].bandwidth = 1e15;
    auto run = [&] {
      auto found = estimate(work, setting.cluster, setting.training, c);
      EXPECT_TRUE(found.ok()) << found.status().message();
      return found.ok() ? found->stages[0] : StageTime();
    };
    StageTime free = run();
    auto isBackward = [](const Operation &op) {
      return op.pass == Pass::BackwardInput;
    };
    std::vector<Operation> &ops = layer.operations;
    auto first = std::find_if(ops.begin(), ops.end(), isBackward);
    auto second = std::find_if(first + 1, ops.end(), isBackward);
    ASSERT_NE(second, ops.end());
    // Copies take nearly as long as what a layer computes.
    double bytes = layer.kept.elements * 2 + layer.kept.fourByte * 4;
    bool splits = std::string(schedule) == "zb-h1";
    double copying = 0.9 *
                     (free.backwardInput + (splits ? 0 : free.backwardWeight)) /
                     double(work.layers());
    setting.cluster.device.places[MemoryPlace::Host].bandwidth =
        bytes / copying;
    layer.kept.values = 1;
    first->taken = first->takenApart = layer.kept;
    double once = run().fetchedInput;
    EXPECT_LT(once, copying);
    first->taken.elements /= 2, first->taken.fourByte /= 2;
    first->takenApart = second->taken = second->takenApart = first->taken;
    StageTime apart = run();
    EXPECT_GT(apart.fetchedInput,
              once + 0.05 * copying * double(work.layers() - 1));
    EXPECT_GE(apart.copiedInput, apart.fetchedInput);
    // What a first half leaves when it ends goes on behind it, half as long.
    Operation &last = *std::find_if(ops.rbegin(), ops.rend(), isBackward);
    last.leftApart = first->taken;
    double behind = run().copiedInput - apart.copiedInput;
    EXPECT_LE(behind, 0.51 * copying);
    EXPECT_GE(behind, splits ? 0.4 * copying : 0);
    last.leftApart = {};
    // A pass that is computed again has its input alone.
    c.recompute = Recompute::Full;
    EXPECT_EQ(run().fetchedInput, 0);
    c.recompute = Recompute::None;
  }
}

/// Copies go on while a pass waits for what ZeRO 3 gathers, which takes no less
/// for that.
TEST(Estimate, CopiesAreBesideWhatReplicasGather) {
  EstimateSetting setting;
  setting.configuration.mesh[Axis::DP] = 64;
  setting.configuration.zero = 3;
  setting.cluster.inter.bandwidth /= 30;
  Estimate before = setting.run();
  double m = double(setting.configuration.microbatches(setting.training));
  // Gradients have twice the bytes of what either pass gathers.
  double exposed = before.dataSeconds / m / 4;
  double forward = before.stages[0].forward;
  ASSERT_GT(exposed, forward);
  setting.configuration.offload = Offload::Activations;
  setting.cluster.device.places[MemoryPlace::Host].bandwidth =
      before.memory[0].activations / (forward + 0.8 * exposed);
  Estimate after = setting.run();
  EXPECT_NEAR(after.dataSeconds, before.dataSeconds, 1e-9 * before.dataSeconds);
  EXPECT_LT(after.pipelineSeconds - before.pipelineSeconds, 0.2 * m * exposed);
}

/// The search relies on it: a pass that waits for copies is longer, and would
/// else hide more of what replicas exchange.
TEST(Estimate, ReplicasDoNotExchangeBehindCopies) {
  for (const char *schedule : {"1f1b", "zb-h1"}) {
    EstimateSetting setting;
    setting.configuration.schedule = schedule;
    setting.configuration.mesh[Axis::PP] = 4;
    setting.configuration.mesh[Axis::DP] = 16;
    setting.cluster.inter.bandwidth /= 30;
    Estimate before = setting.run();
    setting.configuration.offload = Offload::Activations;
    setting.cluster.device.places[MemoryPlace::Host].bandwidth = 1e9;
    Estimate after = setting.run();
    EXPECT_GT(after.stages[0].copiedForward, before.stages[0].forward);
    EXPECT_GT(before.dataSeconds, 0);
    EXPECT_NEAR(after.dataSeconds, before.dataSeconds,
                1e-9 * before.dataSeconds);
  }
}

TEST(Estimate, CopiesToAHostNeedARate) {
  EstimateSetting setting;
  setting.cluster.device.places[MemoryPlace::Host].bandwidth = 0;
  EXPECT_EQ(setting.message(), "");
  setting.configuration.offload = Offload::Optimizer;
  EXPECT_EQ(setting.message(),
            "offload is optimizer, but the hardware file of " +
                setting.cluster.device.name + " has no hostBandwidth");
}

} // namespace
