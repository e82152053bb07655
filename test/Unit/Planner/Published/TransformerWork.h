//===- TransformerWork.h - Work of a GPT or Llama, closed form --*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What Megatron-style tensor parallelism leaves on one rank, written down by
// hand from Shoeybi et al. 2019 and Korthikanti et al. 2022. It stands beside
// the compiler's own extraction: the estimator is tested against publications
// without the compiler, and the extraction against this.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_PLANNER_TRANSFORMERWORK_H
#define PLAIT_TEST_UNIT_PLANNER_TRANSFORMERWORK_H

#include "plait/Planner/Work.h"

namespace plait::planner {

/// A mixture of experts in place of feed-forward networks, behind the first
/// `denseLayers`. Each token goes to `choices` of the experts, and to the
/// shared ones. Ranks send each choice its row and get one back (all-to-all),
/// and get `imbalance` times as many as if all experts were chosen equally
/// often.
struct ExpertShape {
  int64_t experts = 0, choices = 0, ffn = 0, shared = 0, denseLayers = 0;
  double imbalance = 1;
};

/// Queries, and keys with values, that come from vectors of these sizes
/// (DeepSeek-AI 2024, DeepSeek-V2); a part of `rotary` of each key is not
/// compressed.
struct LatentShape {
  int64_t query = 0, keyValue = 0, rotary = 0;
};

/// A decoder-only transformer. Defaults describe a GPT; `ffnMatrices` of 3 is a
/// gated feed-forward network (SwiGLU).
struct TransformerShape {
  int64_t layers = 1, hidden = 1, heads = 1;
  int64_t keyValueHeads = 0; // 0: as many as heads
  int64_t headSize = 0;      // 0: hidden / heads
  int64_t ffn = 0;           // 0: 4 * hidden
  int ffnMatrices = 2;
  int64_t vocabulary = 1, sequence = 1;
  /// Each rank's part of the vocabulary is padded to a multiple of this.
  int64_t vocabularyMultiple = 1;
  bool biases = true;
  /// Mean and variance with scale and shift, or the root of the mean square
  /// with scale.
  bool layerNorm = true;
  bool learnedPositions = true;
  bool rotary = false;
  /// Queries, keys and values, and the two halves of a gated network, are
  /// matmuls of their own.
  bool separate = false;
  bool tied = true;
  /// After the embedding, attention and the feed-forward network; its masks
  /// are kept, one byte an element.
  bool dropout = false;
  /// How the loss is computed from logits of 16 bit: in one kernel each way; as
  /// PyTorch does, a cast, a softmax and its gradient; or with a kernel for
  /// each step, as Megatron-LM's over a split vocabulary.
  enum class Loss : uint8_t { Fused, Softmax, Steps } loss = Loss::Fused;
  ExpertShape experts;
  LatentShape latent;
};

/// Sizes that `tensor` does not divide are rounded up: the most loaded rank's.
/// Experts are divided over `expertRanks`.
Work buildTransformerWork(const TransformerShape &shape, int tensor,
                          bool sequenceParallel, int expertRanks = 1);

} // namespace plait::planner

#endif // PLAIT_TEST_UNIT_PLANNER_TRANSFORMERWORK_H
