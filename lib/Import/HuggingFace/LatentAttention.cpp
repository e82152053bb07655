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
// whatever order: products with matrices of zeros and ones bring heads into
// this one, put zeros where keys turn, and behind values. They multiply
// activations, not weights, whose gradients are so added up once a step like
// all others.
//
// Letters beside those of Llama.cpp: l elements of a latent, p elements of a
// head in the file.
//
//===----------------------------------------------------------------------===//

#include "Llama.h"

#include <numeric>

using namespace mlir;
using namespace plait;
using namespace plait::hf;

/// The norms of latents have an epsilon of their own, whatever the config says.
static constexpr double kLatentEpsilon = 1e-6;

/// [batch, sequence, head, 1, size]: each head has keys of its own.
Value Llama::buildLatentQuery(ModelBuilder &model, const std::string &path,
                              Value x, const LayerKind &kind) const {
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
  Value y =
      project(model, name, x, "bsl,grpl->bsgrp", {{heads, 1, size}, {width}});
  return rotate(model, name, y, kind);
}

Value Llama::buildLatentAttention(ModelBuilder &model, const std::string &path,
                                  Value x, const LayerKind &kind) const {
  const Latent &own = *latent;
  Value query = buildLatentQuery(model, path, x, kind);
  std::string down = path + ".kv_a_proj_with_mqa", up = path + ".kv_b_proj";
  std::string norm = path + ".kv_a_layernorm";
  int64_t rows = own.keyRank + turn->rotated;

  // What turns, one for all heads.
  Weight part{{turn->rotated}, {hidden}, false, "rope", own.keyRank, rows};
  Value shared = project(model, down, x, "bsh,ph->bsp", part);
  shared = arrange(model, down, shared, findPlaces(false, true));
  shared = turnPairs(model, down, shared, kind);

  // What does not, and values, of the latent.
  part = {{own.keyRank}, {hidden}, false, "latent", 0, rows};
  Value latents = project(model, down, x, "bsh,lh->bsl", part);
  Value scale = model.read(norm + ".weight", {own.keyRank}, kOnes);
  latents = model.at(norm).rmsNorm(latents, scale, kLatentEpsilon);
  Value both = project(model, up, latents, "bsl,gpl->bsgp",
                       {{heads, turn->still + own.value}, {own.keyRank}});
  LayerBuilder nn = model.at(path);
  Value key = arrange(model, up, both, findPlaces(true, false));
  auto shape = cast<RankedTensorType>(key.getType()).getShape();
  key = nn.add(key, nn.broadcast(shared, shape, {0, 1, 3}));
  Shape places(size, -1);
  std::iota(places.begin(), places.begin() + own.value, turn->still);
  Value value = arrange(model, up, both, places);

  double factor = kind.rope->yarn ? kind.rope->yarn->scores : 1.0;
  Value y = nn.attention(query, key, value, model.makeDropout(attentionDropout),
                         {.scale = factor / std::sqrt(double(size))});
  if (own.value < size) {
    Shape first(own.value);
    std::iota(first.begin(), first.end(), 0);
    y = arrange(model, path, y, first);
  }
  Weight out{{hidden}, {heads, 1, own.value}};
  return project(model, path + ".o_proj", y, "bsgrd,hgrd->bsh", out);
}
