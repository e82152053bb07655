//===- My.cpp - What my.square_relu says of itself ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "My.h"

#include "plait/Dialect/NN/IR/NNBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace plait;

#include "MyDialect.cpp.inc"
#define GET_OP_CLASSES
#include "MyOps.cpp.inc"

using my::SquareReluOp;

void my::MyDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "MyOps.cpp.inc"
      >();
}

/// Every dimension may be split.
FactorRule SquareReluOp::getFactorRule() { return nn::elementwiseRule(*this); }

/// y = max(x, 0)²: y' = 2 max(x, 0), with max(x, 0) = x - min(x, 0).
SmallVector<Value> SquareReluOp::buildVJP(OpBuilder &builder,
                                          ArrayRef<Value> cotangents) {
  nn::NNBuilder nn(builder, getLoc());
  Value x = getInput();
  Value zero = nn.fillLike(x, 0.0);
  Value negative = nn.binary<nn::MinOp>(x, zero);
  Value positive = nn.sub(x, negative);
  Value slope = nn.scale(positive, 2.0);
  return {nn.mul(cotangents[0], slope)};
}

/// One element, or a vector of neighbours.
Value SquareReluOp::emitElement(ElementContext &context, ValueRange operands) {
  OpBuilder &builder = context.builder;
  Value zero = context.getConstant(builder.getF32FloatAttr(0.0));
  Value positive =
      arith::MaximumFOp::create(builder, context.loc, operands[0], zero);
  return arith::MulFOp::create(builder, context.loc, positive, positive);
}
