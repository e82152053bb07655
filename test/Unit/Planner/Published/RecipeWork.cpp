//===- RecipeWork.cpp - What recipes of Megatron-Core add -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From NVIDIA's account of DeepSeek-V3 on GB200 (NVIDIA/Megatron-LM,
// docs/discussions/deepseek-v3-gb200-optimization): a layer of experts is many
// short kernels, for which the device waits; casts to 8 bit are kernels of
// their own, and grouped matmuls one for each expert, issued from C++.
//
//===----------------------------------------------------------------------===//

#include "TransformerBuilder.h"

#include <cmath>
#include <span>
#include <string_view>

using namespace plait;
using namespace plait::planner;

/// Kernels of the router and of what comes before rows are sent (section 2.1.4,
/// and 2.2.1 with a library that sends them), of which one is the router's
/// matmul and one its scores.
static constexpr int kRouteKernels = 31, kRouteKernelsOfLibrary = 17;

/// Kernels that no module of Python stands around, but a single operation or a
/// loop of C++: the host issues them three times as fast as the others
/// (Frameworks.cpp: it issues all of a backward pass so).
void TransformerBuilder::issue(Pass pass, const char *name, double count) {
  if (!shape.recipe.isKnown)
    return;
  double modules = pass == Pass::Forward ? count / 3 : count;
  for (int64_t i = 0, most = std::llround(modules); i < most; ++i)
    kernel(pass, name, 0, 1);
}

void TransformerBuilder::routeKernels() {
  int count = shape.recipe.sendsOnce ? kRouteKernelsOfLibrary : kRouteKernels;
  issue(Pass::Forward, "route", count - 2);
}

/// Read in 16 bit; written in 8 along rows and along columns, since the
/// gradient of the weight multiplies the latter. Each part of a grouped matmul
/// is cast alone, and factors of all are put in order for each matmul (section
/// 2.1.3). What a norm makes is cast by the norm (section 2.1.5).
void TransformerBuilder::cast(Pass pass, double elements, int64_t parts) {
  if (!shape.recipe.eightBit)
    return;
  kernel(pass, "cast", 2 * elements);
  double matmuls = pass == Pass::Forward ? 1 : 2;
  issue(pass, "cast", double(parts - 1) + matmuls);
}

/// Expert by expert (core/transformer/moe/experts.py, _apply_bias): the bias
/// times weights in 4 bytes, added to the result, which is then joined and
/// rounded.
void TransformerBuilder::expertBiasesForward(double moved) {
  if (!shape.experts.biases || !shape.recipe.isKnown)
    return;
  int64_t held = divideUp(shape.experts.experts, ep);
  kernel(Pass::Forward, "weight bias", 0, moved);
  kernel(Pass::Forward, "add bias", moved, 2 * moved);
  issue(Pass::Forward, "add bias", 2.0 * double(held - 1));
  kernel(Pass::Forward, "join biased", 0, 2 * moved);
  kernel(Pass::Forward, "round biased", moved, moved);
}

/// Widened, then for each expert rounded for the result, multiplied and summed
/// up for the bias and for the weights, and joined.
void TransformerBuilder::expertBiasesBackward(double moved) {
  if (!shape.experts.biases || !shape.recipe.isKnown)
    return;
  int64_t held = divideUp(shape.experts.experts, ep);
  kernel(Pass::BackwardInput, "widen biased", moved, moved);
  kernel(Pass::BackwardInput, "round biased", moved, moved);
  for (const char *of : {"bias", "weights"}) {
    kernel(Pass::BackwardInput, of, 0, 2 * moved);
    kernel(Pass::BackwardInput, of, 0, moved);
  }
  issue(Pass::BackwardInput, "bias", 5.0 * double(held - 1));
  kernel(Pass::BackwardInput, "join biased", 2 * moved);
}

/// What is computed again is issued by Python like a forward pass, in a
/// backward pass that is not (section 2.2.2).
void TransformerBuilder::issueAgain(int kernels) {
  issue(Pass::BackwardInput, "again", 2.0 * kernels);
}

/// From the latent vectors: norms, casts, matmuls and positions of queries and
/// of keys with values.
void TransformerBuilder::latentAgain() {
  const LatentShape &latent = shape.latent;
  for (int64_t width : {latent.query, latent.keyValue}) {
    kernel(Pass::BackwardInput, "latent norm again", 2.0 * tokens * width);
    cast(Pass::BackwardInput, double(tokens) * width);
  }
  matmul(Pass::BackwardInput, "q again", tokens,
         heads * (shape.headSize + latent.rotary), latent.query,
         Operation::Scaled::M);
  matmul(Pass::BackwardInput, "kv again", tokens, 2 * heads * shape.headSize,
         latent.keyValue, Operation::Scaled::M);
  kernel(Pass::BackwardInput, "rotary again", 2.0 * tokens * qkvWidth);
  issueAgain(7);
}

void TransformerBuilder::denseAgain() {
  matmul(Pass::BackwardInput, "ffn in again", tokens, ffnIn, shape.hidden,
         Operation::Scaled::M);
  kernel(Pass::BackwardInput, "activation again",
         shape.ffnMatrices * double(tokens) * ffn);
  issueAgain(2);
}

/// A layer of what comes from the layers beside the embedding of the next
/// token, both normed, and the head once more, whose table it shares.
Block TransformerBuilder::furtherLayer() {
  Block last = head();
  Block further = layer(shape.experts.experts > 0);
  block = Block();
  for (int i = 0; i < 2; ++i)
    normForward();
  linearForward("further", 2 * shape.hidden, shape.hidden);
  linearBackward("further", 2 * shape.hidden, shape.hidden, false);
  for (int i = 0; i < 2; ++i)
    normBackward();
  for (const Block *part : {&block, &last})
    further.operations.insert(further.operations.end(),
                              part->operations.begin(), part->operations.end());
  further.name = "further layer";
  further.kept.elements += last.kept.elements;
  further.kept.fourByte += last.kept.fourByte;
  further.parameters.push_back(
      {.elements = 2.0 * double(shape.hidden) * double(shape.hidden),
       .replicated = true,
       .sizes = {shape.hidden}});
  return further;
}

//===----------------------------------------------------------------------===//
// Recorded kernels
//===----------------------------------------------------------------------===//

namespace {

enum class Scope : uint8_t { Attention, Router, Experts };

/// The operation that a part of a layer begins with.
struct Beginning {
  std::string_view name;
  Scope scope;
};

} // namespace

/// Shared experts are recorded with the router.
static constexpr Beginning forwardBeginnings[] = {
    {"residual", Scope::Router},
    {"permute to send", Scope::Experts},
    {"dispatch", Scope::Experts},
    {"ffn in", Scope::Router}};
static constexpr Beginning backwardBeginnings[] = {
    {"unpermute", Scope::Experts},
    {"route", Scope::Router},
    {"projection", Scope::Attention}};

double planner::getRecordedPart(const Block &layer, const Recipe &recipe,
                                bool forward) {
  std::span<const Beginning> beginnings = backwardBeginnings;
  if (forward)
    beginnings = forwardBeginnings;
  Scope scope = forward ? Scope::Attention : Scope::Router;
  double recorded = 0, all = 0;
  for (const Operation &op : layer.operations) {
    if ((op.pass == Pass::Forward) != forward)
      continue;
    for (auto [name, begun] : beginnings)
      if (op.name == name)
        scope = begun;
    all += 1;
    recorded += recipe.recordsAll ||
                (scope == Scope::Attention && recipe.recordsAttention) ||
                (scope == Scope::Router && recipe.recordsRouter);
  }
  return all > 0 ? recorded / all : 0;
}
