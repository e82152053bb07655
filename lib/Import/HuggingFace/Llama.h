//===- Llama.h - Llama's forward pass, and what else has it ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Llama (Touvron et al. 2023) and the families that differ from it in a few
// places. Each family reads its config into these fields (LlamaFamilies.cpp);
// the forward pass (Llama.cpp) asks for fields only, never for a family.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_IMPORT_HUGGINGFACE_LLAMA_H
#define PLAIT_LIB_IMPORT_HUGGINGFACE_LLAMA_H

#include "ModelBuilder.h"

namespace plait::hf {

/// The field rope_scaling of type "llama3".
struct RopeScaling {
  double factor, low, high;
  int64_t original;
};

/// The field rope_scaling of type "yarn", as `#nn.yarn` has it, and by how much
/// DeepSeek's scores are multiplied with it, too.
struct Yarn {
  double factor, first, last, amplitude, scores;
};

/// How positions turn heads.
struct Rope {
  double theta;
  /// The part of each head that turns.
  double turned = 1.0;
  std::optional<RopeScaling> scaling = std::nullopt;
  std::optional<Yarn> yarn = std::nullopt;
  /// Nothing: the same turns in sequences of any length.
  std::optional<int64_t> mostPositions = std::nullopt;
};

/// Tells the attention of a layer from that of others.
struct LayerKind {
  /// Nothing: positions turn no heads (SmolLM3).
  std::optional<Rope> rope;
  /// The keys that a query sees at most, itself included; 0: all before it.
  int64_t window = 0;
};

/// The norms of a layer by their names in files, in front of attention and MLP,
/// and behind them before the sum with their input (OLMo 2); empty: none there.
/// An MLP that reads what attention does, and has no norm of its own, reads the
/// normed input of attention (Phi).
struct Norms {
  llvm::StringRef beforeAttention = "input_layernorm", behindAttention = {},
                  beforeMLP = "post_attention_layernorm", behindMLP = {};
};

/// Says what a norm does to a row: divide it by its root mean square, or take
/// its mean off before, with weight and bias behind, a weight, or neither.
enum class NormKind { Rms, Layer, LayerWithoutBias, LayerAlone };

/// Functions of MLPs; GELU is exact or by tanh.
enum class Activation { Silu, Gelu, GeluTanh };

/// Modules of a file, where they are not called as Llama's are.
struct Names {
  llvm::StringRef model = "model", table = "embed_tokens", norm = "norm",
                  head = "lm_head", attention = "self_attn", out = "o_proj",
                  down = "down_proj";
  /// The first matrix of an MLP that nothing opens; empty: gate and up.
  llvm::StringRef first = {};
};

/// How files have queries, keys and values: a tensor each, the rows of all
/// three one after another in one tensor (Phi-3), or those of each head
/// together (GPT-NeoX).
enum class Heads { Apart, Merged, ByHead };

/// Which elements of a head turn, and where files have them.
struct Turn {
  /// Elements of a head that do not turn, and that do.
  int64_t still = 0, rotated = 0;
  /// Those that turn are in front of the others.
  bool leads = false;
  /// Neighbours turn together in the file's order, and not halves.
  bool interleaved = false;
};

/// How experts of GPT-OSS open and bound what they make.
struct Clamp {
  double gain, limit;
};

/// A mixture of experts in place of the MLP.
struct Experts {
  int64_t count = 0, inner = 0;
  Routing routing = {};
  /// Names of the block in a layer, and of the three matrices of an expert.
  llvm::StringRef block = {}, gate = {}, up = {}, down = {};
  /// Experts are chosen with a bias that the file has.
  bool biased = false;
  /// The width of the MLP that all tokens go through beside; 0: none.
  int64_t shared = 0;
  /// The name of that MLP, and whether a sigmoid of a product with each token
  /// opens it.
  llvm::StringRef sharedBlock = "shared_experts";
  bool opensShared = false;
  /// Layers in front that have an MLP and no experts.
  int64_t dense = 0;
  /// Router and experts have biases, and files have the matrices of all experts
  /// as one tensor each, gate and up in turn (GPT-OSS).
  std::optional<Clamp> clamp = std::nullopt;
};

/// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2").
struct Latent {
  std::optional<int64_t> queryRank; // none: queries come of the input itself
  int64_t keyRank, value;           // elements of a head's value
};

struct Llama {
  int64_t vocab, hidden, layers, heads, groups, size, inner, positions;
  double epsilon, std;
  bool tied;
  llvm::SmallVector<LayerKind> kinds; // of each layer

