//===- NNGradients.cpp - Vector-Jacobian products of nn ops -----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rule returns a gradient for each operand, with a plain type;
// nn-differentiate gives it a sharding, casts it to the type that the operand's
// gradient has, and drops what nobody needs. Which operands and results a rule
// reads decides what is kept for the backward pass: exp reads its result, and
// div both operands. Comparisons of forward values that a rule makes are moved
// into the forward pass (ComparesFloats), so that rules may compare as they
// like.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NNBuilder.h"
#include "llvm/ADT/Sequence.h"

#include <cmath>

using namespace mlir;
using namespace plait;
using namespace plait::nn;

using Values = SmallVector<Value>;

//===----------------------------------------------------------------------===//
// Contractions, lookups
//===----------------------------------------------------------------------===//

/// y = Σ a b: da = Σ dy b, db = Σ dy a, over the letters that are not theirs.
Values MatmulOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  StringRef a = getLhsLetters(), b = getRhsLetters(), y = getResultLetters();
  // Of a result that is wider than the operands, too.
  Value dy = nn.castLike(cotangents[0], getLhs());
  Value da = nn.matmul(dy, getRhs(), y + "," + b + "->" + a,
                       getGradientElementType(getLhs()));
  // The gradient of a weight keeps the weight's operand order, so that the
  // matmul has the activations on the left in both.
  Value db = nn.matmul(getLhs(), dy, a + "," + y + "->" + b,
                       getGradientElementType(getRhs()));
  return {da, db};
}

/// Rows of the gradient are added up where the ids say; ids have no gradient.
Values EmbeddingOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  RankedTensorType type = dist::plainType(getTable().getType());
  return {EmbeddingGradOp::create(
              builder, getLoc(), type.clone(getGradientElementType(getTable())),
              cotangents[0], getIds(), BeginAttr()),
          Value()};
}

/// Picking is its own transpose.
Values PickOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  return {PickOp::create(builder, getLoc(),
                         dist::plainType(getInput().getType()), cotangents[0],
                         getIds(), BeginAttr()),
          Value()};
}

//===----------------------------------------------------------------------===//
// Normalisation
//===----------------------------------------------------------------------===//

/// Computes, with x̂ = (x - mean) rstd and dx̂ = dy w:
/// dx = rstd (dx̂ - mean(dx̂) - x̂ mean(dx̂ x̂)), dw = Σ dy x̂, db = Σ dy.
Values LayerNormOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  Value x = nn.widen(getInput()), dy = nn.widen(cotangents[0]);
  double inverse = 1.0 / getInput().getType().getShape().back();
  Value mean = nn.broadcastRows(getMean(), x);
  // From the statistics that the forward op has as results, not computed again.
  Value rstd = nn.broadcastRows(getRstd(), x);
  Value centred = nn.sub(x, mean);
  Value normal = nn.mul(centred, rstd);
  Value weight = nn.widen(nn.broadcastColumns(getWeight(), x));
  Value dNormal = nn.mul(dy, weight);
  Value meanGrad = nn.scale(nn.sumRows(dNormal), inverse);
  Value projected = nn.mul(dNormal, normal);
  Value meanProjected = nn.scale(nn.sumRows(projected), inverse);
  Value inner = nn.sub(dNormal, nn.broadcastRows(meanGrad, x));
  Value along = nn.mul(normal, nn.broadcastRows(meanProjected, x));
  Value dx = nn.mul(nn.sub(inner, along), rstd);
  Value dw = nn.sumColumns(nn.mul(dy, normal));
  Value db = nn.sumColumns(dy);
  return {dx, dw, db};
}

