//===- ModelBuilder.h - The module of a model, piece by piece ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the model families have in common. Each family is one file: it reads its
// config and then says, with these pieces, what the forward pass is.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_IMPORT_HUGGINGFACE_MODELBUILDER_H
#define PLAIT_LIB_IMPORT_HUGGINGFACE_MODELBUILDER_H

#include "ConfigReader.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"
#include "plait/Import/HuggingFace.h"

#include <cmath>
#include <functional>
#include <map>

namespace plait::hf {

using Shape = llvm::SmallVector<int64_t>;

/// The place of a parameter in the weight files: a box of the tensor `name`.
struct FileBox {
  std::string name;
  Shape shape, begin, box;
  /// The shape that files have, where `shape` has a dimension of it as several;
  /// empty: `shape`.
  Shape saved = {};

  /// All of a tensor.
  static FileBox whole(std::string name, Shape shape);
  /// One of `count` parts of a tensor whose last dimension has the elements of
  /// all parts in turn: the parts are `shape`.
  static FileBox interleaved(std::string name, Shape shape, int64_t part,
                             int64_t count);
};

/// A normal distribution; with `std` 0 a constant.
struct Init {
  double mean, std;
};
inline constexpr Init kZeros{0.0, 0.0}, kOnes{1.0, 0.0};

/// More layers than this are a typing error.
inline constexpr int64_t kMostLayers = 10000;

/// The operands of an op with dropout: all, or nothing where nothing is
/// dropped.
struct Dropout {
  mlir::Value keys;
  mlir::FloatAttr probability;
  mlir::IntegerAttr site;
};

/// Says what becomes of the product of a query and a key.
struct Scores {
  /// Nothing: 1 / sqrt(head size).
  std::optional<double> scale = std::nullopt;
  /// The keys that a query sees at most, itself included; 0: all before it.
  int64_t window = 0;
  /// Scores x go through cap * tanh(x / cap); 0: they do not.
  double cap = 0.0;
  /// Scores of no key, [groups, heads of a group]; may be null.
  mlir::Value sinks = {};
};

/// How experts are chosen, as nn.route has it.
struct Routing {
  int64_t choices = 0; // of a token
  /// Weights of a token's experts are divided by their sum.
  bool normalized = false;
  nn::Scores scores = nn::Scores::Softmax;
  double scaled = 1.0;
  int64_t kept = 1, groups = 1;
};

/// The experts of each token, and what they count.
struct Route {
  mlir::Value weights, ids;
};

/// nn ops whose result types follow from their operands.
class LayerBuilder : public nn::NNBuilder {
public:
  using NNBuilder::NNBuilder;

  mlir::Value embedding(mlir::Value table, mlir::Value ids);
  /// The position of every token in its sequence.
  mlir::Value positions(mlir::Value tokens);
  mlir::Value layerNorm(mlir::Value x, mlir::Value weight, mlir::Value bias,
                        double epsilon);
  /// The same without weight and bias.
  mlir::Value layerNorm(mlir::Value x, double epsilon);
  mlir::Value rmsNorm(mlir::Value x, mlir::Value weight, double epsilon);
  /// Causal attention of queries [batch, sequence, groups, heads of a group,
  /// head size].
  mlir::Value attention(mlir::Value query, mlir::Value key, mlir::Value value,
                        const Dropout &dropout, const Scores &scores);
  /// The experts with the highest scores; `bias`, which may be null, is added
  /// to what they are chosen by.
  Route route(mlir::Value logits, mlir::Value bias, const Routing &routing);
  /// A matrix [places, count] with a 1 in each row, in the column that `places`
  /// says; nowhere for -1.
  mlir::Value selection(llvm::ArrayRef<int64_t> places, int64_t count);
  /// Multiplies each row by the matrix of its expert; `spec` is that of
  /// nn.grouped_matmul.
  mlir::Value groupedMatmul(mlir::Value rows, mlir::Value matrices,
                            mlir::Value ids, llvm::StringRef spec);
  /// `rows` [batch, sequence, choice, width], each times its weight.
  mlir::Value weigh(mlir::Value rows, mlir::Value weights);
  /// `x` after the dropout, if there is one.
  mlir::Value drop(mlir::Value x, const Dropout &dropout);
};

/// Gives the ops of a repeated block their `nn.layer`.
class LayerListener : public mlir::OpBuilder::Listener {
public:
  void notifyOperationInserted(mlir::Operation *op,
                               mlir::OpBuilder::InsertPoint) override;
  std::optional<int64_t> layer;
};

/// Owns the module while it is built. Not copyable: the builder points to the
/// listener.
class ModelBuilder {
public:
  ModelBuilder(mlir::MLIRContext &context, const ImportOptions &options);
  ModelBuilder(const ModelBuilder &) = delete;
  ModelBuilder &operator=(const ModelBuilder &) = delete;

