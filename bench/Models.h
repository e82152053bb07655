//===- Models.h - Models to plan for ----------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_BENCH_MODELS_H
#define PLAIT_BENCH_MODELS_H

#include "TransformerSource.h"
#include "plait/Planner/Configuration.h"

#include <string>
#include <vector>

namespace plait::planner {

/// A model, the cluster it is planned for, and the sequences of a step.
struct Case {
  std::string name;
  TransformerShape shape;
  std::string cluster;
  int64_t globalBatch = 1;

  Training getTraining() const {
    Training training;
    training.globalBatch = globalBatch;
    training.sequence = shape.sequence;
    return training;
  }
};

inline TransformerShape makeGpt(int64_t layers, int64_t hidden, int64_t heads,
                                int64_t vocabulary, int64_t sequence) {
  TransformerShape shape;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = heads;
  shape.vocabulary = vocabulary;
  shape.sequence = sequence;
  return shape;
}

inline TransformerShape makeLlama(int64_t layers, int64_t hidden, int64_t heads,
                                  int64_t ffn) {
  TransformerShape shape = makeGpt(layers, hidden, heads, 128256, 8192);
  shape.keyValueHeads = 8;
  shape.ffn = ffn;
  shape.ffnMatrices = 3;
  shape.biases = shape.layerNorm = shape.learnedPositions = shape.tied = false;
  shape.rotary = true;
  return shape;
}

/// The smallest first.
inline std::vector<Case> getCases() {
  return {{"GPT-2 124M, 8 H100", makeGpt(12, 768, 12, 50257, 1024), "h100:1x8",
           512},
          {"Llama-3 8B, 64", makeLlama(32, 4096, 32, 14336), "h100:8x8", 512},
          {"Llama-3 70B, 1,024", makeLlama(80, 8192, 64, 28672), "h100:128x8",
           1024},
          {"Llama-3 405B, 16,384", makeLlama(126, 16384, 128, 53248),
           "h100:2048x8", 2048},
          {"GPT 1T, 3,072 A100", makeGpt(128, 25600, 160, 51200, 2048),
           "a100-80g:384x8", 3072}};
}

} // namespace plait::planner

#endif // PLAIT_BENCH_MODELS_H
