//===- GPT2.cpp - GPT-2 ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Radford et al. 2019, in Hugging Face's form: weights are [in, out]
// ("Conv1D"), and c_attn holds query, key and value side by side. Letters of
// contractions: b batch, s sequence, h hidden, g head, r query head of g (one),
// d head size, f inner, v vocabulary.
//
//===----------------------------------------------------------------------===//

#include "ModelBuilder.h"

#include <cmath>

using namespace mlir;
using namespace plait;
using namespace plait::hf;

namespace {
/// Sizes in elements. `inner` is the MLP's, `std` that of initial weights.
struct GPT2 {
  int64_t vocab, positions, hidden, layers, heads, inner;
  double epsilon, std;
  double attentionDropout, embeddingDropout, residualDropout;
  bool tanh, tied;

  explicit GPT2(ConfigReader &config);

  /// Builds in the order of the forward pass, which is that of the locations,
  /// too.
  Value build(ModelBuilder &model) const;
  Value buildEmbedding(ModelBuilder &model) const;
  Value buildNorm(ModelBuilder &model, const std::string &path, Value x) const;
  Value buildAttention(ModelBuilder &model, const std::string &path,
                       Value x) const;
  Value buildMLP(ModelBuilder &model, const std::string &path, Value x) const;
  Value projectHeads(ModelBuilder &model, const std::string &path, Value x,
                     char part) const;
  Value project(ModelBuilder &model, const std::string &path, Value x,
                StringRef spec, Shape shape, Shape fileShape, Init init) const;

  Init normal() const { return {0.0, std}; }
  /// Weights that end in the residual stream, to which every block adds twice,
  /// start smaller.
  Init residual() const { return {0.0, std / std::sqrt(2.0 * layers)}; }
};
} // namespace

/// Fallbacks are those of Hugging Face's GPT2Config.
GPT2::GPT2(ConfigReader &config) {
  vocab = config.getSize("vocab_size");
  positions = config.getSize("n_positions");
  hidden = config.getSize("n_embd");
  layers = config.getSize("n_layer", std::nullopt, kMostLayers);
  heads = config.getSize("n_head");
  inner = config.getSize("n_inner", 4 * hidden);
  if (hidden % heads)
    config.fail("field \"n_embd\" is " + Twine(hidden) +
                ", which is not a multiple of \"n_head\", " + Twine(heads));
  // Both of the first names are GELU by tanh; "gelu" alone is the exact one.
  tanh = config.getChoice("activation_function",
                          {"gelu_new", "gelu_pytorch_tanh", "gelu"},
                          "gelu_new") != "gelu";
  epsilon = config.getPositive("layer_norm_epsilon", 1e-5);
  std = config.getNonNegative("initializer_range", 0.02);
  tied = config.getFlag("tie_word_embeddings", true);
  config.require("scale_attn_weights", "true");
  // These change the arithmetic of attention, and few models have them.
  config.require("scale_attn_by_inverse_layer_idx", "false");
  config.require("reorder_and_upcast_attn", "false");
  // What a saved config leaves out is Hugging Face's default, which is not 0.
  constexpr double usual = 0.1;
  attentionDropout = config.getDropout("attn_pdrop", usual);
  embeddingDropout = config.getDropout("embd_pdrop", usual);
  residualDropout = config.getDropout("resid_pdrop", usual);
  config.ignore({"n_ctx", "n_special", "predict_special_tokens", "summary_*"});
}

/// `shape` is what the contraction wants, `fileShape` the matrix of the file
/// with as many elements. The bias is as long as the matrix is wide.
Value GPT2::project(ModelBuilder &model, const std::string &path, Value x,
                    StringRef spec, Shape shape, Shape fileShape,
                    Init init) const {
  std::string name = path + ".weight";
  FileBox file = FileBox::whole(name, fileShape);
  Value weight = model.read(name, shape, file, init);
  Value bias = model.read(path + ".bias", {fileShape.back()}, kZeros);
  Value y = model.at(path).matmul(x, weight, spec);
  return model.addBias(path, y, bias);
}

/// The query ('q'), key ('k') or value ('v') heads of x, from the third of
/// c_attn that makes them.
Value GPT2::projectHeads(ModelBuilder &model, const std::string &path, Value x,
                         char part) const {
  // The columns of the third.
  int64_t column = StringRef("qkv").find(part) * hidden;
  Shape dims{heads, hidden / heads};
  // Queries have a dimension for the heads of a group, as Llama's have: of one.
  if (part == 'q')
    dims = {heads, 1, hidden / heads};
  Shape shape{hidden};
  shape.append(dims);

  std::string weightName = path + ".weight", biasName = path + ".bias";
  // One tensor of the file is three parameters, so that a split of heads over
  // ranks is a split of each of them.
  FileBox weightBox{
      weightName, {hidden, 3 * hidden}, {0, column}, {hidden, hidden}};
  FileBox biasBox{biasName, {3 * hidden}, {column}, {hidden}};
  Value weight = model.read((weightName + "." + Twine(part)).str(), shape,
                            weightBox, normal());
  Value bias =
      model.read((biasName + "." + Twine(part)).str(), dims, biasBox, kZeros);
  Value y = model.at(path).matmul(
      x, weight, part == 'q' ? "bsh,hgrd->bsgrd" : "bsh,hgd->bsgd");
  return model.addBias(path, y, bias);
}

