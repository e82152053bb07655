//===- Partition.cpp - Turn global tensors into one rank's blocks ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops get the types of one rank's block, reshards become collectives, and
// padding is masked where it would count (PaddingAnalysis.h).
//
// What changes is types and reshards, and which numbers an op is told about the
// part that it holds; ops themselves stay, each computing on a block what it
// computed on the whole. That this is right follows from the factor rules,
// which the verifier has held against the shardings of each op.
//
//===----------------------------------------------------------------------===//

#include "LowerReshard.h"
#include "PaddingAnalysis.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <deque>
#include <limits>

namespace plait {
#define GEN_PASS_DEF_PARTITIONPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using dist::ShardingAttr;

namespace {

/// Partitions one function.
class Partitioner {
public:
  Partitioner(func::FuncOp function, dist::MeshOp mesh)
      : function(function), mesh(mesh), builder(function.getContext()),
        padding(function, mesh),
        splits(llvm::any_of(mesh.getSizes(),
                            [](int64_t size) { return size > 1; })) {}

  LogicalResult run();

private:
  /// The facts that are read off an op before any type changes. Of one that
  /// counts along no factor there is neither rule nor axes.
  struct Global {
    FactorRule rule;
    SmallVector<ArrayAttr> axes; // per factor
    SmallVector<ShardingAttr> operands, results;
    SmallVector<SmallVector<Padding>> lowered, cleared; // operands, results
  };
  Global describe(Operation *op);
  Value mask(Value value, ArrayRef<Padding> padding, float fill);
  LogicalResult lower(dist::ReshardOp reshard, const Global &global);
  LogicalResult localize(Operation *op, const Global &global);
  LogicalResult tellBegins(ShardableOpInterface op, const Global &global);
  LogicalResult visit(Operation *op, const Global &global);
  void localizeTypes();
  LogicalResult partitionOps();
  void partitionForOne();

