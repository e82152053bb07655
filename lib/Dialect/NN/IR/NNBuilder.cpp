//===- NNBuilder.cpp - Arithmetic on tensors, as expressions ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Result types follow from the operands': who writes a formula says shapes only
// where something is repeated. Types are plain; operands may have shardings,
// which are not taken over, since what an op's result has is for its factor
// rule to say.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NNBuilder.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// No op where there is nothing to cast, so that formulas for f32 and bf16 can
/// be one.
Value NNBuilder::cast(Value x, Type element) {
  RankedTensorType type = typeOf(x);
  if (type.getElementType() == element)
    return x;
  return CastOp::create(builder, loc, dist::plainType(type).clone(element), x);
}

Value NNBuilder::fillLike(Value like, double amount) {
  return FillOp::create(builder, loc, dist::plainType(like.getType()),
                        builder.getF32FloatAttr(amount));
}

/// Dimension i of `x` is dimension `dims[i]` of `shape`.
Value NNBuilder::broadcast(Value x, ArrayRef<int64_t> shape,
                           ArrayRef<int64_t> dims) {
  auto type = RankedTensorType::get(shape, typeOf(x).getElementType());
  return BroadcastOp::create(builder, loc, type, x, dims);
}

Value NNBuilder::broadcastRows(Value x, Value like) {
  auto dims = llvm::to_vector(llvm::seq<int64_t>(0, typeOf(x).getRank()));
  return broadcast(x, typeOf(like).getShape(), dims);
}

Value NNBuilder::broadcastColumns(Value x, Value like) {
  return broadcast(x, typeOf(like).getShape(), {typeOf(like).getRank() - 1});
}

/// Over no dimension it is `x`: gradients of broadcasts that added none need no
/// case of their own.
Value NNBuilder::reduce(Value x, ArrayRef<int64_t> dims, ReduceKind kind) {
  if (dims.empty())
    return x;
  SmallVector<int64_t> shape;
  for (auto [dim, extent] : llvm::enumerate(typeOf(x).getShape()))
    if (!llvm::is_contained(dims, static_cast<int64_t>(dim)))
      shape.push_back(extent);
  auto type = RankedTensorType::get(shape, typeOf(x).getElementType());
  return ReduceOp::create(builder, loc, type, kind, x, dims);
}

Value NNBuilder::sumRows(Value x) {
  return reduce(x, {typeOf(x).getRank() - 1});
}

Value NNBuilder::sumColumns(Value x) {
  auto dims = llvm::to_vector(llvm::seq<int64_t>(0, typeOf(x).getRank() - 1));
  return reduce(x, dims);
}

/// Sums in one op; whether a kernel does it at once is decided when kernels are
/// formed.
Value NNBuilder::sumAll(Value x) {
  auto dims = llvm::to_vector(llvm::seq<int64_t>(0, typeOf(x).getRank()));
  return reduce(x, dims);
}

/// The spec is trusted to be well formed, since formulas write it; the verifier
/// checks extents.
Value NNBuilder::matmul(Value lhs, Value rhs, const Twine &spec, Type element) {
  std::string text = spec.str();
  auto [operands, result] = StringRef(text).split("->");
  auto [left, right] = operands.split(',');
  SmallVector<int64_t> shape;
  for (char letter : result) {
    size_t at = left.find(letter);
    // A letter that both have has one extent.
    shape.push_back(at != StringRef::npos
                        ? typeOf(lhs).getDimSize(at)
                        : typeOf(rhs).getDimSize(right.find(letter)));
  }
  auto type = RankedTensorType::get(
      shape, element ? element : typeOf(lhs).getElementType());
  return MatmulOp::create(builder, loc, type, lhs, rhs,
                          builder.getStringAttr(text));
}