/// The output projection reads heads and elements as they lie, so that nothing
/// is transposed.
Value GPT2::buildAttention(ModelBuilder &model, const std::string &path,
                           Value x) const {
  Value query = projectHeads(model, path + ".c_attn", x, 'q');
  Value key = projectHeads(model, path + ".c_attn", x, 'k');
  Value value = projectHeads(model, path + ".c_attn", x, 'v');
  Value y = model.at(path).attention(query, key, value,
                                     model.makeDropout(attentionDropout), {});
  y = project(model, path + ".c_proj", y, "bsgrd,grdh->bsh",
              {heads, 1, hidden / heads, hidden}, {hidden, hidden}, residual());
  return model.at(path + ".resid_dropout")
      .drop(y, model.makeDropout(residualDropout));
}

/// Four times as wide inside, unless the config says otherwise; the second
/// projection ends in the residual stream.
Value GPT2::buildMLP(ModelBuilder &model, const std::string &path,
                     Value x) const {
  Value y = project(model, path + ".c_fc", x, "bsh,hf->bsf", {hidden, inner},
                    {hidden, inner}, normal());
  LayerBuilder nn = model.at(path + ".act");
  y = nn.unary<nn::GeluOp>(y, tanh ? nn.builder.getUnitAttr() : UnitAttr());
  y = project(model, path + ".c_proj", y, "bsf,fh->bsh", {inner, hidden},
              {inner, hidden}, residual());
  return model.at(path + ".dropout")
      .drop(y, model.makeDropout(residualDropout));
}

/// Over the hidden dimension.
Value GPT2::buildNorm(ModelBuilder &model, const std::string &path,
                      Value x) const {
  Value weight = model.read(path + ".weight", {hidden}, kOnes);
  Value bias = model.read(path + ".bias", {hidden}, kZeros);
  return model.at(path).layerNorm(x, weight, bias, epsilon);
}

/// The sum of token and position embeddings.
Value GPT2::buildEmbedding(ModelBuilder &model) const {
  Value tokenTable =
      model.read("transformer.wte.weight", {vocab, hidden}, normal());
  Value tokens =
      model.at("transformer.wte").embedding(tokenTable, model.getTokens());
  Value positionTable =
      model.read("transformer.wpe.weight", {positions, hidden}, normal());
  LayerBuilder nn = model.at("transformer.wpe");
  // Positions have a batch dimension like the tokens, so that the gradient of
  // the table is a sum over the batch like any other.
  Value indices = nn.positions(model.getTokens());
  Value rows = nn.embedding(positionTable, indices);
  Value sum = nn.add(tokens, rows);
  return model.at("transformer.drop")
      .drop(sum, model.makeDropout(embeddingDropout));
}

/// Each block adds attention and MLP to the residual stream, whose norm is
/// taken before each of them.
Value GPT2::build(ModelBuilder &model) const {
  Value x = buildEmbedding(model);
  for (int64_t layer = 0; layer < layers; ++layer) {
    model.setLayer(layer);
    std::string path = "transformer.h." + std::to_string(layer);
    Value normal = buildNorm(model, path + ".ln_1", x);
    Value seen = buildAttention(model, path + ".attn", normal);
    x = model.at(path).add(x, seen);
    normal = buildNorm(model, path + ".ln_2", x);
    Value thought = buildMLP(model, path + ".mlp", normal);
    x = model.at(path).add(x, thought);
  }
  model.setLayer(std::nullopt);
  x = buildNorm(model, "transformer.ln_f", x);
  Value head = model.read(tied ? "transformer.wte.weight" : "lm_head.weight",
                          {vocab, hidden}, normal());
  return model.at("lm_head").matmul(x, head, "bsh,vh->bsv");
}

/// The returned function keeps a copy of the fields. A sequence that is longer
/// than the table of positions would read beyond it.
Model hf::readGPT2(ConfigReader &config, int64_t sequence) {
  GPT2 gpt2(config);
  checkSequence(config, "n_positions", gpt2.positions, sequence);
  return {gpt2.vocab, gpt2.layers,
          [gpt2](ModelBuilder &model) { return gpt2.build(model); }};
}
