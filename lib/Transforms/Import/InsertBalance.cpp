//===- InsertBalance.cpp - Balance the experts of routers -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What balances experts is written as nn ops behind each router, so that how it
// is split, differentiated, recomputed and proven needs no rule of its own. A
// sum over tokens that counts is one over the whole batch however it is cut:
// what is quadratic in such a sum is so within a sequence.
//
// The gradient of a bias is of a term that is zero, bias - bias, times the
// count of its expert. It is added up once in a backward pass, over
// microbatches and replicas, as all gradients are.
//
// Sums go from layer to layer, so that a stage of a pipeline hands on one
// number.
//
//===----------------------------------------------------------------------===//

#include "FindInModel.h"

#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"
#include "plait/Dialect/NN/IR/NamedLosses.h"
#include "plait/Import/HuggingFace.h"
#include "plait/Transforms/Passes.h"

namespace plait {
#define GEN_PASS_DEF_INSERTBALANCEPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using nn::NNBuilder;

namespace {
/// Holds what is asked for.
struct Terms {
  std::optional<double> bias, sequence, z;
  bool load = false;
};

/// A sum over the layers, which is in the loss or only reported.
struct Sum {
  StringRef name;
  bool isTrained;
  Value value;
};

/// Writes what belongs to one router.
class RouterTerms {
public:
  RouterTerms(NNBuilder &nn, nn::RouteOp route, Value targets);

  Value buildBias(Value bias);
  Value buildSequence(double factor);
  Value buildZ(double factor);
  Value buildLoad();

private:
  Value countChoices();
  Value getShares();
  Value sumSequences(Value x) { return nn.reduce(x, {1}); }

