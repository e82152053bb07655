//===- Llama.cpp - Llama's forward pass ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Weights are [out, in]. Letters of contractions: b batch, s sequence, h
// hidden, g key/value head, r query head of g, d head size, f inner, e expert,
// c choice of a token, v vocabulary.
//
//===----------------------------------------------------------------------===//

#include "Llama.h"

using namespace mlir;
using namespace plait;
using namespace plait::hf;

/// The table of the embedding, in the model and in its file.
static constexpr const char *kTable = "model.embed_tokens.weight";

/// A linear layer: the contraction `spec` of x and the weight, and the bias if
/// there is one. The weight has as many dimensions as the contraction names,
/// while the file has a matrix: the module needs no reshape, as a parameter is
/// a view of the file's tensor. A `part` of a merged tensor is a parameter of
/// its own, named after the tensor and the part, with the box of its rows.
Value Llama::project(ModelBuilder &model, const std::string &path, Value x,
                     StringRef spec, const Weight &weight) const {
  int64_t out = ShapedType::getNumElements(weight.out),
          in = ShapedType::getNumElements(weight.in);
  Shape shape(weight.out);
  shape.append(weight.in);
  std::string name = path + ".weight";
  FileBox file = FileBox::whole(name, {out, in});
  if (!weight.part.empty()) {
    file = {name, {weight.rows, in}, {weight.first, 0}, {out, in}};
    name += "." + weight.part;
  }
  Value y =
      model.at(path).matmul(x, model.read(name, shape, file, normal()), spec);
  if (!weight.bias)
    return y;
  name = path + ".bias";
  file = FileBox::whole(name, {out});
  return model.addBias(path, y, model.read(name, weight.out, file, kZeros));
}

/// Rotary embedding (Su et al. 2021, "RoFormer") by the position in the
/// sequence, with scaled frequencies where the config has a scaling.
Value Llama::rotate(ModelBuilder &model, const std::string &path, Value x,
                    const LayerKind &kind) const {
  if (!kind.rope)
    return x;
  LayerBuilder nn = model.at(path);
  const auto &[theta, scaling, yarn] = *kind.rope;
  MLIRContext *context = nn.builder.getContext();
  auto number = [&](double x) { return nn.builder.getF64FloatAttr(x); };
  nn::RopeScalingAttr attr;
  if (scaling)
    attr = nn::RopeScalingAttr::get(context, number(scaling->factor),
                                    number(scaling->low), number(scaling->high),
                                    scaling->original);
  nn::YarnAttr yarnAttr;
  if (yarn)
    yarnAttr =
        nn::YarnAttr::get(context, number(yarn->factor), number(yarn->first),
                          number(yarn->last), number(yarn->amplitude));
  IntegerAttr rotated;
  if (latent)
    rotated = nn.builder.getI64IntegerAttr(latent->rotated);
  return nn.unary<nn::RopeOp>(x, number(theta), attr, yarnAttr, rotated,
                              UnitAttr(), nn::BeginAttr());
}

/// An RMS norm over all heads of `x`, which are its dimensions from the third
/// on: they are one row of the file's weight.
Value Llama::buildJointNorm(ModelBuilder &model, const std::string &path,
                            Value x) const {
  auto shape = cast<RankedTensorType>(x.getType()).getShape();
  Shape heads(shape.drop_front(2));
  int64_t width = ShapedType::getNumElements(heads);
  auto dims = llvm::to_vector(llvm::seq<int64_t>(2, shape.size()));
  std::string name = path + ".weight";
  Value weight = model.read(name, heads, FileBox::whole(name, {width}), kOnes);
  LayerBuilder nn = model.at(path);
  Value mean = nn.scale(nn.reduce(nn.mul(x, x), dims), 1.0 / double(width));
  Value factor = nn.unary<nn::RsqrtOp>(nn.shift(mean, epsilon));
  Value scaled = nn.mul(x, nn.broadcast(factor, shape, {0, 1}));
  return nn.mul(scaled, nn.broadcast(weight, shape, dims));
}

