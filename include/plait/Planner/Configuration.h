//===- Configuration.h - A way to spread a training over ranks --*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_CONFIGURATION_H
#define PLAIT_PLANNER_CONFIGURATION_H

#include "plait/Planner/Framework.h"

#include <cstdint>
#include <string>
#include <vector>

namespace plait::planner {

/// Of activations and matrix products. 16-bit training keeps fp32 master
/// weights and moments.
enum class Precision : uint8_t { FP32, BF16, FP16 };

/// What the backward pass computes again: nothing, the inside of attention
/// (Korthikanti et al. 2022), or whole layers.
enum class Recompute : uint8_t { None, Selective, Full };

/// What is given: it says what is trained, not how.
struct Training {
  int64_t globalBatch = 1; // sequences of a step
  int64_t sequence = 1;    // tokens of a sequence
  Precision precision = Precision::BF16;
  /// Attention that never writes its scores to memory (Dao et al. 2022).
  bool flashAttention = true;
  bool dropout = false;
  /// Gradients are accumulated in 4 bytes whatever the precision.
  bool fp32Gradients = true;
  /// The program that runs it.
  Framework framework;
};

/// What is chosen.
struct Configuration {
  int pipeline = 1, data = 1, tensor = 1, context = 1;
  int chunks = 1; // virtual stages of a rank
  std::string schedule = "1f1b"; // a name of schedule::getGenerators()
  int64_t microBatch = 1;        // sequences, per data-parallel rank
  Recompute recompute = Recompute::None;
  int zero = 0; // ZeRO stage: 1 optimizer, 2 gradients, 3 parameters
  bool sequenceParallel = false;
  /// Layers of each virtual stage, in order of the forward pass; empty: cut by
  /// cost.
  std::vector<int> layers;

  int64_t ranks() const {
    return int64_t(pipeline) * data * tensor * context;
  }
  int64_t microbatches(const Training &training) const {
    return training.globalBatch / (microBatch * data);
  }
};

} // namespace plait::planner

#endif // PLAIT_PLANNER_CONFIGURATION_H
