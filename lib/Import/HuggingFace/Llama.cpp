//===- Llama.cpp - Llama's forward pass ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Weights are [out, in]. Letters of contractions: b batch, s sequence, h
// hidden, g key/value head, r query head of g, d head size, f inner, e expert,
// c choice of a token, v vocabulary, p elements of a head in the file.
//
//===----------------------------------------------------------------------===//

#include "Llama.h"

using namespace mlir;
using namespace plait;
using namespace plait::hf;

/// The place of a weight's rows in the file's tensor `name`, where each row has
/// `columns` elements; of a bias, which has none, it is that of its elements.
FileBox Llama::findRows(const std::string &name, const Weight &weight,
                        ArrayRef<int64_t> columns) const {
  int64_t out = ShapedType::getNumElements(weight.out);
  auto append = [&](Shape shape) {
    shape.append(columns.begin(), columns.end());
    return shape;
  };
  if (weight.part.empty())
    return FileBox::whole(name, append({out}));
  Shape begin(columns.size() + 1, 0);
  begin[0] = weight.first;
  if (weight.blocks == 1)
    return {name, append({weight.rows}), begin, append({out})};
  begin.insert(begin.begin(), 0);
  return {name, append({weight.blocks, weight.rows}), begin,
          append({weight.blocks, out / weight.blocks}),
          append({weight.blocks * weight.rows})};
}

/// A linear layer: the contraction `spec` of x and the weight, and the bias if
/// there is one. The weight has as many dimensions as the contraction names,
/// while the file has a matrix: the module needs no reshape, as a parameter is
/// a view of the file's tensor. A `part` of a merged tensor is a parameter of
/// its own, named after the tensor and the part, with the box of its rows.
Value Llama::project(ModelBuilder &model, const std::string &path, Value x,
                     StringRef spec, const Weight &weight) const {
  Shape shape(weight.out);
  shape.append(weight.in);
  std::string suffix = weight.part.empty() ? "" : "." + weight.part;
  std::string name = path + ".weight";
  FileBox file = findRows(name, weight, ShapedType::getNumElements(weight.in));
  Value y = model.at(path).matmul(
      x, model.read(name + suffix, shape, file, normal()), spec);
  if (!weight.bias)
    return y;
  name = path + ".bias";
  file = findRows(name, weight, {});
  return model.addBias(path, y,
                       model.read(name + suffix, weight.out, file, kZeros));
}

/// Rotary embedding (Su et al. 2021, "RoFormer") by the position in the
/// sequence, with scaled frequencies where the config has a scaling. Elements
/// of `x` are in the order of nn.rope.
Value Llama::turnPairs(ModelBuilder &model, const std::string &path, Value x,
                       const LayerKind &kind) const {
  LayerBuilder nn = model.at(path);
  const auto &[theta, turned, scaling, yarn, mostPositions] = *kind.rope;
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
  if (turn && turn->still)
    rotated = nn.builder.getI64IntegerAttr(turn->rotated);
  return nn.unary<nn::RopeOp>(x, number(theta), attr, yarnAttr, rotated,
                              UnitAttr(), nn::BeginAttr());
}

/// The place in the file's head of each element in the order of nn.rope, whose
/// halves turn together and have what does not turn in front; -1 for the
/// elements that do not turn, or for those that do, where these are not wanted.
Shape Llama::findPlaces(bool still, bool rotated) const {
  Shape places;
  int64_t stills = turn->still / 2, pairs = turn->rotated / 2;
  int64_t firstStill = turn->leads && rotated ? turn->rotated : 0;
  int64_t firstRotated = !turn->leads && still ? turn->still : 0;
  for (int64_t half : {0, 1}) {
    for (int64_t i = 0; i < stills; ++i)
      places.push_back(still ? firstStill + half * stills + i : -1);
    for (int64_t i = 0; i < pairs; ++i) {
      int64_t own = turn->interleaved ? 2 * i + half : half * pairs + i;
      places.push_back(rotated ? firstRotated + own : -1);
    }
  }
  return places;
}

/// `x`, whose last dimension is a head of the file, in the order of `places`.
Value Llama::arrange(ModelBuilder &model, const std::string &path, Value x,
                     ArrayRef<int64_t> places) const {
  auto shape = cast<RankedTensorType>(x.getType()).getShape();
  LayerBuilder nn = model.at(path);
  Value matrix = nn.selection(places, shape.back());
  StringRef outer = StringRef("bsgr").take_front(shape.size() - 1);
  return nn.matmul(x, matrix, outer + "p,dp->" + outer + "d");
}

