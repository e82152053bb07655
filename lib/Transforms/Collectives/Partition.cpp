//===- Partition.cpp - Turn global tensors into one rank's blocks ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Dimensions that are split unevenly have padding on the last ranks. The
// invariant: what leaves an op that sums over such a dimension, what is stored
// and what is sent has zeros there. A value is *dirty* while it may not; masks
// are put only where a dirty value meets such a use, and kernels fuse them.
//
//===----------------------------------------------------------------------===//

#include "LowerReshard.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <limits>

namespace plait {
#define GEN_PASS_DEF_PARTITIONPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using dist::ShardingAttr;

namespace {

/// A dimension of a block that is longer than what it holds on some rank.
struct Padding {
  int64_t dim;
  StringAttr axis;
  int64_t chunk, limit;
};

/// Partitions one function.
class Partitioner {
public:
  Partitioner(func::FuncOp function, dist::MeshOp mesh)
      : function(function), mesh(mesh), builder(function.getContext()) {}

  LogicalResult run();

private:
  /// What an op's global types said, read before any of them changes.
  struct Global {
    FactorRule rule;
    SmallVector<ArrayAttr> axes; // per factor
    SmallVector<SmallVector<Padding>> operandPadding, resultPadding;
    SmallVector<ShardingAttr> operands, results;
  };
  Global describe(Operation *op);
  SmallVector<Padding> paddingOf(Value value);
  LogicalResult visit(Operation *op, Global &global);
  void maskOperand(OpOperand &operand, ArrayRef<Padding> padding, float fill);
  void maskOperands(Operation *op, const Global &global);
  void localize(Operation *op, const Global &global);
  void localizeTypes();

