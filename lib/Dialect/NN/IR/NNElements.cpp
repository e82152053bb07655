//===- NNElements.cpp - The arithmetic of one element ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a kernel computes of each op, for one element or for a vector of
// neighbours: emitted into the loops that code generation makes, on processors
// and GPUs alike. All numbers are f32, whatever type a tensor is stored in;
// indices and ids are i32. The same ops are evaluated over ranges of numbers to
// derive what padding holds (plait/Interfaces/Padding.h).
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace plait;
using namespace plait::nn;

//===----------------------------------------------------------------------===//
// Elementwise arithmetic
//===----------------------------------------------------------------------===//

template <typename OpTy>
static Value emit(ElementContext &context, ValueRange operands) {
  return OpTy::create(context.builder, context.loc, operands);
}

/// A number of f32, or a vector of it: the context knows how many lanes there
/// are.
static Value constant(ElementContext &context, double value) {
  return context.getConstant(context.builder.getF32FloatAttr(value));
}

Value NegOp::emitElement(ElementContext &context, ValueRange operands) {
  return emit<arith::NegFOp>(context, operands);
}
/// Functions stay ops of the math dialect: by what they are approximated is
/// decided when kernels are lowered.
Value ExpOp::emitElement(ElementContext &context, ValueRange operands) {
  return emit<math::ExpOp>(context, operands);
}
Value LogOp::emitElement(ElementContext &context, ValueRange operands) {
  return emit<math::LogOp>(context, operands);
}
Value TanhOp::emitElement(ElementContext &context, ValueRange operands) {
  return emit<math::TanhOp>(context, operands);
}
Value ErfOp::emitElement(ElementContext &context, ValueRange operands) {
  return emit<math::ErfOp>(context, operands);
}
/// sin(x), or with an offset of a half cos(x).
///
/// x is n π + r with |r| up to π / 2, where n is a whole number and the offset:
/// then the sine is that of r but for a sign, and so is the cosine. π is a sum
/// of two floats, so that r is exact for some hundred thousand turns. Of its
/// Taylor series what is behind r^13 is less than a rounding.
static Value emitSine(ElementContext &context, Value x, double offset) {
  auto number = [&](double value) { return constant(context, value); };
  auto fma = [&](Value a, Value b, Value c) {
    return emit<math::FmaOp>(context, {a, b, c});
  };
  Value turns = fma(x, number(1 / M_PI), number(-offset));
  Value whole = emit<math::RoundEvenOp>(context, turns);
  Value n = emit<arith::AddFOp>(context, {whole, number(offset)});
  double high = float(M_PI);
  Value r = fma(n, number(-high), x);
  r = fma(n, number(high - M_PI), r);
  Value square = emit<arith::MulFOp>(context, {r, r});
  double coefficient = 1 / 6227020800.0; // 1 / 13!
  Value sum = number(coefficient);
  for (int power = 13; power > 1; power -= 2) {
    coefficient *= -power * (power - 1);
    sum = fma(sum, square, number(coefficient));
  }
  // 0 or a half of what is even or odd.
  Value half = emit<arith::MulFOp>(context, {whole, number(0.5)});
  Value floor = emit<math::FloorOp>(context, half);
  Value odd = emit<arith::SubFOp>(context, {half, floor});
  double sign = offset == 0 ? 1 : -1;
  Value signs = fma(odd, number(-4 * sign), number(sign));
  Value sine = emit<arith::MulFOp>(context, {sum, r});
  return emit<arith::MulFOp>(context, {sine, signs});
}

Value SinOp::emitElement(ElementContext &context, ValueRange operands) {
  return emitSine(context, operands[0], 0);
}
Value CosOp::emitElement(ElementContext &context, ValueRange operands) {
  return emitSine(context, operands[0], 0.5);
}
Value SqrtOp::emitElement(ElementContext &context, ValueRange operands) {
  return emit<math::SqrtOp>(context, operands);
}

/// The hardware's estimate of rsqrt is not accurate enough: divide.
Value RsqrtOp::emitElement(ElementContext &context, ValueRange operands) {
  Value root = emit<math::SqrtOp>(context, operands);
  return emit<arith::DivFOp>(context, {constant(context, 1.0), root});
}

/// 1 / (1 + exp(-x)): for large negative x the exponential is infinite and the
/// quotient 0, as it should be.
Value SigmoidOp::emitElement(ElementContext &context, ValueRange operands) {
  Value negated = emit<arith::NegFOp>(context, operands);
  Value power = emit<math::ExpOp>(context, negated);
  Value one = constant(context, 1.0);
  Value sum = emit<arith::AddFOp>(context, {one, power});
  return emit<arith::DivFOp>(context, {one, sum});
}

/// 1 where the comparison holds, else 0.
static Value emitCompare(ElementContext &context,
                         arith::CmpFPredicate predicate, Value a, Value b) {
  Value holds =
      arith::CmpFOp::create(context.builder, context.loc, predicate, a, b);
  Value one = constant(context, 1.0), zero = constant(context, 0.0);
  return arith::SelectOp::create(context.builder, context.loc, holds, one,
                                 zero);
}