  mlir::Value getTokens() { return loss.getArgument(0); }
  int64_t getBatch() const { return options.batch; }
  int64_t getSequence() const { return options.sequence; }

  /// Lets ops belong to the block, or to none, from here on.
  void setLayer(std::optional<int64_t> layer) { listener.layer = layer; }

  /// Creates ops whose location is the module of this path, as in
  /// "transformer.h.0.attn.c_attn".
  LayerBuilder at(const llvm::Twine &path);

  /// The value of a parameter; the first read declares it. Decay applies to
  /// parameters whose tensors in files have two dimensions or more.
  mlir::Value read(const llvm::Twine &symbol, llvm::ArrayRef<int64_t> shape,
                   const FileBox &file, Init init);
  /// The same for a tensor that is used as it is in the file.
  mlir::Value read(const llvm::Twine &symbol, const Shape &shape, Init init);
  /// The same for one that starts as zeros and that no optimizer updates.
  mlir::Value readFrozen(const llvm::Twine &symbol, const Shape &shape);

  /// A dropout of the model, which are numbered in the order of these calls.
  /// The first one makes the function take keys.
  Dropout makeDropout(double probability);

  /// x + bias, whose dimensions are the last of x.
  mlir::Value addBias(const llvm::Twine &path, mlir::Value x, mlir::Value bias);

  /// The shapes that files have of tensors, by name, where parameters have them
  /// with a dimension more.
  const std::map<std::string, Shape> &getSavedShapes() const { return saved; }

  /// Ends the function with the loss of these logits [batch, sequence, vocab],
  /// and hands over the module.
  mlir::OwningOpRef<mlir::ModuleOp> finish(mlir::Value logits);

private:
  ImportOptions options;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  LayerListener listener;
  mlir::OpBuilder builder; // in the function
  mlir::func::FuncOp loss;
  llvm::DenseSet<mlir::Attribute> declared; // names of parameters
  std::map<std::string, Shape> saved;
  int64_t dropouts = 0;
};

/// The model that a family makes of a config. After a failure of the reader
/// `build` is not called.
struct Model {
  int64_t vocab, layers;
  /// The forward pass; returns the logits.
  std::function<mlir::Value(ModelBuilder &)> build;
  /// Says for a warning what of the config is left out; empty: nothing.
  std::string leftOut = {};
};

/// Read every field of their config; `sequence` is checked against the longest
/// that the model has positions for.
Model readGPT2(ConfigReader &config, int64_t sequence);
Model readGPTNeoX(ConfigReader &config, int64_t sequence);
Model readCohere(ConfigReader &config, int64_t sequence);
Model readGlm(ConfigReader &config, int64_t sequence);
Model readGlm4(ConfigReader &config, int64_t sequence);
Model readPhi(ConfigReader &config, int64_t sequence);
Model readStableLM(ConfigReader &config, int64_t sequence);
Model readStarcoder2(ConfigReader &config, int64_t sequence);
Model readLlama(ConfigReader &config, int64_t sequence);
Model readGemma(ConfigReader &config, int64_t sequence);
Model readGemma2(ConfigReader &config, int64_t sequence);
Model readGemma3(ConfigReader &config, int64_t sequence);
Model readGranite(ConfigReader &config, int64_t sequence);
Model readMistral(ConfigReader &config, int64_t sequence);
Model readQwen2(ConfigReader &config, int64_t sequence);
Model readQwen3(ConfigReader &config, int64_t sequence);
Model readMixtral(ConfigReader &config, int64_t sequence);
Model readQwen3Experts(ConfigReader &config, int64_t sequence);
Model readOlmo(ConfigReader &config, int64_t sequence);
Model readOlmo2(ConfigReader &config, int64_t sequence);
Model readOlmo3(ConfigReader &config, int64_t sequence);
Model readOlmoe(ConfigReader &config, int64_t sequence);
Model readPhi3(ConfigReader &config, int64_t sequence);
Model readSmolLM3(ConfigReader &config, int64_t sequence);
Model readDeepseekV2(ConfigReader &config, int64_t sequence);
Model readQwen2Experts(ConfigReader &config, int64_t sequence);
Model readDeepseekV3(ConfigReader &config, int64_t sequence);
Model readGptOss(ConfigReader &config, int64_t sequence);

/// Fails unless `sequence` fits into the positions that `field` gives.
void checkSequence(ConfigReader &config, llvm::StringRef field,
                   int64_t positions, int64_t sequence);

} // namespace plait::hf

#endif // PLAIT_LIB_IMPORT_HUGGINGFACE_MODELBUILDER_H
