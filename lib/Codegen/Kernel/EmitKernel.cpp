//===- EmitKernel.cpp - Emission of kernel functions ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Chooses the loops by the kernel's shape, and what is done to a whole kernel
// when its loops are there: the liberties with arithmetic that kernels take,
// which are the same for all machines.
//
//===----------------------------------------------------------------------===//

#include "EmitKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// Dividing many elements by one number: multiplying by its reciprocal costs
/// half an ulp and a tenth of the time.
static void replaceDivisions(func::FuncOp function) {
  function.walk([](arith::DivFOp op) {
    // A division by a vector of different numbers stays one, and so does a
    // scalar one.
    auto splat = op.getRhs().getDefiningOp<vector::BroadcastOp>();
    if (!splat || isa<VectorType>(splat.getSource().getType()))
      return;
    ImplicitLocOpBuilder builder(op.getLoc(), splat);
    Value one = arith::ConstantOp::create(builder, builder.getF32FloatAttr(1));
    Value inverse = arith::DivFOp::create(builder, one, splat.getSource());
    Value factors = vector::BroadcastOp::create(builder, op.getType(), inverse);
    // The reciprocal stands where the number is broadcast, outside of the loop
    // where that is; the multiplication where the division was.
    builder.setInsertionPoint(op);
    Value product = arith::MulFOp::create(builder, op.getLhs(), factors);
    op.replaceAllUsesWith(product);
    op.erase();
  });
}

/// A product may keep its unrounded value until it is added.
/// Nothing else is relaxed: reassociation would let the order of sums depend on
/// the compiler.
static void allowContraction(func::FuncOp function) {
  function.walk([&](arith::ArithFastMathInterface op) {
    auto flags = arith::FastMathFlagsAttr::get(function.getContext(),
                                               arith::FastMathFlags::contract);
    op->setAttr(op.getFastMathAttrName(), flags);
  });
}

/// A variant of KernelShape has an emitter each; the last one needs no test.
void codegen::emitLoops(Emitter &emitter, Workers &workers,
                        const KernelShape &shape, KernelInfo &info) {
  if (std::holds_alternative<ElementShape>(shape))
    return emitElementwise(emitter, workers, info);
  if (auto *rows = std::get_if<RowShape>(&shape))
    return emitRows(emitter, workers, *rows, info);
  if (auto *columns = std::get_if<ColumnShape>(&shape))
    return emitColumns(emitter, workers, *columns, info);
  if (auto *row = std::get_if<RowOpShape>(&shape))
    return emitRowOp(emitter, workers, *row, info);
  emitScatter(emitter, workers, std::get<ScatterShape>(shape), info);
}

void codegen::finishFunction(func::FuncOp function) {
  OpBuilder builder = OpBuilder::atBlockEnd(&function.front());
  func::ReturnOp::create(builder, function.getLoc());
  replaceDivisions(function);
  allowContraction(function);
}
