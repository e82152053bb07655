//===- ClampedExperts.cpp - The experts of GPT-OSS ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A router with a bias, whose weights are the softmax of the chosen logits, and
// experts with biases (OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card").
// With gate g and up u, both bounded, an expert makes g sigmoid(a g) (u + 1).
//
// The matrices of all experts are one tensor of the file, [expert, in, out].
// The columns of gate and up take turns there: each of the two is every other
// one of them. Which row of a bias is added is a lookup by the expert's number.
//
// A rank without the expert of a row has zeros for it, and each op here makes
// zeros of zeros: so a sum over ranks comes once, behind all of them
// (ExpertRows.cpp).
//
//===----------------------------------------------------------------------===//

#include "Llama.h"

using namespace mlir;
using namespace plait;
using namespace plait::hf;

/// The smaller of `x` and `limit`.
static Value limitAbove(LayerBuilder &nn, Value x, double limit) {
  Value bound = nn.fillLike(x, limit);
  return nn.binary<nn::MinOp>(x, bound);
}

/// g sigmoid(a g) is SiLU(a g) / a, and u + 1 times it the sum of two.
static Value open(LayerBuilder nn, Value gate, Value up, const Clamp &clamp) {
  gate = limitAbove(nn, gate, clamp.limit);
  up = limitAbove(nn, up, clamp.limit);
  up = nn.neg(limitAbove(nn, nn.neg(up), clamp.limit));
  Value silu = nn.unary<nn::SiluOp>(nn.scale(gate, clamp.gain));
  Value opened = nn.scale(silu, 1.0 / clamp.gain);
  return nn.add(nn.mul(opened, up), opened);
}

Value Llama::buildClampedExperts(ModelBuilder &model, const std::string &path,
                                 Value x) const {
  int64_t count = experts->count, inner = experts->inner;
  std::string name = path + ".router", own = path + ".experts";
  Value table = model.read(name + ".weight", {count, hidden}, normal());
  Value bias = model.read(name + ".bias", {count}, normal());
  LayerBuilder router = model.at(name);
  Value logits = router.matmul(x, table, "bsh,eh->bse");
  logits = model.addBias(name, logits, bias);
  Route route = router.route(logits, Value(), experts->routing);

  auto readHalf = [&](const std::string &tensor, const Shape &shape,
                      int64_t part, Init init) {
    return model.read(tensor + (part ? ".up" : ".gate"), shape,
                      FileBox::interleaved(tensor, shape, part, 2), init);
  };
  auto multiply = [&](int64_t part) {
    std::string tensor = own + ".gate_up_proj";
    Value matrices = readHalf(tensor, {count, hidden, inner}, part, normal());
    Value biases = readHalf(tensor + "_bias", {count, inner}, part, kZeros);
    LayerBuilder nn = model.at(tensor);
    Value rows = nn.groupedMatmul(x, matrices, route.ids, "bsh,ehf->bscf");
    return nn.add(rows, nn.embedding(biases, route.ids));
  };
  Value gate = multiply(0);
  Value up = multiply(1);
  LayerBuilder nn = model.at(own);
  Value made = open(nn, gate, up, *experts->clamp);

  // The matrix takes rows that are weighed; a bias is weighed by itself.
  std::string tensor = own + ".down_proj";
  Value matrices = model.read(tensor, {count, inner, hidden}, normal());
  Value biases = model.read(tensor + "_bias", {count, hidden}, kZeros);
  LayerBuilder down = model.at(tensor);
  Value rows = down.groupedMatmul(down.weigh(made, route.weights), matrices,
                                  route.ids, "bscf,efh->bsch");
  Value added = down.weigh(down.embedding(biases, route.ids), route.weights);
  return model.at(path).reduce(down.add(rows, added), {2});
}