/// Computes, with x̂ = x rstd and dx̂ = dy w: dx = rstd (dx̂ - x̂ mean(dx̂
/// x̂)).
Values RMSNormOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  Value x = nn.widen(getInput()), dy = nn.widen(cotangents[0]);
  Value rstd = nn.broadcastRows(getRstd(), x);
  Value normal = nn.mul(x, rstd);
  Value weight = nn.widen(nn.broadcastColumns(getWeight(), x));
  Value dNormal = nn.mul(dy, weight);
  Value projected = nn.mul(dNormal, normal);
  Value mean = nn.scale(nn.sumRows(projected),
                        1.0 / getInput().getType().getShape().back());
  Value along = nn.mul(normal, nn.broadcastRows(mean, x));
  Value dx = nn.mul(nn.sub(dNormal, along), rstd);
  Value dw = nn.sumColumns(nn.mul(dy, normal));
  return {dx, dw};
}

//===----------------------------------------------------------------------===//
// Activations, rotation
//===----------------------------------------------------------------------===//

/// A rotation's transpose is the rotation back, times the same amplitude.
Values RopeOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  return {RopeOp::create(
      builder, getLoc(), dist::plainType(getInput().getType()), cotangents[0],
      getThetaAttr(), getScalingAttr(), getYarnAttr(), getRotatedAttr(),
      getInverse() ? UnitAttr() : builder.getUnitAttr(), getBeginAttr())};
}

/// A permutation: its gradient is the inverse one.
Values ReorderOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  return {ReorderOp::create(builder, getLoc(),
                            dist::plainType(cotangents[0].getType()),
                            cotangents[0], getDimAttr(), getChunksAttr(),
                            getInverse() ? UnitAttr() : builder.getUnitAttr())};
}

/// Builds an op of its own name: a library multiplies by the slope while it
/// computes the matmul whose result this gradient is of (nn-fuse-epilogues).
Values GeluOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  return {GeluGradOp::create(builder, getLoc(),
                             dist::plainType(getInput().getType()),
                             cotangents[0], getInput(), getApproximateAttr())};
}

/// y = x σ(x): y' = σ (1 + x (1 - σ)).
Values SiluOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  Value x = nn.widen(getInput());
  Value sigma = nn.unary<SigmoidOp>(x);
  Value rest = nn.shift(nn.neg(sigma), 1.0);
  Value bend = nn.shift(nn.mul(x, rest), 1.0);
  Value slope = nn.mul(sigma, bend);
  return {nn.mul(nn.widen(cotangents[0]), slope)};
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

Values NegOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  return {NNBuilder(builder, getLoc()).neg(cotangents[0])};
}

Values ExpOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  return {NNBuilder(builder, getLoc()).mul(cotangents[0], getResult())};
}

Values LogOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  return {NNBuilder(builder, getLoc()).div(cotangents[0], getInput())};
}

/// 1 - y².
Values TanhOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  Value slope = nn.shift(nn.neg(nn.mul(getResult(), getResult())), 1.0);
  return {nn.mul(cotangents[0], slope)};
}

Values SinOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  return {nn.mul(cotangents[0], nn.unary<CosOp>(getInput()))};
}

Values CosOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  return {nn.neg(nn.mul(cotangents[0], nn.unary<SinOp>(getInput())))};
}

/// 2 / √π · exp(-x²).
Values ErfOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  Value bell = nn.exp(nn.neg(nn.mul(getInput(), getInput())));
  Value slope = nn.scale(bell, M_2_SQRTPI);
  return {nn.mul(cotangents[0], slope)};
}

/// 1 / (2 y).
Values SqrtOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  return {nn.scale(nn.div(cotangents[0], getResult()), 0.5)};
}

/// -y³ / 2.
Values RsqrtOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  Value y = getResult();
  Value cube = nn.mul(nn.mul(y, y), y);
  return {nn.scale(nn.mul(cotangents[0], cube), -0.5)};
}

/// y (1 - y).
Values SigmoidOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  Value y = getResult();
  Value slope = nn.mul(y, nn.shift(nn.neg(y), 1.0));
  return {nn.mul(cotangents[0], slope)};
}

Values AddOp::buildVJP(OpBuilder &, ArrayRef<Value> cotangents) {
  return {cotangents[0], cotangents[0]};
}

Values SubOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  return {cotangents[0], NNBuilder(builder, getLoc()).neg(cotangents[0])};
}

