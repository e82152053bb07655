//===- LatentAttention.cpp - Multi-head latent attention ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Queries and keys of all heads are made of a few numbers of a token
// (DeepSeek-AI 2024, "DeepSeek-V2"). A part of each head turns with the
// position; of keys it is one for all heads. Values are shorter than keys.
//
// A head here is [still, first of the pairs, still, second of the pairs], so
// that pairs lie half a head apart, as nn.rope has them, and what does not turn
// comes as the first pairs. Scores are sums over the elements of a head, in
// whatever order: rows of the weights are brought into this one, which costs a
// product with a constant matrix and no pass over activations. The same way
// keys without the part that turns get zeros in its place, and values at their
// end.
//
// Letters beside those of Llama.cpp: l elements of a latent, p elements of a
// head in the file.
//
//===----------------------------------------------------------------------===//

#include "Llama.h"

using namespace mlir;
using namespace plait;
using namespace plait::hf;

/// The norms of latents have an epsilon of their own, whatever the config says.
static constexpr double kLatentEpsilon = 1e-6;

/// The place in the file's head [still, rotated] of each element of a head; -1
/// for the elements that do not turn, or for those that do, where these are not
/// wanted.
static Shape findPlaces(const Latent &latent, bool still, bool rotated) {
  Shape places;
  int64_t stills = latent.still / 2, pairs = latent.rotated / 2;
  for (int64_t half : {0, 1}) {
    for (int64_t i = 0; i < stills; ++i)
      places.push_back(still ? half * stills + i : -1);
    int64_t first = still ? latent.still : 0;
    for (int64_t i = 0; i < pairs; ++i) {
      int64_t own = latent.interleaved ? 2 * i + half : half * pairs + i;
      places.push_back(rotated ? first + own : -1);
    }
  }
  return places;
}

/// `weight`, whose last dimensions are places and a latent, with the rows that
/// `places` says; in front of them it may have groups and heads.
Value Llama::arrange(ModelBuilder &model, const std::string &path, Value weight,
                     ArrayRef<int64_t> places) const {
  auto shape = cast<RankedTensorType>(weight.getType()).getShape();
  LayerBuilder nn = model.at(path);
  Value matrix = nn.selection(places, shape.drop_back().back());
  StringRef outer = StringRef("gr").take_front(shape.size() - 2);
  return nn.matmul(weight, matrix, outer + "pl,dp->" + outer + "dl");
}

/// [batch, sequence, head, 1, size]: each head has keys of its own.
Value Llama::buildLatentQuery(ModelBuilder &model, const std::string &path,
                              Value x) const {
  int64_t width = hidden;
  std::string name = path + ".q_proj";
  if (latent->queryRank) {
    width = *latent->queryRank;
    x = project(model, path + ".q_a_proj", x, "bsh,lh->bsl",
                {{width}, {hidden}});
    std::string norm = path + ".q_a_layernorm";
    x = model.at(norm).rmsNorm(x, model.read(norm + ".weight", {width}, kOnes),
                               kLatentEpsilon);
    name = path + ".q_b_proj";
  }
  FileBox file = FileBox::whole(name + ".weight", {heads * size, width});
  Value weight =
      model.read(name + ".weight", {heads, 1, size, width}, file, normal());
  weight = arrange(model, name, weight, findPlaces(*latent, true, true));
  return rotate(model, name,
                model.at(name).matmul(x, weight, "bsl,grdl->bsgrd"));
}

Value Llama::buildLatentAttention(ModelBuilder &model, const std::string &path,
                                  Value x) const {
  const Latent &own = *latent;
  Value query = buildLatentQuery(model, path, x);
  std::string down = path + ".kv_a_proj_with_mqa", up = path + ".kv_b_proj";
  std::string norm = path + ".kv_a_layernorm";
  int64_t rows = own.keyRank + own.rotated;

  // What turns, one for all heads.
  FileBox box{down + ".weight",
              {rows, hidden},
              {own.keyRank, 0},
              {own.rotated, hidden}};
  Value turning =
      model.read(down + ".weight.rope", {own.rotated, hidden}, box, normal());
  turning = arrange(model, down, turning, findPlaces(own, false, true));
  Value shared = model.at(down).matmul(x, turning, "bsh,dh->bsd");
  shared = rotate(model, down, shared);

  // What does not, and values, of the latent.
  Weight part{{own.keyRank}, {hidden}, false, "latent", 0, rows};
  Value latents = project(model, down, x, "bsh,lh->bsl", part);
  latents = model.at(norm).rmsNorm(
      latents, model.read(norm + ".weight", {own.keyRank}, kOnes),
      kLatentEpsilon);
  int64_t head = own.still + own.value;
  Value weight = model.read(
      up + ".weight", {heads, head, own.keyRank},
      FileBox::whole(up + ".weight", {heads * head, own.keyRank}), normal());
  auto multiply = [&](ArrayRef<int64_t> places) {
    Value arranged = arrange(model, up, weight, places);
    return model.at(up).matmul(latents, arranged, "bsl,gdl->bsgd");
  };
  LayerBuilder nn = model.at(path);
  Value key = multiply(findPlaces(own, true, false));
  auto shape = cast<RankedTensorType>(key.getType()).getShape();
  key = nn.add(key, nn.broadcast(shared, shape, {0, 1, 3}));
  Shape places(size, -1);
  for (int64_t i = 0; i < own.value; ++i)
    places[i] = own.still + i;
  Value value = multiply(places);

  double scale = (yarn ? yarn->scores : 1.0) / std::sqrt(double(size));
  Value y = nn.attention(query, key, value, model.makeDropout(attentionDropout),
                         /*window=*/0, scale);
  if (own.value < size) {
    for (int64_t i = 0; i < own.value; ++i)
      places[i] = i;
    Value matrix = nn.selection(ArrayRef(places).take_front(own.value), size);
    y = nn.matmul(y, matrix, "bsgrp,dp->bsgrd");
  }
  Weight out{{hidden}, {heads, 1, own.value}};
  return project(model, path + ".o_proj", y, "bsgrd,hgrd->bsh", out);
}