Value IsZeroOp::emitElement(ElementContext &context, ValueRange operands) {
  return emitCompare(context, arith::CmpFPredicate::OEQ, operands[0],
                     constant(context, 0.0));
}

Value EqualOp::emitElement(ElementContext &context, ValueRange operands) {
  return emitCompare(context, arith::CmpFPredicate::OEQ, operands[0],
                     operands[1]);
}

Value GreaterOp::emitElement(ElementContext &context, ValueRange operands) {
  return emitCompare(context, arith::CmpFPredicate::OGT, operands[0],
                     operands[1]);
}

/// `type` in the shape of `like`: a scalar, or a vector.
static Type shapedLike(Value like, Type type) {
  auto vector = dyn_cast<VectorType>(like.getType());
  return vector ? Type(vector.clone(type)) : type;
}

/// A float beyond i32 would be undefined when converted: it is brought to what
/// f32 has next to the bounds first.
Value ConvertOp::emitElement(ElementContext &context, ValueRange operands) {
  OpBuilder &builder = context.builder;
  Value x = operands[0];
  if (getElementTypeOrSelf(getInput()).isInteger())
    return arith::SIToFPOp::create(builder, context.loc,
                                   shapedLike(x, builder.getF32Type()), x);
  Value least = constant(context, -0x1p31),
        most = constant(context, 0x1.fffffep30);
  x = emit<arith::MaxNumFOp>(context, {x, least});
  x = emit<arith::MinNumFOp>(context, {x, most});
  return arith::FPToSIOp::create(builder, context.loc,
                                 shapedLike(x, builder.getI32Type()), x);
}

Value AddOp::emitElement(ElementContext &context, ValueRange operands) {
  return emit<arith::AddFOp>(context, operands);
}
Value SubOp::emitElement(ElementContext &context, ValueRange operands) {
  return emit<arith::SubFOp>(context, operands);
}
Value MulOp::emitElement(ElementContext &context, ValueRange operands) {
  return emit<arith::MulFOp>(context, operands);
}
Value DivOp::emitElement(ElementContext &context, ValueRange operands) {
  return emit<arith::DivFOp>(context, operands);
}
// minimumf and not minnumf: a NaN stays one, as in PyTorch.
Value MinOp::emitElement(ElementContext &context, ValueRange operands) {
  return emit<arith::MinimumFOp>(context, operands);
}

Value ScaleOp::emitElement(ElementContext &context, ValueRange operands) {
  Value amount = context.getConstant(getAmountAttr());
  return emit<arith::MulFOp>(context, {operands[0], amount});
}

Value ShiftOp::emitElement(ElementContext &context, ValueRange operands) {
  Value amount = context.getConstant(getAmountAttr());
  return emit<arith::AddFOp>(context, {operands[0], amount});
}

/// Elements are in f32 whatever the type: see the op's description.
Value CastOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}

Value StopGradientOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}

Value FillOp::emitElement(ElementContext &context, ValueRange) {
  return context.getConstant(getAmountAttr());
}

//===----------------------------------------------------------------------===//
// Elements that depend on their place
//===----------------------------------------------------------------------===//

static Value compare(ElementContext &context, arith::CmpIPredicate predicate,
                     Value a, Value b) {
  return arith::CmpIOp::create(context.builder, context.loc, predicate, a, b);
}

static Value select(ElementContext &context, Value condition, Value yes,
                    Value no) {
  return arith::SelectOp::create(context.builder, context.loc, condition, yes,
                                 no);
}

/// ChunkOrder::getPosition, emitted.
static Value emitPosition(ElementContext &context, Value index,
                          ChunkOrder order) {
  auto number = [&](int64_t value) {
    return context.getConstant(context.builder.getI32IntegerAttr(value));
  };
  Value two = number(2 * order.getChunk());
  Value pair = emit<arith::DivUIOp>(context, {index, two});
  Value within = emit<arith::RemUIOp>(context, {index, two});
  Value chunk = number(order.getChunk());
  Value isFirst = compare(context, arith::CmpIPredicate::ult, within, chunk);
  Value before = emit<arith::MulIOp>(context, {pair, chunk});
  Value last = number(order.extent - 2 * order.getChunk());
  Value after = emit<arith::SubIOp>(context, {last, before});
  Value first = select(context, isFirst, before, after);
  return emit<arith::AddIOp>(context, {first, within});
}

Value nn::emitPosition(ElementContext &context, int64_t dim, BeginAttr begin) {
  Value index = context.getIndex(dim);
  if (!begin)
    return index;
  if (!begin.getTerms().empty()) {
    Value first = context.getRankValue(begin.getTerms());
    index = emit<arith::AddIOp>(context, {index, first});
  }
  return begin.isReordered() ? ::emitPosition(context, index, begin.getOrder())
                             : index;
}

/// Counts in the whole tensor, past its end in padding.
Value IotaOp::emitElement(ElementContext &context, ValueRange) {
  return emitPosition(context, getAlong(), getBeginAttr());
}