/// The query ('q'), key ('k') or value ('v') heads of x, the first two of them
/// rotated.
Value Llama::buildHeads(ModelBuilder &model, const std::string &path, Value x,
                        char which, const LayerKind &kind) const {
  Weight weight{{groups, size}, {hidden}, headBias};
  if (which == 'q')
    weight.out = {groups, heads / groups, size};
  std::string name = path + "." + which + "_proj";
  // The rows of queries, keys and values, in this order.
  if (merged) {
    int64_t keys = groups * size, queries = heads * size;
    name = path + ".qkv_proj";
    weight.part = which;
    weight.first = which == 'q' ? 0 : which == 'k' ? queries : queries + keys;
    weight.rows = queries + 2 * keys;
  }
  Value y = project(model, name, x,
                    which == 'q' ? "bsh,grdh->bsgrd" : "bsh,gdh->bsgd", weight);
  if (which == 'v')
    return y;
  // Before the rotation, of each head by itself, with one weight for all heads.
  if (headNorms)
    y = buildNorm(model, path + "." + which + "_norm", y, size);
  else if (jointNorms)
    y = buildJointNorm(model, path + "." + which + "_norm", y);
  return rotate(model, name, y, kind);
}

/// Queries have a dimension for their group: heads of one group share key and
/// value (grouped-query attention, Ainslie et al. 2023), and nothing is
/// repeated in memory. With as many groups as heads it is ordinary attention.
Value Llama::buildAttention(ModelBuilder &model, const std::string &path,
                            Value x, const LayerKind &kind) const {
  if (latent)
    return buildLatentAttention(model, path, x, kind);
  Value query = buildHeads(model, path, x, 'q', kind);
  Value key = buildHeads(model, path, x, 'k', kind);
  Value value = buildHeads(model, path, x, 'v', kind);
  Scores scores{scoreFactor, kind.window, scoreCap};
  if (sinks) {
    std::string name = path + ".sinks";
    scores.sinks = model.read(name, {groups, heads / groups},
                              FileBox::whole(name, {heads}), normal());
  }
  Value y = model.at(path).attention(
      query, key, value, model.makeDropout(attentionDropout), scores);
  Weight weight{{hidden}, {groups, heads / groups, size}, outBias};
  return project(model, path + ".o_proj", y, "bsgrd,hgrd->bsh", weight);
}

/// A gated MLP (Shazeer 2020, "GLU Variants Improve Transformer"): SiLU or GELU
/// of the one half times the other.
Value Llama::buildMLP(ModelBuilder &model, const std::string &path, Value x,
                      int64_t width) const {
  Weight gateWeight{{width}, {hidden}, mlpBias}, upWeight = gateWeight;
  std::string gatePath = path + ".gate_proj", upPath = path + ".up_proj";
  if (merged) {
    gatePath = upPath = path + ".gate_up_proj";
    gateWeight.part = "gate";
    upWeight.part = "up";
    upWeight.first = width;
    gateWeight.rows = upWeight.rows = 2 * width;
  }
  Value gate = project(model, gatePath, x, "bsh,fh->bsf", gateWeight);
  Value up = project(model, upPath, x, "bsh,fh->bsf", upWeight);
  LayerBuilder nn = model.at(path + ".act_fn");
  Value open = opensByGelu
                   ? nn.unary<nn::GeluOp>(gate, nn.builder.getUnitAttr())
                   : nn.unary<nn::SiluOp>(gate);
  return project(model, path + ".down_proj", nn.mul(open, up), "bsf,hf->bsh",
                 {{hidden}, {width}, mlpBias});
}

/// The experts of a token are those with the highest probabilities, by which
/// what they make of it is weighed (Shazeer et al. 2017). All of them are one
/// parameter for each of the three matrices, and a tensor each in the file.
Value Llama::buildExperts(ModelBuilder &model, const std::string &path,
                          Value x) const {
  if (experts->clamp)
    return buildClampedExperts(model, path, x);
  Value table =
      model.read(path + ".gate.weight", {experts->count, hidden}, normal());
  LayerBuilder router = model.at(path + ".gate");
  Value logits = router.matmul(x, table, "bsh,eh->bse");
  Value bias;
  if (experts->biased)
    bias = model.readFrozen(path + ".gate.e_score_correction_bias",
                            {experts->count});
  Route route = router.route(logits, bias, experts->routing);
  auto multiply = [&](StringRef name, Value rows, StringRef spec, Shape shape) {
    std::string own = (path + ".experts.*." + name).str();
    shape.insert(shape.begin(), experts->count);
    Value matrices = model.read(own + ".weight", shape, normal());
    return model.at(own).groupedMatmul(rows, matrices, route.ids, spec);
  };
  Shape wide{experts->inner, hidden}, back{hidden, experts->inner};
  Value gate = multiply(experts->gate, x, "bsh,efh->bscf", wide);
  Value up = multiply(experts->up, x, "bsh,efh->bscf", wide);
  LayerBuilder nn = model.at(path + ".act_fn");
  Value made = nn.mul(nn.unary<nn::SiluOp>(gate), up);
  // Weighed in front of the last matrix and not behind it, which is the same:
  // the gradient of the weights then needs what that of the matrix does.
  Value rows = multiply(experts->down, nn.weigh(made, route.weights),
                        "bscf,ehf->bsch", back);
  Value sum = model.at(path).reduce(rows, {2});
  if (!experts->shared)
    return sum;
  return model.at(path).add(sum, buildSharedExpert(model, path, x));
}

