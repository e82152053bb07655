//===- EmitKernel.cpp - The function of a cluster -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelShape.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <functional>

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// Kernels know 32-bit numbers only, and loops of at least one iteration.
static LogicalResult checkTypes(plan::ClusterOp cluster) {
  auto check = [](Operation *op, Type type) -> LogicalResult {
    auto tensor = cast<RankedTensorType>(type);
    Type element = tensor.getElementType();
    if (!element.isF32() && !element.isInteger(32))
      return op->emitOpError("computes with ")
             << element << "; kernels compute with f32 and i32";
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
        modes && (*modes)[index] && !getElementTypeOrSelf(type).isF32())
      return cluster.emitOpError("accumulates ") << type << ", not f32";
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

/// As many lanes as fit, but no more than the next power of two of the extent.
/// One sum over long rows takes wider blocks: longer runs of memory a row.
static int64_t chooseLanes(const IterationSpace &space, int64_t lanes,
                           bool columns) {
  int64_t extent =
      space.getInner() < 0 ? 1 : space.getGroups()[space.getInner()].extent;
  if (columns && space.getReductions().size() == 1 && extent >= 32 * lanes)
    lanes *= 4;
  return std::min<int64_t>(lanes, llvm::PowerOf2Ceil(extent));
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

static func::FuncOp createFunction(plan::ClusterOp cluster, ModuleOp module,
                                   StringRef name) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  Type index = builder.getI64Type();
  auto function = func::FuncOp::create(
      builder, cluster.getLoc(), name,
      builder.getFunctionType({pointer, pointer, index, index}, {}));
  function.addEntryBlock();
  return function;
}

/// Finds out which loops the cluster needs, and returns what emits them.
static FailureOr<std::function<void(Emitter &, KernelInfo &)>>
chooseLoops(plan::ClusterOp cluster, const IterationSpace &space) {
  using Emit = std::function<void(Emitter &, KernelInfo &)>;
  if (Operation *scatter = findScatter(cluster)) {
    if (failed(checkScatter(cluster, space, scatter)))
      return failure();
    return Emit([scatter](Emitter &emitter, KernelInfo &info) {
      emitScatter(emitter, scatter, info);
    });
  }
  if (needsColumns(space)) {
    FailureOr<ColumnShape> shape = analyzeColumns(cluster, space);
    if (failed(shape))
      return failure();
    return Emit([shape](Emitter &emitter, KernelInfo &info) {
      emitColumns(emitter, *shape, info);
    });
  }
  FailureOr<RowShape> shape = analyzeRows(cluster, space);
  if (failed(shape))
    return failure();
  return Emit([shape](Emitter &emitter, KernelInfo &info) {
    emitRows(emitter, *shape, info);
  });
}

LogicalResult codegen::emitKernel(plan::ClusterOp cluster, ModuleOp module,
                                  int64_t lanes, KernelInfo &info) {
  if (failed(checkTypes(cluster)))
    return failure();
  FailureOr<IterationSpace> space = IterationSpace::analyze(cluster);
  if (failed(space) || failed(checkOperands(cluster, *space)))
    return failure();
  auto emitLoops = chooseLoops(cluster, *space);
  if (failed(emitLoops))
    return failure();

  func::FuncOp function = createFunction(cluster, module, info.symbol);
  Block &entry = function.front();
  OpBuilder builder = OpBuilder::atBlockBegin(&entry);
  KernelFunction arguments{entry.getArgument(0), entry.getArgument(1),
                           entry.getArgument(2), entry.getArgument(3)};
  Emitter emitter(cluster, *space, builder, arguments, info,
                  chooseLanes(*space, lanes, needsColumns(*space)));
  (*emitLoops)(emitter, info);
  builder.setInsertionPointToEnd(&entry);
  func::ReturnOp::create(builder, cluster.getLoc());
  replaceDivisions(function);
  allowContraction(function);
  return success();
}