  /// Whether there is a bias of the projections before attention, the one
  /// behind it, the MLP's, and that of logits.
  bool headBias = false, outBias = false, mlpBias = false, logitBias = false;
  /// An RMS norm of each query and key head before its rotation (Qwen3).
  bool headNorms = false;
  /// The same of all query heads together, and of all key heads (OLMo 2).
  bool jointNorms = false;
  /// The end of a module's name behind "q" and "k": a norm that takes the mean
  /// of each head off, and has weights for each (Command R+, Stable LM 2);
  /// empty: there is none. A `*` counts heads.
  llvm::StringRef ownHeadNorms = {};
  Names names = {};
  Norms norms = {};
  NormKind normKind = NormKind::Rms;
  /// A norm's weights are what its factors have more than 1 (Gemma).
  bool normsFromOne = false;
  /// The MLP reads what attention reads, and both are added to it (GPT-NeoX).
  bool parallel = false;
  /// Opens an MLP, or is between the two matrices of one without a gate.
  Activation activation = Activation::Silu;
  /// Each query head has a score beside those of keys (GPT-OSS).
  bool sinks = false;
  Heads fileHeads = Heads::Apart;
  /// Gate and up are one tensor of the file (Phi-3).
  bool mergedGate = false;
  /// Nothing: all of each head turns, by halves.
  std::optional<Turn> turn;
  std::optional<Experts> experts;
  std::optional<Latent> latent;
  /// Dropout of the softmax, of what attention and MLP add to their input, and
  /// of embeddings.
  double attentionDropout = 0.0, residualDropout = 0.0, embeddingDropout = 0.0;
  /// Multiply embeddings, what attention and MLP add to their input, and
  /// logits.
  double embeddingFactor = 1.0, residualFactor = 1.0, logitFactor = 1.0;
  /// The scale of scores; nothing: 1 / sqrt(head size).
  std::optional<double> scoreFactor;
  /// Scores and logits x go through cap * tanh(x / cap); 0: they do not.
  double scoreCap = 0.0, logitCap = 0.0;

  mlir::Value build(ModelBuilder &model) const;

private:
  /// A weight [product of out, product of in] of the file, or a part of it that
  /// is called `part`: the file's rows are `blocks` blocks of `rows`, and the
  /// part has equally many of each, from `first` on.
  struct Weight {
    Shape out, in;
    bool bias = false;
    std::string part = "";
    int64_t first = 0, rows = 0, blocks = 1;
  };

  mlir::Value buildNorm(ModelBuilder &model, const std::string &path,
                        mlir::Value x, int64_t width) const;
  mlir::Value buildJointNorm(ModelBuilder &model, const std::string &path,
                             mlir::Value x) const;
  mlir::Value buildOwnHeadNorm(ModelBuilder &model, const std::string &path,
                               mlir::Value x) const;
  mlir::Value buildHeads(ModelBuilder &model, const std::string &path,
                         mlir::Value x, char which,
                         const LayerKind &kind) const;
  mlir::Value buildAttention(ModelBuilder &model, const std::string &path,
                             mlir::Value x, const LayerKind &kind) const;
  mlir::Value buildLatentAttention(ModelBuilder &model, const std::string &path,
                                   mlir::Value x, const LayerKind &kind) const;
  mlir::Value buildLatentQuery(ModelBuilder &model, const std::string &path,
                               mlir::Value x, const LayerKind &kind) const;
  Shape findPlaces(bool still, bool rotated) const;
  mlir::Value arrange(ModelBuilder &model, const std::string &path,
                      mlir::Value x, llvm::ArrayRef<int64_t> places) const;
  mlir::Value activate(LayerBuilder nn, mlir::Value x) const;
  mlir::Value buildMLP(ModelBuilder &model, const std::string &path,
                       mlir::Value x, int64_t width) const;
  mlir::Value buildExperts(ModelBuilder &model, const std::string &path,
                           mlir::Value x) const;
  mlir::Value buildSharedExpert(ModelBuilder &model, const std::string &path,
                                mlir::Value x) const;
  mlir::Value buildClampedExperts(ModelBuilder &model, const std::string &path,
                                  mlir::Value x) const;
  mlir::Value finishPart(ModelBuilder &model, const std::string &path,
                         mlir::Value y) const;
  FileBox findRows(const std::string &name, const Weight &weight,
                   llvm::ArrayRef<int64_t> columns) const;
  mlir::Value project(ModelBuilder &model, const std::string &path,
                      mlir::Value x, llvm::StringRef spec,
                      const Weight &weight) const;
  mlir::Value turnPairs(ModelBuilder &model, const std::string &path,
                        mlir::Value x, const LayerKind &kind) const;
  mlir::Value rotate(ModelBuilder &model, const std::string &path,
                     mlir::Value x, const LayerKind &kind) const;
  /// Whether biases wait for the sum of attention and MLP, which ranks then
  /// combine once. Dropout and norms would be in between.
  bool addsBiasesLast() const {
    return parallel && residualDropout == 0.0 &&
           norms.behindAttention.empty() && norms.behindMLP.empty();
  }
  mlir::Value addLastBiases(ModelBuilder &model, const std::string &path,
                            mlir::Value y) const;
  mlir::Value buildLayer(ModelBuilder &model, int64_t layer,
                         mlir::Value x) const;
  mlir::Value readTable(ModelBuilder &model) const;
  mlir::Value buildLogits(ModelBuilder &model, mlir::Value x) const;

  Init normal() const { return {0.0, std}; }
};

} // namespace plait::hf

#endif // PLAIT_LIB_IMPORT_HUGGINGFACE_LLAMA_H