/// The file has the weights that open it as a matrix of one row.
Value Llama::buildSharedExpert(ModelBuilder &model, const std::string &path,
                               Value x) const {
  std::string block = path + "." + experts->sharedBlock.str();
  Value y = buildMLP(model, block, x, experts->shared);
  if (!experts->opensShared)
    return y;
  std::string name = block + "_gate.weight";
  Value weight =
      model.read(name, {hidden}, FileBox::whole(name, {1, hidden}), normal());
  LayerBuilder nn = model.at(block + "_gate");
  auto shape = cast<RankedTensorType>(x.getType()).getShape();
  Value logit = nn.reduce(nn.mul(x, nn.broadcast(weight, shape, {2})), {2});
  Value open = nn.unary<nn::SigmoidOp>(logit);
  return nn.mul(y, nn.broadcast(open, shape, {0, 1}));
}

/// Over the last dimension, which `width` is.
Value Llama::buildNorm(ModelBuilder &model, const std::string &path, Value x,
                       int64_t width) const {
  LayerBuilder nn = model.at(path);
  Value weight =
      model.read(path + ".weight", {width}, normsFromOne ? kZeros : kOnes);
  return nn.rmsNorm(x, normsFromOne ? nn.shift(weight, 1.0) : weight, epsilon);
}

/// Returns `x` times `factor`.
static Value multiply(LayerBuilder nn, Value x, double factor) {
  return factor == 1.0 ? x : nn.scale(x, factor);
}

/// Returns what a layer's input `x` becomes by the part of the layer that gave
/// `y`.
Value Llama::addTo(ModelBuilder &model, const std::string &path, Value x,
                   Value y) const {
  LayerBuilder nn = model.at(path);
  y = nn.drop(y, model.makeDropout(residualDropout));
  return nn.add(x, multiply(nn, y, residualFactor));
}

/// Attention, then an MLP or experts. What is called "post_attention_layernorm"
/// is in front of the MLP where all norms are in front.
Value Llama::buildLayer(ModelBuilder &model, int64_t layer, Value x) const {
  std::string path = "model.layers." + std::to_string(layer);
  bool isBehind = norms != Norms::Before;
  auto norm = [&](bool wanted, const char *name, Value value) {
    return wanted ? buildNorm(model, path + "." + name, value, hidden) : value;
  };
  Value in = norm(norms != Norms::Behind, "input_layernorm", x);
  Value y = buildAttention(model, path + ".self_attn", in, kinds[layer]);
  y = norm(isBehind, "post_attention_layernorm", y);
  x = addTo(model, path, x, y);
  in = norm(!isBehind, "post_attention_layernorm", x);
  in = norm(norms == Norms::Both, "pre_feedforward_layernorm", in);
  y = experts && layer >= experts->dense
          ? buildExperts(model, path + "." + experts->block.str(), in)
          : buildMLP(model, path + ".mlp", in, inner);
  return addTo(model, path, x, norm(isBehind, "post_feedforward_layernorm", y));
}

/// The head is the embedding's table where they are tied: reading one symbol
/// twice is what tying is.
Value Llama::buildLogits(ModelBuilder &model, Value x) const {
  Value head =
      model.read(tied ? kTable : "lm_head.weight", {vocab, hidden}, normal());
  LayerBuilder nn = model.at("lm_head");
  Value logits = multiply(nn, nn.matmul(x, head, "bsh,vh->bsv"), logitFactor);
  if (logitCap == 0.0)
    return logits;
  Value bounded = nn.unary<nn::TanhOp>(nn.scale(logits, 1.0 / logitCap));
  return nn.scale(bounded, logitCap);
}

Value Llama::build(ModelBuilder &model) const {
  Value table = model.read(kTable, {vocab, hidden}, normal());
  LayerBuilder nn = model.at("model.embed_tokens");
  Value x =
      multiply(nn, nn.embedding(table, model.getTokens()), embeddingFactor);
  for (int64_t layer = 0; layer < layers; ++layer) {
    model.setLayer(layer);
    x = buildLayer(model, layer, x);
  }
  model.setLayer(std::nullopt);
  return buildLogits(model, buildNorm(model, "model.norm", x, hidden));
}