Values MulOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  Value da = nn.mul(cotangents[0], getRhs());
  Value db = nn.mul(cotangents[0], getLhs());
  return {da, db};
}

/// da = dy / b, db = -da · a / b: no square of b, which could overflow.
Values DivOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  Value da = nn.div(cotangents[0], getRhs());
  Value db = nn.neg(nn.mul(da, nn.div(getLhs(), getRhs())));
  return {da, db};
}

/// Piecewise constant.
Values IsZeroOp::buildVJP(OpBuilder &, ArrayRef<Value>) { return {Value()}; }
Values EqualOp::buildVJP(OpBuilder &, ArrayRef<Value>) {
  return {Value(), Value()};
}
Values GreaterOp::buildVJP(OpBuilder &, ArrayRef<Value>) {
  return {Value(), Value()};
}
Values ConvertOp::buildVJP(OpBuilder &, ArrayRef<Value>) { return {Value()}; }

/// The smaller one gets the gradient; equal ones share it, as torch.minimum
/// has it.
Values MinOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  Value isLhs = nn.widen(nn.equal(getLhs(), getResult()));
  Value isRhs = nn.widen(nn.equal(getRhs(), getResult()));
  Value count = nn.add(isLhs, isRhs);
  Value share = nn.div(nn.widen(cotangents[0]), count);
  Value da = nn.mul(share, isLhs);
  Value db = nn.mul(share, isRhs);
  return {da, db};
}

Values ScaleOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  double amount = getAmount().convertToDouble();
  return {NNBuilder(builder, getLoc()).scale(cotangents[0], amount)};
}

Values ShiftOp::buildVJP(OpBuilder &, ArrayRef<Value> cotangents) {
  return {cotangents[0]};
}

/// The differentiation pass casts gradients to their primals' types.
Values CastOp::buildVJP(OpBuilder &, ArrayRef<Value> cotangents) {
  return {cotangents[0]};
}

Values StopGradientOp::buildVJP(OpBuilder &, ArrayRef<Value>) {
  return {Value()};
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

/// Adds up what was repeated, in f32: there may be many of it. Where the input
/// has its dimensions in another order a matmul with ones does both.
Values BroadcastOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  Value wide = nn.widen(cotangents[0]);
  ArrayRef<int64_t> shape = getResult().getType().getShape();
  SmallVector<int64_t> added, extents;
  for (auto [dim, extent] : llvm::enumerate(shape))
    if (!llvm::is_contained(getDims(), int64_t(dim))) {
      added.push_back(dim);
      extents.push_back(extent);
    }
  if (llvm::is_sorted(getDims()))
    return {nn.reduce(wide, added)};
  auto letter = [](int64_t dim) { return char('a' + dim); };
  auto letters = [&](auto dims) {
    auto mapped = llvm::map_range(dims, letter);
    return std::string(mapped.begin(), mapped.end());
  };
  auto type = dist::plainType(wide.getType());
  Value ones = FillOp::create(builder, getLoc(), type.clone(extents),
                              builder.getF32FloatAttr(1));
  return {nn.matmul(wide, ones,
                    letters(llvm::seq<int64_t>(shape.size())) + "," +
                        letters(added) + "->" + letters(getDims()))};
}

Values ReduceOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  RankedTensorType type = getInput().getType();
  SmallVector<int64_t> kept;
  for (int64_t dim : llvm::seq(type.getRank()))
    if (!llvm::is_contained(getDims(), dim))
      kept.push_back(dim);
  if (getKind() == ReduceKind::Sum)
    return {nn.broadcast(cotangents[0], type.getShape(), kept)};
  // The elements that attain the maximum share its gradient equally, as those
  // of torch.amax do.
  Value top = nn.broadcast(getResult(), type.getShape(), kept);
  Value attained = nn.widen(nn.equal(getInput(), top));
  Value count = nn.reduce(attained, getDims());
  Value share = nn.div(nn.widen(cotangents[0]), count);
  return {nn.mul(nn.broadcast(share, type.getShape(), kept), attained)};
}