  func::FuncOp function;
  dist::MeshOp mesh;
  OpBuilder builder;
  PaddingAnalysis padding;
  bool splits; // on one rank nothing is padded, and blocks are whole
};

} // namespace

/// A factor has the axes of any tensor dimension that it indexes: those agree
/// once shardings have been assigned and reshards inserted.
Partitioner::Global Partitioner::describe(Operation *op) {
  Global global;
  for (OpOperand &operand : op->getOpOperands()) {
    global.operands.push_back(ShardingAttr::of(operand.get()));
    global.lowered.push_back(padding.getLowered(operand));
  }
  for (Value result : op->getResults()) {
    global.results.push_back(ShardingAttr::of(result));
    global.cleared.push_back(padding.getCleared(result));
  }
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  if (!shardable)
    return global;
  FactorRule rule = shardable.getFactorRule();
  if (llvm::none_of(rule.factors,
                    [](const Factor &factor) { return factor.isCounted; }))
    return global;
  global.rule = std::move(rule);
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

/// `value` with `fill` in its padding, at the insertion point.
Value Partitioner::mask(Value value, ArrayRef<Padding> padding, float fill) {
  Operation *source = value.getDefiningOp();
  for (const Padding &pad : padding) {
    auto masked = nn::MaskPaddingOp::create(
        builder, value.getLoc(), value.getType(), value, pad.dim,
        nn::BeginAttr::get(builder.getContext(), pad.begin), pad.limit,
        APFloat(fill));
    // Layer and stage: the mask fuses with what makes the value.
    if (source)
      masked->setDiscardableAttrs(source->getDiscardableAttrDictionary());
    value = masked;
  }
  return value;
}

/// Gives `op` the types of one rank, and tells it what it holds a part of.
LogicalResult Partitioner::localize(Operation *op, const Global &global) {
  // 1. Masks for this use alone, before the op.
  builder.setInsertionPoint(op);
  for (auto [operand, padding] :
       llvm::zip_equal(op->getOpOperands(), global.lowered))
    if (!padding.empty())
      // Minus infinity is the neutral element of a maximum, and its exponential
      // is zero.
      operand.set(mask(operand.get(), padding,
                       -std::numeric_limits<float>::infinity()));
  // 2. Types. An op that holds no tensors, or plain ones, keeps its own.
  for (Value result : op->getResults())
    if (auto type = dyn_cast<RankedTensorType>(result.getType()))
      result.setType(mesh.getLocalType(type));
  // 3. Masks for all users, right behind.
  builder.setInsertionPointAfter(op);
  for (auto [result, padding] :
       llvm::zip_equal(op->getResults(), global.cleared)) {
    // Collected before the mask, which is a use itself.
    SmallVector<OpOperand *> uses = llvm::map_to_vector(
        result.getUses(), [](OpOperand &use) { return &use; });
    Value masked = mask(result, padding, 0.0f);
    for (OpOperand *use : uses)
      use->set(masked);
  }
  // 4. Which part of each factor the rank has.
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  return shardable ? tellBegins(shardable, global) : success();
}

/// Serves ops that compute with indices: those of what is dealt out in rounds
/// do not count on from a beginning.
LogicalResult Partitioner::tellBegins(ShardableOpInterface op,
                                      const Global &global) {
  for (auto [index, axes] : llvm::enumerate(global.axes)) {
    int64_t blocks = axes ? mesh.getBlocks(axes) : 1;
    const Factor &factor = global.rule.factors[index];
    if (blocks == 1 || !factor.isCounted)
      continue;
    if (int64_t rounds = dist::getRounds(axes); rounds > 1)
      return op.emitOpError("counts along ")
             << factor.name << ", which is distributed in " << rounds
             << " rounds";
    op.localizeFactor(
        index, mesh.getBegin(axes, llvm::divideCeil(factor.size, blocks)),
        factor.size % blocks ? factor.size : 0);
  }
  return success();
}

/// Replaces `reshard` by collectives, which inherit its discardable attributes:
/// layer and stage, by which later passes sort ops.
LogicalResult Partitioner::lower(dist::ReshardOp reshard,
                                 const Global &global) {
  builder.setInsertionPoint(reshard);
  Operation *before = reshard->getPrevNode();
  // The types of both ends are taken from before: the input has been localised
  // already.
  FailureOr<Value> moved =
      lowerReshard(builder, reshard.getLoc(), reshard.getInput(),
                   cast<RankedTensorType>(reshard.getType()),
                   global.operands[0], global.results[0], mesh);
  if (failed(moved))
    return failure();
  for (Operation *added = reshard->getPrevNode(); added != before;
       added = added->getPrevNode())
    added->setDiscardableAttrs(reshard->getDiscardableAttrDictionary());
  reshard.getResult().replaceAllUsesWith(*moved);
  reshard->erase();
  return success();
}

/// A reshard needs no mask of its own: what it moves has zeros in its padding.
LogicalResult Partitioner::visit(Operation *op, const Global &global) {
  if (auto reshard = dyn_cast<dist::ReshardOp>(op))
    return lower(reshard, global);
  return localize(op, global);
}

/// Gives the arguments the types of one rank's block.
void Partitioner::localizeTypes() {
  Block &body = function.getBody().front();
  for (BlockArgument argument : body.getArguments())
    argument.setType(
        mesh.getLocalType(cast<RankedTensorType>(argument.getType())));
}

/// One rank's block is the whole, and nothing moves.
void Partitioner::partitionForOne() {
  // Without the analysis, which would find no padding and still look at every
  // factor of every op.
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
    if (auto reshard = dyn_cast<dist::ReshardOp>(op)) {
      reshard.getResult().replaceAllUsesWith(reshard.getInput());
      reshard->erase();
      continue;
    }
    for (Value result : op.getResults())
      if (auto type = dyn_cast<RankedTensorType>(result.getType()))
        result.setType(mesh.getLocalType(type));
  }
}

/// 1. Reads all that is needed off every op while types are global: factor
/// rules and paddings follow from global extents, and an op's operands have
/// been localised before it is visited.
/// 2. Makes types local and lowers reshards, in program order.
LogicalResult Partitioner::partitionOps() {
  if (failed(padding.run()))
    return failure();
  Block &body = function.getBody().front();
  // 1.
  std::deque<std::pair<Operation *, Global>> ops; // moves none of them
  for (Operation &op : body)
    ops.emplace_back(&op, describe(&op));
  // 2. The list holds no op that is inserted on the way.
  localizeTypes();
  for (auto &[op, global] : ops)
    if (failed(visit(op, global)))
      return failure();
  return success();
}

/// The same types result without analysis on a mesh of one rank.
LogicalResult Partitioner::run() {
  Block &body = function.getBody().front();
  if (splits) {
    if (failed(partitionOps()))
      return failure();
  } else {
    localizeTypes();
    partitionForOne();
  }
  // The body decides about the type, results too.
  function.setFunctionType(builder.getFunctionType(
      body.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
  return success();
}

namespace {
struct PartitionPass : plait::impl::PartitionPassBase<PartitionPass> {
  void runOnOperation() override {
    dist::MeshOp mesh = dist::MeshOp::find(getOperation());
    if (!mesh) {
      getOperation().emitOpError("has no mesh");
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (failed(Partitioner(function, mesh).run()))
        return signalPassFailure();
  }
};
} // namespace
