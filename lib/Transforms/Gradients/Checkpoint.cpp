//===- Checkpoint.cpp - What the backward pass computes again -------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/Buffers.h"
#include "plait/Transforms/Names.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

#include <map>

namespace plait {
#define GEN_PASS_DEF_CHECKPOINTPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

/// Computed element by element, with nothing to add up or to look up.
static bool isElementwise(Operation *op) {
  auto fusable = dyn_cast_or_null<FusableOpInterface>(op);
  return fusable && !isBackward(op) &&
         (fusable.getFusionRole() == FusionRole::Elementwise ||
          fusable.getFusionRole() == FusionRole::Broadcast);
}

/// The bytes of what `op` is made of, looking through what is elementwise and
/// may be computed again; parameters and constants are there anyway.
static int64_t countSourceBytes(Operation *op) {
  llvm::SetVector<Value> values(op->operand_begin(), op->operand_end());
  int64_t bytes = 0;
  for (size_t index = 0; index < values.size(); ++index) {
    Value value = values[index];
    Operation *source = value.getDefiningOp();
    if (isElementwise(source) && !source->hasTrait<ComparesFloats>())
      values.insert(source->operand_begin(), source->operand_end());
    else if (!source || source->getNumOperands())
      bytes += byteSize(value.getType());
  }
  return bytes;
}

/// Values that cost no more than reading them back: parameters, constants, and
/// what is computed element by element of fewer bytes, such as a repetition or
/// the exponential of a bf16 tensor in f32.
static bool isFree(Operation *op) {
  if (op->getNumOperands() == 0)
    return true;
  return isElementwise(op) &&
         countSourceBytes(op) < byteSize(op->getResult(0).getType());
}

/// What ranks that share the tokens out have gathered: a parameter that they
/// store in parts, or keys and values of a sequence that they split. It is
/// gathered again: to keep it is to hold what was divided, once for each
/// microbatch in flight (Llama Team 2024, section 3.3.2). What tp has gathered
/// is kept: its ranks wait for each other in every layer as it is.
static bool isGathered(Operation *op) {
  auto reshard = dyn_cast<dist::ReshardOp>(op);
  if (!reshard)
    return false;
  auto from = dist::ShardingAttr::of(reshard.getInput());
  auto to = dist::ShardingAttr::of(reshard.getResult());
  return llvm::any_of(from.getDims(), [&](ArrayAttr axes) {
    return llvm::any_of(axes.getAsRange<StringAttr>(), [&](StringAttr axis) {
      return axis.getValue() != kTensorAxis && to.findDim(axis) < 0;
    });
  });
}

namespace {

/// Copies forward ops into the backward part of one joint function.
class Recomputer {
public:
  explicit Recomputer(func::FuncOp function)
      : body(function.getBody().front()) {}

  /// Has the backward ops in `users` use copies of the forward values that
  /// `shouldCopy` accepts, and of what those are computed from as far as it is
  /// accepted too; never of comparisons, which copies could decide otherwise.
  /// Copies stand before the first of the users; returns them.
  SmallVector<Operation *>
  recompute(ArrayRef<Operation *> users,
            llvm::function_ref<bool(Operation *)> shouldCopy);

private:
  Block &body;
};

} // namespace

SmallVector<Operation *>
Recomputer::recompute(ArrayRef<Operation *> users,
                      llvm::function_ref<bool(Operation *)> shouldCopy) {
  // What is needed, in the order of the forward pass.
  llvm::SetVector<Operation *> needed;
  SmallVector<Operation *> worklist(users);
  while (!worklist.empty())
    for (Value operand : worklist.pop_back_val()->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (source && !isBackward(source) &&
          !source->hasTrait<ComparesFloats>() && shouldCopy(source) &&
          needed.insert(source))
        worklist.push_back(source);
    }
  if (needed.empty())
    return {};
  SmallVector<Operation *> sources = needed.takeVector();
  llvm::sort(sources,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  Operation *first = *llvm::min_element(
      users, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  OpBuilder builder(first);
  IRMapping mapping;
  SmallVector<Operation *> copies;
  for (Operation *source : sources) {
    copies.push_back(builder.clone(*source, mapping));
    copies.back()->setAttr(nn::kBackwardAttr, builder.getUnitAttr());
  }
  for (Operation *user : users)
    for (OpOperand &operand : user->getOpOperands())
      operand.set(mapping.lookupOrDefault(operand.get()));
  return copies;
}

/// Moves what is computed or gathered again, not merely read, to where it is
/// first needed: there it fuses with its user, or is not held for long.
static void sink(ArrayRef<Operation *> copies) {
  for (Operation *copy : llvm::reverse(copies)) {
    auto fusable = dyn_cast<FusableOpInterface>(copy);
    bool isComputed = fusable &&
                      fusable.getFusionRole() == FusionRole::Elementwise &&
                      copy->getNumOperands() != 0;
    if ((!isComputed && !isGathered(copy)) || copy->use_empty())
      continue;
    copy->moveBefore(
        *llvm::min_element(copy->getUsers(), [](Operation *a, Operation *b) {
          return a->isBeforeInBlock(b);
        }));
  }
}

namespace {
struct CheckpointPass : plait::impl::CheckpointPassBase<CheckpointPass> {
  using CheckpointPassBase::CheckpointPassBase;

  void runOnOperation() override {
    TrainingConfiguration configuration = getConfiguration(getOperation());
    if (Status status = checkExecutable(configuration); !status.ok()) {
      getOperation().emitError(status.message());
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (doesAction(function, pipe::ActionKind::Joint))
        runOn(function, configuration.recompute);
  }

  void runOn(func::FuncOp function, Recompute recompute) {
    Recomputer recomputer(function);
    std::map<int64_t, SmallVector<Operation *>> layers;
    SmallVector<Operation *> backward;
    for (Operation &op : function.getBody().front()) {
      if (!isBackward(&op))
        continue;
      backward.push_back(&op);
      if (auto layer = op.getAttrOfType<IntegerAttr>(nn::kLayerAttr))
        layers[layer.getInt()].push_back(&op);
    }
    if (recompute == Recompute::Full)
      for (auto &[layer, users] : layers)
        recomputer.recompute(users, [&, layer = layer](Operation *op) {
          auto own = op->getAttrOfType<IntegerAttr>(nn::kLayerAttr);
          return isFree(op) || isGathered(op) || (own && own.getInt() == layer);
        });
    sink(recomputer.recompute(
        backward, [](Operation *op) { return isFree(op) || isGathered(op); }));
  }
};
} // namespace