/// Scores do not depend on the order of elements, which is the same in queries
/// and keys: it is not changed back.
Value Llama::rotate(ModelBuilder &model, const std::string &path, Value x,
                    const LayerKind &kind) const {
  if (!kind.rope)
    return x;
  if (turn)
    x = arrange(model, path, x, findPlaces(/*still=*/true, /*rotated=*/true));
  return turnPairs(model, path, x, kind);
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

/// A norm of each head of `x` by itself, with the head's own weights: `path` is
/// the name of the files' tensor or tensors.
Value Llama::buildOwnHeadNorm(ModelBuilder &model, const std::string &path,
                              Value x) const {
  auto shape = cast<RankedTensorType>(x.getType()).getShape();
  Shape own(shape.drop_front(2));
  int64_t count = ShapedType::getNumElements(own) / size;
  std::string name = path + ".weight";
  Value weight =
      model.read(name, own, FileBox::whole(name, {count, size}), kOnes);
  LayerBuilder nn = model.at(path);
  auto dims = llvm::to_vector(llvm::seq<int64_t>(2, shape.size()));
  return nn.mul(nn.layerNorm(x, epsilon), nn.broadcast(weight, shape, dims));
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
  if (fileHeads != Heads::Apart) {
    bool isByHead = fileHeads == Heads::ByHead;
    weight.blocks = isByHead ? heads : 1;
    int64_t keys = groups * size / weight.blocks;
    int64_t queries = heads * size / weight.blocks;
    name = path + (isByHead ? ".query_key_value" : ".qkv_proj");
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
  else if (!ownHeadNorms.empty())
    y = buildOwnHeadNorm(model, path + "." + which + ownHeadNorms.str(), y);
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
  Weight weight{
      {hidden}, {groups, heads / groups, size}, outBias && !addsBiasesLast()};
  return project(model, path + "." + names.out.str(), y, "bsgrd,hgrd->bsh",
                 weight);
}

Value Llama::activate(LayerBuilder nn, Value x) const {
  if (activation == Activation::Silu)
    return nn.unary<nn::SiluOp>(x);
  bool isByTanh = activation == Activation::GeluTanh;
  return nn.unary<nn::GeluOp>(x,
                              isByTanh ? nn.builder.getUnitAttr() : UnitAttr());
}

/// A gated MLP (Shazeer 2020, "GLU Variants Improve Transformer"): SiLU or GELU
/// of the one half times the other; or one of two matrices.
Value Llama::buildMLP(ModelBuilder &model, const std::string &path, Value x,
                      int64_t width) const {
  Weight gateWeight{{width}, {hidden}, mlpBias}, upWeight = gateWeight;
  std::string downPath = path + "." + names.down.str();
  Weight downWeight{{hidden}, {width}, mlpBias && !addsBiasesLast()};
  if (!names.first.empty()) {
    Value y = project(model, path + "." + names.first.str(), x, "bsh,fh->bsf",
                      gateWeight);
    y = activate(model.at(path + ".act"), y);
    return project(model, downPath, y, "bsf,hf->bsh", downWeight);
  }
  std::string gatePath = path + ".gate_proj", upPath = path + ".up_proj";
  if (mergedGate) {
    gatePath = upPath = path + ".gate_up_proj";
    gateWeight.part = "gate";
    upWeight.part = "up";
    upWeight.first = width;
    gateWeight.rows = upWeight.rows = 2 * width;
  }
  Value gate = project(model, gatePath, x, "bsh,fh->bsf", gateWeight);
  Value up = project(model, upPath, x, "bsh,fh->bsf", upWeight);
  LayerBuilder nn = model.at(path + ".act_fn");
  return project(model, downPath, nn.mul(activate(nn, gate), up), "bsf,hf->bsh",
                 downWeight);
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
  if (normKind == NormKind::LayerAlone)
    return nn.layerNorm(x, epsilon);
  Value weight =
      model.read(path + ".weight", {width}, normsFromOne ? kZeros : kOnes);
  if (normsFromOne)
    weight = nn.shift(weight, 1.0);
  if (normKind == NormKind::Rms)
    return nn.rmsNorm(x, weight, epsilon);
  Value bias = normKind == NormKind::Layer
                   ? model.read(path + ".bias", {width}, kZeros)
                   : nn.fillLike(weight, 0.0);
  return nn.layerNorm(x, weight, bias, epsilon);
}

/// Returns `x` times `factor`.
static Value multiply(LayerBuilder nn, Value x, double factor) {
  return factor == 1.0 ? x : nn.scale(x, factor);
}

/// Returns what attention or MLP, which gave `y`, adds to the layer's input.
Value Llama::finishPart(ModelBuilder &model, const std::string &path,
                        Value y) const {
  LayerBuilder nn = model.at(path);
  return multiply(nn, nn.drop(y, model.makeDropout(residualDropout)),
                  residualFactor);
}

/// Attention, then an MLP or experts, or both of the same input: then what they
/// give is added up first, so that ranks that split both exchange one sum.
Value Llama::buildLayer(ModelBuilder &model, int64_t layer, Value x) const {
  std::string path = (names.model + ".layers.").str() + std::to_string(layer);
  LayerBuilder nn = model.at(path);
  auto norm = [&](StringRef name, Value value) {
    return name.empty()
               ? value
               : buildNorm(model, (path + "." + name).str(), value, hidden);
  };
  Value in = norm(norms.beforeAttention, x);
  Value seen = buildAttention(model, path + "." + names.attention.str(), in,
                              kinds[layer]);
  seen = finishPart(model, path, norm(norms.behindAttention, seen));
  if (!parallel)
    x = nn.add(x, seen);
  if (!parallel || !norms.beforeMLP.empty())
    in = norm(norms.beforeMLP, x);
  Value y = experts && layer >= experts->dense
                ? buildExperts(model, path + "." + experts->block.str(), in)
                : buildMLP(model, path + ".mlp", in, inner);
  y = finishPart(model, path, norm(norms.behindMLP, y));
  if (parallel)
    y = nn.add(seen, y);
  if (addsBiasesLast())
    y = addLastBiases(model, path, y);
  return nn.add(x, y);
}

/// Adds the biases behind attention and MLP to the sum of both.
Value Llama::addLastBiases(ModelBuilder &model, const std::string &path,
                           Value y) const {
  auto add = [&](bool wanted, StringRef block, StringRef name) {
    if (!wanted)
      return;
    std::string module = (path + "." + block + "." + name).str();
    Value bias = model.read(module + ".bias", {hidden}, kZeros);
    y = model.addBias(module, y, bias);
  };
  add(outBias, names.attention, names.out);
  add(mlpBias, "mlp", names.down);
  return y;
}

/// The head is the embedding's table where they are tied: reading one symbol
/// twice is what tying is.
Value Llama::buildLogits(ModelBuilder &model, Value x) const {
  std::string path = names.head.str();
  Value head = tied ? readTable(model)
                    : model.read(path + ".weight", {vocab, hidden}, normal());
  LayerBuilder nn = model.at(path);
  Value logits = nn.matmul(x, head, "bsh,vh->bsv");
  if (logitBias)
    logits = model.addBias(path, logits,
                           model.read(path + ".bias", {vocab}, kZeros));
  logits = multiply(nn, logits, logitFactor);
  if (logitCap == 0.0)
    return logits;
  Value bounded = nn.unary<nn::TanhOp>(nn.scale(logits, 1.0 / logitCap));
  return nn.scale(bounded, logitCap);
}

Value Llama::readTable(ModelBuilder &model) const {
  return model.read(names.model + "." + names.table + ".weight",
                    {vocab, hidden}, normal());
}

Value Llama::build(ModelBuilder &model) const {
  Value table = readTable(model);
  LayerBuilder nn = model.at(names.model + "." + names.table);
  Value x =
      multiply(nn, nn.embedding(table, model.getTokens()), embeddingFactor);
  x = nn.drop(x, model.makeDropout(embeddingDropout));
  for (int64_t layer = 0; layer < layers; ++layer) {
    model.setLayer(layer);
    x = buildLayer(model, layer, x);
  }
  model.setLayer(std::nullopt);
  std::string norm = (names.model + "." + names.norm).str();
  return buildLogits(model, buildNorm(model, norm, x, hidden));
}
