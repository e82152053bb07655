//===- ReorderSequence.cpp - Store the sequence in zig-zag order ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A choice of where elements are stored, made before anything is split: blocks
// of what is stored are then split, gathered and reduced like those of any
// other tensor, and only what counts positions knows of it.
//
//===----------------------------------------------------------------------===//

#include "FactorAxes.h"
#include "plait/Dialect/NN/IR/Inputs.h"
#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"

namespace plait {
#define GEN_PASS_DEF_REORDERSEQUENCEPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

/// Of the arguments of the loss function.
static constexpr int64_t kSequenceDim = 1;

namespace {

/// The loss function of one model.
class SequenceReorderer {
public:
  SequenceReorderer(func::FuncOp function, int64_t ranks)
      : function(function), ranks(ranks), builder(function.getContext()) {}

  LogicalResult run();

private:
  LogicalResult chooseOrder();
  bool isSequence(Value value, int64_t dim) {
    return classes.find(value, dim) == sequence;
  }
  Value move(OpOperand &use, int64_t dim, bool isInOrder);
  void visit(Operation *op);

  func::FuncOp function;
  int64_t ranks;
  OpBuilder builder;
  FactorClasses classes;
  int sequence = -1; // the class of its dimensions
  ChunkOrder order;
  /// What has been moved among the ops of one layer, by value and dimension.
  /// Another layer moves it again: it may be another stage's.
  llvm::DenseMap<std::pair<Value, int64_t>, Value> moved;
  Attribute layer;
};

} // namespace

/// Whether what runs along `factor` may be in another order.
static bool isReorderable(const FactorRule &rule, int factor) {
  return factor != FactorRule::kNone && !rule.factors[factor].inOrder;
}

/// Whether dimension `dim` of `value` is stored in its own order, though it is
/// the sequence: what enters the function, and what an op makes that cannot do
/// otherwise.
static bool isMadeInOrder(Value value, int64_t dim) {
  auto result = dyn_cast<OpResult>(value);
  auto op = result ? dyn_cast<ShardableOpInterface>(result.getOwner())
                   : ShardableOpInterface();
  if (!op)
    return true;
  FactorRule rule = op.getFactorRule();
  return !isReorderable(rule, rule.results[result.getResultNumber()][dim]);
}

/// All arguments with a sequence share it; there is one chunk for each rank and
/// its other one.
LogicalResult SequenceReorderer::chooseOrder() {
  Value first;
  for (BlockArgument argument : function.getArguments()) {
    auto type = cast<RankedTensorType>(argument.getType());
    if (nn::countTokenDims(argument) <= kSequenceDim)
      continue;
    if (first)
      classes.join(first, argument, kSequenceDim);
    first = argument;
    order = {type.getDimSize(kSequenceDim), 2 * ranks};
    if (order.extent % order.chunks == 0)
      continue;
    return function.emitError()
           << "context-parallel is zigzag, but 2 · cp = " << order.chunks
           << " does not divide the sequence of " << order.extent
           << " positions; nearest are "
           << listNearest(order.extent, order.chunks);
  }
  if (first)
    sequence = classes.find(first, kSequenceDim);
  return success();
}

/// What `use` reads, which is in its own order or in that of storage, in the
/// other one.
Value SequenceReorderer::move(OpOperand &use, int64_t dim, bool isInOrder) {
  Value &known = moved[{use.get(), dim}];
  if (known)
    return known;
  Operation *user = use.getOwner();
  builder.setInsertionPoint(user);
  known = nn::ReorderOp::create(builder, user->getLoc(), use.get().getType(),
                                use.get(), dim, order.chunks,
                                /*inverse=*/!isInOrder);
  nn::inheritLayer(known.getDefiningOp(), user);
  return known;
}

void SequenceReorderer::visit(Operation *op) {
  if (Attribute own = nn::getLayerAttr(op); own != layer) {
    layer = own;
    moved.clear();
  }
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  FactorRule rule = shardable ? shardable.getFactorRule() : FactorRule();
  // While the classes of its operands are known: what is moved has none.
  for (auto [index, factor] : llvm::enumerate(rule.factors))
    if (!factor.inOrder &&
        classes.findFactor(shardable, rule, index) == sequence)
      shardable.orderFactor(index, order);
  for (OpOperand &use : op->getOpOperands()) {
    Value value = use.get();
    auto type = dyn_cast<RankedTensorType>(value.getType());
    for (int64_t dim = 0, e = type ? type.getRank() : 0; dim < e; ++dim) {
      if (!isSequence(value, dim))
        continue;
      bool isInOrder = isMadeInOrder(value, dim);
      bool wantsOrder =
          !shardable ||
          !isReorderable(rule, rule.operands[use.getOperandNumber()][dim]);
      if (isInOrder != wantsOrder)
        use.set(move(use, dim, isInOrder));
    }
  }
}

LogicalResult SequenceReorderer::run() {
  function.walk([&](ShardableOpInterface op) {
    classes.add(op, op.getFactorRule(), /*reordered=*/true);
  });
  if (failed(chooseOrder()))
    return failure();
  if (sequence < 0)
    return success();
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
    visit(&op);
  return success();
}

namespace {
struct ReorderSequencePass
    : plait::impl::ReorderSequencePassBase<ReorderSequencePass> {
  void runOnOperation() override {
    if (getConfiguration(getOperation()).contextParallel !=
        ContextParallel::Zigzag)
      return;
    dist::MeshOp mesh = dist::MeshOp::find(getOperation());
    auto function =
        getOperation().lookupSymbol<func::FuncOp>(nn::kLossFunction);
    if (!mesh || !function) {
      getOperation().emitOpError("has no mesh or no function @loss to reorder");
      return signalPassFailure();
    }
    int64_t ranks = mesh.getAxisSize(Axis::CP);
    if (ranks > 1 && failed(SequenceReorderer(function, ranks).run()))
      signalPassFailure();
  }
};
} // namespace
