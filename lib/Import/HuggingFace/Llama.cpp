//===- Llama.cpp - Llama, versions 1 to 3 ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Touvron et al. 2023; weights are [out, in]. Letters of contractions: b batch,
// s sequence, h hidden, g key/value head, r query head of g, d head size,
// f inner, v vocabulary.
//
//===----------------------------------------------------------------------===//

#include "ModelBuilder.h"

using namespace mlir;
using namespace plait;
using namespace plait::hf;

namespace {
/// The field rope_scaling of type "llama3".
struct Scaling {
  double factor, low, high;
  int64_t original;
};

struct Llama {
  int64_t vocab, hidden, layers, heads, groups, size, inner, positions;
  double epsilon, std, theta, dropout;
  bool tied, attentionBias, mlpBias;
  std::optional<Scaling> scaling;

  explicit Llama(ConfigReader &config);
  void readHeads(ConfigReader &config);
  void readRope(ConfigReader &config);

  Value build(ModelBuilder &model) const;
  Value buildNorm(ModelBuilder &model, const std::string &path, Value x) const;
  Value buildAttention(ModelBuilder &model, const std::string &path,
                       Value x) const;
  Value buildMLP(ModelBuilder &model, const std::string &path, Value x) const;
  Value project(ModelBuilder &model, const std::string &path, Value x,
                StringRef spec, Shape out, Shape in, bool bias) const;
  Value rotate(ModelBuilder &model, const std::string &path, Value x) const;

  Init normal() const { return {0.0, std}; }
};
} // namespace

//===----------------------------------------------------------------------===//
// Config
//===----------------------------------------------------------------------===//

Llama::Llama(ConfigReader &config) {
  vocab = config.getSize("vocab_size");
  hidden = config.getSize("hidden_size");
  layers = config.getSize("num_hidden_layers", std::nullopt, kMostLayers);
  inner = config.getSize("intermediate_size");
  positions = config.getSize("max_position_embeddings", 2048);
  readHeads(config);
  readRope(config);
  config.getChoice("hidden_act", {"silu"}, "silu");
  epsilon = config.getPositive("rms_norm_eps", 1e-6);
  std = config.getNonNegative("initializer_range", 0.02);
  tied = config.getFlag("tie_word_embeddings", false);
  attentionBias = config.getFlag("attention_bias", false);
  mlpBias = config.getFlag("mlp_bias", false);
  // Only splits matrices, but in another order of sums than published.
  config.getSize("pretraining_tp", 1, /*most=*/1);
  config.requireAbsent("sliding_window");
  dropout = config.getDropout("attention_dropout", 0.0);
  config.ignore({"max_sequence_length"});
}

void Llama::readHeads(ConfigReader &config) {
  heads = config.getSize("num_attention_heads");
  groups = config.getSize("num_key_value_heads", heads);
  if (heads % groups)
    config.fail("field \"num_attention_heads\" is " + Twine(heads) +
                ", which is not a multiple of \"num_key_value_heads\", " +
                Twine(groups));
  if (!config.has("head_dim") && hidden % heads)
    config.fail("field \"hidden_size\" is " + Twine(hidden) +
                ", which is not a multiple of \"num_attention_heads\", " +
                Twine(heads));
  size = config.getSize("head_dim", std::max<int64_t>(hidden / heads, 1));
  if (size % 2)
    config.fail("a head size (\"head_dim\") of " + Twine(size) +
                " is odd, but rotary embedding works on pairs");
}

/// `rope_theta` and `rope_scaling`, which newer configs have as one object,
/// `rope_parameters`.
void Llama::readRope(ConfigReader &config) {
  theta = config.getPositive("rope_theta", 10000.0);
  auto readScaling = [this](ConfigReader &rope) {
    theta = rope.getPositive("rope_theta", theta);
    // "type" is the older name; where there are both they agree.
    StringRef choices[] = {"default", "llama3"};
    std::string type = rope.getChoice("type", choices, "default");
    if (rope.has("rope_type") || !rope.has("type"))
      type = rope.getChoice("rope_type", choices);
    if (type != "llama3")
      return;
    Scaling result;
    result.factor = rope.getPositive("factor");
    result.low = rope.getPositive("low_freq_factor");
    result.high = rope.getPositive("high_freq_factor");
    result.original = rope.getSize("original_max_position_embeddings");
    if (!rope.failed() && result.high <= result.low)
      rope.fail("field \"high_freq_factor\" of the rotary embedding is " +
                Twine(std::to_string(result.high)) +
                ", expected more than \"low_freq_factor\", " +
                Twine(std::to_string(result.low)));
    scaling = result;
  };
  config.readObject("rope_scaling", readScaling);
  config.readObject("rope_parameters", readScaling);
}