/// Compared with the index in the whole row: where the id is another rank's,
/// all elements here are zero.
Value PickOp::emitElement(ElementContext &context, ValueRange operands) {
  int64_t last = getInput().getType().getRank() - 1;
  Value index = emitPosition(context, last, getBeginAttr());
  Value here = compare(context, arith::CmpIPredicate::eq, index, operands[1]);
  return select(context, here, operands[0], constant(context, 0.0));
}

/// A number and not a condition: losses are multiplied by it, and targets are
/// counted by adding it up.
Value ValidOp::emitElement(ElementContext &context, ValueRange operands) {
  Value ignored = context.getConstant(getIgnoreAttr());
  Value counts =
      compare(context, arith::CmpIPredicate::ne, operands[0], ignored);
  return select(context, counts, constant(context, 1.0),
                constant(context, 0.0));
}

/// A key is seen if it is not behind the query, unless the op is bidirectional,
/// within the window, and in the query's document. A query always sees itself,
/// whatever `starts` says: a row without any key would be 0 / 0 in the softmax.
Value CausalMaskOp::emitElement(ElementContext &context, ValueRange operands) {
  int64_t rank = getInput().getType().getRank();
  Value query = emitPosition(context, rank - 2, getBeginAttr());
  Value key = context.getIndex(rank - 1);
  Value seen;
  auto require = [&](arith::CmpIPredicate predicate, Value a, Value b) {
    Value holds = compare(context, predicate, a, b);
    seen = seen ? emit<arith::AndIOp>(context, {seen, holds}) : holds;
  };
  if (!getBidirectional())
    require(arith::CmpIPredicate::sle, key, query);
  // One that is no shorter than the row hides nothing; it need not fit into the
  // 32 bits that indices have.
  int64_t keys = getInput().getType().getDimSize(rank - 1);
  if (auto window = getWindow(); window && int64_t(*window) < keys) {
    Value width =
        context.getConstant(context.builder.getI32IntegerAttr(*window));
    Value before = emit<arith::SubIOp>(context, {query, key});
    require(arith::CmpIPredicate::slt, before, width);
    if (getBidirectional()) {
      Value after = emit<arith::SubIOp>(context, {key, query});
      require(arith::CmpIPredicate::slt, after, width);
    }
  }
  if (getStarts()) {
    Value start = emit<arith::MinSIOp>(context, {operands[1], query});
    require(arith::CmpIPredicate::sge, key, start);
  }
  // A window of the whole row hides nothing.
  if (!seen)
    return operands[0];
  Value hidden = constant(context, -std::numeric_limits<float>::infinity());
  return select(context, seen, operands[0], hidden);
}

/// Selected and not multiplied by 0: padding may hold what is not a number.
Value MaskPaddingOp::emitElement(ElementContext &context, ValueRange operands) {
  Value index = emitPosition(context, getDim(), getBeginAttr());
  Value limit =
      context.getConstant(context.builder.getI32IntegerAttr(getLimit()));
  Value inside = compare(context, arith::CmpIPredicate::slt, index, limit);
  return select(context, inside, operands[0],
                context.getConstant(getAmountAttr()));
}

//===----------------------------------------------------------------------===//
// Elements that come from elsewhere: the kernel emitter finds the place
//===----------------------------------------------------------------------===//

FusionRole EmbeddingOp::getFusionRole() { return FusionRole::Gather; }
FusionRole EmbeddingGradOp::getFusionRole() { return FusionRole::ScatterAdd; }
FusionRole RotateHalfOp::getFusionRole() { return FusionRole::Reindex; }
FusionRole ReorderOp::getFusionRole() { return FusionRole::Reindex; }
FusionRole BroadcastOp::getFusionRole() { return FusionRole::Broadcast; }
FusionRole ReduceOp::getFusionRole() {
  return getKind() == ReduceKind::Sum ? FusionRole::ReduceSum
                                      : FusionRole::ReduceMax;
}

/// -x[j + n/2] for j < n/2, else x[j - n/2].
IndexMap RotateHalfOp::getIndexMap() {
  int64_t last = getInput().getType().getRank() - 1;
  int64_t extent = getInput().getType().getDimSize(last), half = extent / 2;
  return {last, {{half, half, /*negated=*/true}, {extent, -half}}};
}

/// A run for each chunk, but that neighbours that stay together are one.
IndexMap ReorderOp::getIndexMap() {
  ChunkOrder order = getOrder();
  IndexMap map;
  map.dim = getDim();
  for (int64_t first = 0; first < order.extent; first += order.getChunk()) {
    int64_t read =
        getInverse() ? order.getIndex(first) : order.getPosition(first);
    if (!map.pieces.empty() && map.pieces.back().shift == read - first)
      map.pieces.pop_back();
    map.pieces.push_back({first + order.getChunk(), read - first});
  }
  return map;
}

// The element is what the kernel emitter has found at the index.
Value EmbeddingOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}
Value EmbeddingGradOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}
Value ReorderOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}
Value RotateHalfOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}
Value BroadcastOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}
Value ReduceOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}