  NNBuilder &nn;
  nn::RouteOp route;
  Value logits, valid; // of each token; valid: 1 where it counts
  int64_t experts, choices;
};
} // namespace

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

RouterTerms::RouterTerms(NNBuilder &nn, nn::RouteOp route, Value targets)
    : nn(nn), route(route), logits(nn.widen(route.getLogits())),
      experts(shapeOf(logits).back()), choices(route.getChoices()) {
  auto type = cast<RankedTensorType>(targets.getType());
  valid = nn::ValidOp::create(nn.builder, nn.loc,
                              type.clone(nn.builder.getF32Type()), targets,
                              nn.builder.getI32IntegerAttr(kIgnoredTarget));
}

/// 1 for each token that counts and each of its experts.
Value RouterTerms::countChoices() {
  SmallVector<int64_t> shape(shapeOf(route.getIds()));
  shape.push_back(experts);
  auto type = RankedTensorType::get(shape, nn.builder.getF32Type());
  Value ones = nn::FillOp::create(nn.builder, nn.loc, type,
                                  nn.builder.getF32FloatAttr(1.0));
  Value picked = nn::PickOp::create(nn.builder, nn.loc, type, ones,
                                    route.getIds(), nn::BeginAttr());
  Value chosen = nn.reduce(picked, {2});
  return nn.mul(chosen, nn.broadcastRows(valid, chosen));
}

/// `experts` times the count less the count of all: whole numbers, whose sums
/// are exact up to 2^24.
Value RouterTerms::buildBias(Value bias) {
  Value chosen = countChoices();
  Value more = nn.scale(chosen, static_cast<double>(experts));
  Value all = nn.scale(valid, static_cast<double>(choices));
  Value uneven = nn.sub(more, nn.broadcastRows(all, more));
  Value repeated = nn.broadcastColumns(bias, uneven);
  Value zero = nn.sub(repeated, nn.unary<nn::StopGradientOp>(repeated));
  Value term = nn.mul(zero, uneven);
  return nn.sumAll(nn.sumRows(term));
}

/// The scores of a token over their sum.
Value RouterTerms::getShares() {
  Value scores;
  if (route.getScores() == nn::Scores::Sigmoid) {
    scores = nn.unary<nn::SigmoidOp>(logits);
  } else {
    Value top = nn.unary<nn::StopGradientOp>(
        nn.reduce(logits, {2}, nn::ReduceKind::Max));
    scores = nn.exp(nn.sub(logits, nn.broadcastRows(top, logits)));
  }
  return nn.div(scores, nn.broadcastRows(nn.sumRows(scores), scores));
}

/// Returns, of T tokens of a sequence, T · Σ f P, where f is the share of
/// tokens that an expert has, over that of an even routing, and P the mean of
/// its shares: what is divided by the number of all tokens later is a mean over
/// them (DeepSeek-AI 2024, equations 17 to 20).
Value RouterTerms::buildSequence(double factor) {
  Value counts = sumSequences(countChoices());
  Value shares = getShares();
  Value sums = sumSequences(nn.mul(shares, nn.broadcastRows(valid, shares)));
  Value tokens = sumSequences(valid);
  // A sequence without targets is 0 / 1.
  Value divisor = nn.add(tokens, nn.unary<nn::IsZeroOp>(tokens));
  Value uneven = nn.div(nn.sumRows(nn.mul(counts, sums)), divisor);
  return nn.scale(nn.sumAll(uneven), factor * experts / choices);
}

/// Zoph et al. 2022, "ST-MoE: Designing Stable and Transferable Sparse Expert
/// Models".
Value RouterTerms::buildZ(double factor) {
  Value top =
      nn.unary<nn::StopGradientOp>(nn.reduce(logits, {2}, nn::ReduceKind::Max));
  Value powers = nn.exp(nn.sub(logits, nn.broadcastRows(top, logits)));
  Value log = nn.add(nn.unary<nn::LogOp>(nn.sumRows(powers)), top);
  return nn.scale(nn.sumAll(nn.mul(nn.mul(log, log), valid)), factor);
}

/// T times the most tokens of an expert over their mean: the number of tokens
/// falls out.
Value RouterTerms::buildLoad() {
  Value counts = sumSequences(countChoices());
  Value most = nn.reduce(counts, {1}, nn::ReduceKind::Max);
  return nn.scale(nn.sumAll(most), static_cast<double>(experts) / choices);
}

namespace {
struct InsertBalancePass
    : plait::impl::InsertBalancePassBase<InsertBalancePass> {
  using InsertBalancePassBase::InsertBalancePassBase;

  LogicalResult parse(StringRef text, Terms &terms) {
    auto [kind, number] = text.split('=');
    if (text == "load") {
      terms.load = true;
      return success();
    }
    std::optional<double> *term = kind == "bias"       ? &terms.bias
                                  : kind == "sequence" ? &terms.sequence
                                  : kind == "z"        ? &terms.z
                                                       : nullptr;
    double value;
    constexpr double most = 1e6;
    if (!term || number.getAsDouble(value) || !(value >= 0 && value <= most))
      return getOperation().emitError("`balance` \"")
             << text
             << "\" is not bias=RATE, sequence=FACTOR or z=FACTOR with a "
                "number "
                "of 0 to 1,000,000, or load";
    *term = value;
    return success();
  }

  /// A number of its own for each router is what it chooses by.
  FailureOr<Value> findBias(nn::RouteOp route, double rate) {
    Value bias = route.getBias();
    if (auto stop = bias ? bias.getDefiningOp<nn::StopGradientOp>()
                         : nn::StopGradientOp())
      bias = stop.getInput();
    auto read = bias ? bias.getDefiningOp<nn::ReadOp>() : nn::ReadOp();
    if (!read)
      return route.emitOpError(
          "has no bias that is a parameter, by which `balance` bias= would "
          "balance it; sequence= needs none");
    auto parameter = SymbolTable::lookupNearestSymbolFrom<nn::ParameterOp>(
        route, read.getSymbolAttr());
    parameter.removeRateAttr();
    parameter.removeDecayAttr();
    parameter.setBalanceAttr(Builder(&getContext()).getF64FloatAttr(rate));
    return bias;
  }

  /// Behind all other ops of the layer, so that what layers hand on comes in
  /// one order.
  static void setInsertionPoint(OpBuilder &builder, nn::RouteOp route) {
    Attribute layer = route->getAttr(nn::kLayerAttr);
    Operation *last = route;
    for (Operation *op = route->getNextNode(); layer && op;
         op = op->getNextNode())
      if (op->getAttr(nn::kLayerAttr) == layer)
        last = op;
    builder.setInsertionPointAfter(last);
  }

  LogicalResult insert(nn::RouteOp route, const Terms &terms, Value targets,
                       MutableArrayRef<Sum> sums) {
    if (shapeOf(route.getIds()).drop_back() != shapeOf(targets))
      return route.emitOpError("routes ")
             << route.getLogits().getType() << ", and `balance` is for tokens "
             << "of the shape of targets";
    nn::LayerListener listener(route);
    OpBuilder builder(&getContext(), &listener);
    setInsertionPoint(builder, route);
    NNBuilder nn(builder, route.getLoc());
    RouterTerms router(nn, route, targets);
    auto add = [&](Sum &sum, Value value) {
      sum.value = sum.value ? nn.add(sum.value, value) : value;
    };
    if (terms.bias) {
      FailureOr<Value> bias = findBias(route, *terms.bias);
      if (failed(bias))
        return failure();
      add(sums[0], router.buildBias(*bias));
    }
    if (terms.sequence)
      add(sums[1], router.buildSequence(*terms.sequence));
    if (terms.z)
      add(sums[2], router.buildZ(*terms.z));
    if (terms.load)
      add(sums[3], router.buildLoad());
    return success();
  }

  /// Adds to the loss, and returns the named ones.
  static LogicalResult finish(func::FuncOp loss, ArrayRef<Sum> sums) {
    Operation *end = loss.getBody().front().getTerminator();
    OpBuilder builder(end);
    NNBuilder nn(builder, loss.getLoc());
    for (const Sum &sum : sums) {
      if (!sum.value)
        continue;
      if (sum.isTrained)
        end->setOperand(0, nn.add(end->getOperand(0), sum.value));
      if (sum.name.empty())
        continue;
      unsigned index = loss.getNumResults();
      auto name = builder.getDictionaryAttr(builder.getNamedAttr(
          nn::kNamedLossAttr, builder.getStringAttr(sum.name)));
      if (failed(loss.insertResult(index, sum.value.getType(), name)))
        return failure();
      end->insertOperands(index, sum.value);
    }
    return success();
  }

  LogicalResult balance(func::FuncOp loss, const Terms &terms) {
    auto routes = llvm::to_vector(loss.getOps<nn::RouteOp>());
    if (routes.empty())
      return loss.emitError("@loss has no router whose experts `balance` "
                            "would balance");
    Sum sums[] = {{"", true, {}},
                  {"balance", true, {}},
                  {"router_z", true, {}},
                  {"load", false, {}}};
    for (nn::RouteOp route : routes)
      if (failed(insert(route, terms, loss.getArgument(1), sums)))
        return failure();
    if (Sum &load = sums[3]; load.value) {
      OpBuilder builder(loss.getBody().front().getTerminator());
      NNBuilder nn(builder, loss.getLoc());
      load.value = nn.scale(load.value, 1.0 / routes.size());
    }
    return finish(loss, sums);
  }

  void runOnOperation() override {
    auto loss =
        findModel(getOperation(), "in which experts are not balanced any more");
    Terms asked;
    if (failed(loss))
      return signalPassFailure();
    if (terms.empty())
      return;
    for (const std::string &text : terms)
      if (failed(parse(text, asked)))
        return signalPassFailure();
    if (failed(balance(*loss, asked)))
      signalPassFailure();
  }
};
} // namespace
