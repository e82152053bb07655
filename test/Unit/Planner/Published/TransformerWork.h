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
  /// Each has a bias, which is added times the weight of the choice.
  bool biases = false;
};

/// Queries, and keys with values, that come from vectors of these sizes
/// (DeepSeek-AI 2024, DeepSeek-V2); a part of `rotary` of each key is not
/// compressed.
struct LatentShape {
  int64_t query = 0, keyValue = 0, rotary = 0;
};

/// How a recipe of Megatron-Core runs a mixture of experts.
struct Recipe {
  /// Otherwise nothing of what follows is known, nor how many kernels run.
  bool isKnown = false;
  /// A library sends a row once to each rank that has experts of its choice,
  /// and so in the order in which they came (DeepEP, HybridEP); otherwise NCCL
  /// sends it once for each choice, in the order of experts.
  bool sendsOnce = false;
  /// Ranks of a node. Where experts are on several nodes, such a library sends
  /// a row once to each of these.
  int nodeRanks = 8;
  /// What linears multiply is made of 8 bit from 16 before.
  bool eightBit = false;
  /// Recorded in CUDA graphs, so that no host waits for Python: attention, and
  /// the router with what comes before rows are sent and shared experts.
  bool recordsAttention = false, recordsRouter = false;
  /// The whole step is.
  bool recordsAll = false;
  /// Computed again in the backward pass: activations of experts, norms, what
  /// latent vectors are expanded to, the networks of dense layers.
  bool activationsAgain = false, normsAgain = false, latentAgain = false,
       denseAgain = false;
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
  ExpertShape experts = {};
  LatentShape latent = {};
  Recipe recipe = {};
  /// Queries and keys are normed, head by head (Qwen3).
  bool normsHeads = false;
  /// Queries of every other layer see so many keys; 0: all before them.
  int64_t window = 0;
  /// Layers behind the others that predict further tokens, each with a
  /// projection and a loss of its own (DeepSeek-AI 2024, DeepSeek-V3).
  int64_t furtherTokens = 0;
};

/// Sizes that `tensor` does not divide are rounded up: the most loaded rank's.
/// Experts are divided over `expertRanks`.
Work buildTransformerWork(const TransformerShape &shape, int tensor,
                          bool sequenceParallel, int expertRanks = 1);

/// Returns the part of the kernels of a layer of experts, forward or backward,
/// that the recipe records.
double getRecordedPart(const Block &layer, const Recipe &recipe, bool forward);

} // namespace plait::planner

#endif // PLAIT_TEST_UNIT_PLANNER_TRANSFORMERWORK_H