  func::FuncOp function;
  dist::MeshOp mesh;
  OpBuilder builder;
  llvm::DenseSet<Value> dirty;
};

} // namespace

SmallVector<Padding> Partitioner::paddingOf(Value value) {
  SmallVector<Padding> result;
  ShardingAttr sharding = ShardingAttr::of(value);
  if (!sharding)
    return result;
  auto type = cast<RankedTensorType>(value.getType());
  for (auto [dim, axes] : llvm::enumerate(sharding.getDims())) {
    int64_t extent = type.getDimSize(dim), blocks = mesh.getBlocks(axes);
    if (extent % blocks)
      result.push_back({static_cast<int64_t>(dim), cast<StringAttr>(axes[0]),
                        static_cast<int64_t>(llvm::divideCeil(extent, blocks)),
                        extent});
  }
  return result;
}

Partitioner::Global Partitioner::describe(Operation *op) {
  Global global;
  for (Value operand : op->getOperands()) {
    global.operandPadding.push_back(paddingOf(operand));
    global.operands.push_back(ShardingAttr::of(operand));
  }
  for (Value result : op->getResults()) {
    global.resultPadding.push_back(paddingOf(result));
    global.results.push_back(ShardingAttr::of(result));
  }
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  if (!shardable)
    return global;
  global.rule = shardable.getFactorRule();
  global.axes.resize(global.rule.factors.size());
  auto record = [&](ArrayRef<ShardingAttr> shardings,
                    ArrayRef<FactorRule::DimFactors> tensors) {
    for (auto [sharding, dims] : llvm::zip_equal(shardings, tensors))
      for (auto [dim, factor] : llvm::enumerate(dims))
        if (sharding && factor != FactorRule::kNone)
          global.axes[factor] = sharding.getDims()[dim];
  };
  record(global.operands, global.rule.operands);
  record(global.results, global.rule.results);
  return global;
}

void Partitioner::maskOperand(OpOperand &operand, ArrayRef<Padding> padding,
                              float fill) {
  builder.setInsertionPoint(operand.getOwner());
  Value value = operand.get();
  for (const Padding &pad : padding)
    value = nn::MaskPaddingOp::create(builder, value.getLoc(), value.getType(),
                                      value, pad.dim, pad.axis, pad.chunk,
                                      pad.limit, APFloat(fill));
  operand.set(value);
}

/// Puts masks before an op that reads padding: a reduction along it, or one
/// that stores, sends or returns.
void Partitioner::maskOperands(Operation *op, const Global &global) {
  bool computes = isa<ShardableOpInterface>(op);
  for (OpOperand &operand : op->getOpOperands()) {
    unsigned index = operand.getOperandNumber();
    SmallVector<Padding> sums, maxima;
    for (const Padding &pad : global.operandPadding[index]) {
      FactorKind kind = FactorKind::Sum;
      if (computes)
        kind = global.rule.factors[global.rule.operands[index][pad.dim]].kind;
      if (kind == FactorKind::Max)
        maxima.push_back(pad);
      else if (kind == FactorKind::Sum && dirty.contains(operand.get()))
        sums.push_back(pad);
    }
    maskOperand(operand, sums, 0.0f);
    maskOperand(operand, maxima, -std::numeric_limits<float>::infinity());
  }
}

/// Gives `op` the types of one rank, and tells it what it holds a part of.
void Partitioner::localize(Operation *op, const Global &global) {
  for (Value result : op->getResults())
    if (auto type = dyn_cast<RankedTensorType>(result.getType()))
      result.setType(mesh.getLocalType(type));
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  if (!shardable)
    return;
  for (auto [index, axes] : llvm::enumerate(global.axes)) {
    int64_t blocks = axes ? mesh.getBlocks(axes) : 1;
    int64_t size = global.rule.factors[index].size;
    if (blocks > 1)
      shardable.localizeFactor(index, cast<StringAttr>(axes[0]),
                               llvm::divideCeil(size, blocks), size);
  }
  bool readsDirty = llvm::any_of(op->getOperands(), [&](Value operand) {
    return dirty.contains(operand);
  });
  for (auto [result, padding] :
       llvm::zip_equal(op->getResults(), global.resultPadding))
    if (!padding.empty() && (readsDirty || !shardable.keepsZeroPadding()))
      dirty.insert(result);
}

LogicalResult Partitioner::visit(Operation *op, Global &global) {
  maskOperands(op, global);
  if (auto reshard = dyn_cast<dist::ReshardOp>(op)) {
    builder.setInsertionPoint(op);
    FailureOr<Value> moved =
        lowerReshard(builder, op->getLoc(), reshard.getInput(),
                     cast<RankedTensorType>(reshard.getType()),
                     global.operands[0], global.results[0], mesh);
    if (failed(moved))
      return failure();
    for (Operation *added = op->getPrevNode();
         added && added->getResults().size() == 1 &&
         added->getResult(0) != reshard.getInput() &&
         isa<dist::DistDialect>(added->getDialect());
         added = added->getPrevNode())
      added->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    reshard.getResult().replaceAllUsesWith(*moved);
    op->erase();
    return success();
  }
  localize(op, global);
  return success();
}

void Partitioner::localizeTypes() {
  Block &body = function.getBody().front();
  for (BlockArgument argument : body.getArguments())
    argument.setType(
        mesh.getLocalType(cast<RankedTensorType>(argument.getType())));
}

LogicalResult Partitioner::run() {
  Block &body = function.getBody().front();
  std::vector<std::pair<Operation *, Global>> ops;
  for (Operation &op : body)
    ops.push_back({&op, describe(&op)});
  localizeTypes();
  for (auto &[op, global] : ops)
    if (failed(visit(op, global)))
      return failure();
  function.setFunctionType(builder.getFunctionType(
      body.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
  return success();
}

namespace {
struct PartitionPass : plait::impl::PartitionPassBase<PartitionPass> {
  void runOnOperation() override {
    dist::MeshOp mesh = dist::MeshOp::find(getOperation());
    if (!mesh) {
      getOperation().emitError("has no mesh");
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (failed(Partitioner(function, mesh).run()))
        return signalPassFailure();
  }
};
} // namespace