//===----------------------------------------------------------------------===//
// Forward pass
//===----------------------------------------------------------------------===//

static int64_t product(ArrayRef<int64_t> extents) {
  int64_t result = 1;
  for (int64_t extent : extents)
    result *= extent;
  return result;
}

/// A weight whose file is the matrix [product of out, product of in].
Value Llama::project(ModelBuilder &model, const std::string &path, Value x,
                     StringRef spec, Shape out, Shape in, bool bias) const {
  Shape shape(out);
  shape.append(in);
  std::string name = path + ".weight";
  FileBox file = FileBox::whole(name, {product(out), product(in)});
  Value weight = model.read(name, shape, file, normal());
  Value y = model.at(path).matmul(x, weight, spec);
  if (!bias)
    return y;
  name = path + ".bias";
  file = FileBox::whole(name, {product(out)});
  return model.addBias(path, y, model.read(name, out, file, kZeros));
}

Value Llama::rotate(ModelBuilder &model, const std::string &path,
                    Value x) const {
  LayerBuilder nn = model.at(path);
  nn::RopeScalingAttr attr;
  if (scaling)
    attr = nn::RopeScalingAttr::get(
        nn.builder.getContext(), nn.builder.getF64FloatAttr(scaling->factor),
        nn.builder.getF64FloatAttr(scaling->low),
        nn.builder.getF64FloatAttr(scaling->high), scaling->original);
  return nn.unary<nn::RopeOp>(x, nn.builder.getF64FloatAttr(theta), attr,
                              UnitAttr(), nn::BeginAttr());
}

Value Llama::buildAttention(ModelBuilder &model, const std::string &path,
                            Value x) const {
  Shape queryHeads{groups, heads / groups, size}, keyHeads{groups, size};
  Value query = project(model, path + ".q_proj", x, "bsh,grdh->bsgrd",
                        queryHeads, {hidden}, attentionBias);
  Value key = project(model, path + ".k_proj", x, "bsh,gdh->bsgd", keyHeads,
                      {hidden}, attentionBias);
  Value value = project(model, path + ".v_proj", x, "bsh,gdh->bsgd", keyHeads,
                        {hidden}, attentionBias);
  query = rotate(model, path + ".q_proj", query);
  key = rotate(model, path + ".k_proj", key);
  Value y =
      model.at(path).attention(query, key, value, model.makeDropout(dropout));
  return project(model, path + ".o_proj", y, "bsgrd,hgrd->bsh", {hidden},
                 queryHeads, attentionBias);
}

Value Llama::buildMLP(ModelBuilder &model, const std::string &path,
                      Value x) const {
  Value gate = project(model, path + ".gate_proj", x, "bsh,fh->bsf", {inner},
                       {hidden}, mlpBias);
  Value up = project(model, path + ".up_proj", x, "bsh,fh->bsf", {inner},
                     {hidden}, mlpBias);
  LayerBuilder nn = model.at(path + ".act_fn");
  Value open = nn.unary<nn::SiluOp>(gate);
  return project(model, path + ".down_proj", nn.mul(open, up), "bsf,hf->bsh",
                 {hidden}, {inner}, mlpBias);
}

Value Llama::buildNorm(ModelBuilder &model, const std::string &path,
                       Value x) const {
  Value weight = model.read(path + ".weight", {hidden}, kOnes);
  return model.at(path).rmsNorm(x, weight, epsilon);
}

Value Llama::build(ModelBuilder &model) const {
  const char *embedding = "model.embed_tokens.weight";
  Value table = model.read(embedding, {vocab, hidden}, normal());
  Value x = model.at("model.embed_tokens").embedding(table, model.getTokens());
  for (int64_t layer = 0; layer < layers; ++layer) {
    model.setLayer(layer);
    std::string path = "model.layers." + std::to_string(layer);
    Value normal = buildNorm(model, path + ".input_layernorm", x);
    Value seen = buildAttention(model, path + ".self_attn", normal);
    x = model.at(path).add(x, seen);
    normal = buildNorm(model, path + ".post_attention_layernorm", x);
    Value thought = buildMLP(model, path + ".mlp", normal);
    x = model.at(path).add(x, thought);
  }
  model.setLayer(std::nullopt);
  x = buildNorm(model, "model.norm", x);
  Value head = model.read(tied ? embedding : "lm_head.weight", {vocab, hidden},
                          normal());
  return model.at("lm_head").matmul(x, head, "bsh,vh->bsv");
}

Model hf::readLlama(ConfigReader &config, int64_t sequence) {
  Llama llama(config);
  checkSequence(config, "max_position_embeddings", llama.positions, sequence);
  return {llama.vocab, llama.layers,
          [llama](ModelBuilder &model) { return llama.build(model); }};
}
