//===- EmitKernel.cpp - What all kernels have in common -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelShape.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// Kernels know 32-bit numbers and their halves, and loops of at least one
/// iteration.
static LogicalResult checkTypes(plan::ClusterOp cluster) {
  auto check = [](Operation *op, Type type) -> LogicalResult {
    auto tensor = cast<RankedTensorType>(type);
    Type element = tensor.getElementType();
    if (!element.isF32() && !element.isBF16() && !element.isInteger(32))
      return op->emitOpError("computes with ")
             << element << "; kernels compute with f32, bf16 and i32";
    if (!tensor.hasStaticShape() || tensor.getNumElements() == 0)
      return op->emitOpError("computes with ")
             << tensor << "; kernels need static extents of at least 1";
    return success();
  };
  for (Type type : cluster.getOperandTypes())
    if (failed(check(cluster, type)))
      return failure();
  for (Operation &op : cluster.getBody().front().without_terminator())
    for (Type type : op.getResultTypes())
      if (failed(check(&op, type)))
        return failure();
  for (auto [index, type] : llvm::enumerate(cluster.getResultTypes()))
    if (auto modes = cluster.getAccumulate();
        modes && (*modes)[index] && getElementTypeOrSelf(type).isInteger())
      return cluster.emitOpError("accumulates ")
             << type << ", which is not of floats";
  return success();
}

/// Roles that address memory in their own way read inputs of the cluster.
static LogicalResult checkOperands(plan::ClusterOp cluster,
                                   const IterationSpace &space) {
  for (Operation &op : cluster.getBody().front().without_terminator()) {
    FusionRole role = getRole(&op);
    if (role != FusionRole::Gather && role != FusionRole::RotateHalf &&
        role != FusionRole::Slice)
      continue;
    OpOperand &operand = op.getOpOperand(0);
    if (!isa<BlockArgument>(operand.get()))
      return op.emitOpError("reads elsewhere in a tensor that its own cluster "
                            "computes");
    ArrayRef<int64_t> dims = space.getDims(operand);
    if (role == FusionRole::RotateHalf &&
        space.getGroup(dims.back()) != space.getInner())
      return op.emitOpError("rotates a dimension that is not its cluster's "
                            "last");
  }
  return success();
}

/// Dividing many elements by one number: multiplying by its reciprocal costs
/// half an ulp and a tenth of the time.
static void replaceDivisions(func::FuncOp function) {
  function.walk([](arith::DivFOp op) {
    auto splat = op.getRhs().getDefiningOp<vector::BroadcastOp>();
    if (!splat || isa<VectorType>(splat.getSource().getType()))
      return;
    ImplicitLocOpBuilder builder(op.getLoc(), splat);
    Value one = arith::ConstantOp::create(builder, builder.getF32FloatAttr(1));
    Value inverse = arith::DivFOp::create(builder, one, splat.getSource());
    Value factors = vector::BroadcastOp::create(builder, op.getType(), inverse);
    builder.setInsertionPoint(op);
    Value product = arith::MulFOp::create(builder, op.getLhs(), factors);
    op.replaceAllUsesWith(product);
    op.erase();
  });
}

/// A product may keep its unrounded value until it is added.
static void allowContraction(func::FuncOp function) {
  function.walk([&](arith::ArithFastMathInterface op) {
    auto flags = arith::FastMathFlagsAttr::get(function.getContext(),
                                               arith::FastMathFlags::contract);
    op->setAttr(op.getFastMathAttrName(), flags);
  });
}

FailureOr<IterationSpace> codegen::analyzeCluster(plan::ClusterOp cluster) {
  if (failed(checkTypes(cluster)))
    return failure();
  FailureOr<IterationSpace> space = IterationSpace::analyze(cluster);
  if (failed(space) || failed(checkOperands(cluster, *space)))
    return failure();
  return space;
}

void codegen::emitLoops(Emitter &emitter, Workers &workers,
                        const KernelShape &shape, KernelInfo &info) {
  if (std::holds_alternative<ElementShape>(shape))
    return emitElementwise(emitter, workers, info);
  if (auto *rows = std::get_if<RowShape>(&shape))
    return emitRows(emitter, workers, *rows, info);
  if (auto *columns = std::get_if<ColumnShape>(&shape))
    return emitColumns(emitter, workers, *columns, info);
  emitScatter(emitter, workers, std::get<ScatterShape>(shape), info);
}

void codegen::finishFunction(func::FuncOp function) {
  OpBuilder builder = OpBuilder::atBlockEnd(&function.front());
  func::ReturnOp::create(builder, function.getLoc());
  replaceDivisions(function);
  allowContraction(function);
}
