//===- Checkpoint.cpp - Which values the backward pass computes again ---*- C++
//-*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/Names.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/Pipelines.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

#include <map>

namespace plait {
#define GEN_PASS_DEF_CHECKPOINTPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

static bool isBackward(Operation *op) { return op->hasAttr(kBackwardAttr); }

/// Values that cost no more than reading them back: parameters, constants, and
/// repetitions of smaller values.
static bool isFree(Operation *op) {
  if (op->getNumOperands() == 0)
    return true;
  auto fusable = dyn_cast<FusableOpInterface>(op);
  return fusable && fusable.getFusionRole() == FusionRole::Broadcast;
}

namespace {

/// Copies forward ops into the backward part of one joint function.
class Recomputer {
public:
  explicit Recomputer(func::FuncOp function)
      : body(function.getBody().front()) {}

  /// Has the backward ops in `users` use copies of the forward values that
  /// `shouldCopy` accepts, and of what those are computed from as far as it is
  /// accepted too. Copies stand before the first of the users.
  void recompute(ArrayRef<Operation *> users,
                 llvm::function_ref<bool(Operation *)> shouldCopy);

private:
  Block &body;
};

} // namespace

void Recomputer::recompute(ArrayRef<Operation *> users,
                           llvm::function_ref<bool(Operation *)> shouldCopy) {
  // What is needed, in the order of the forward pass.
  llvm::SetVector<Operation *> needed;
  SmallVector<Operation *> worklist(users);
  while (!worklist.empty())
    for (Value operand : worklist.pop_back_val()->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (source && !isBackward(source) && shouldCopy(source) &&
          needed.insert(source))
        worklist.push_back(source);
    }
  if (needed.empty())
    return;
  SmallVector<Operation *> sources = needed.takeVector();
  llvm::sort(sources,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  Operation *first = *llvm::min_element(
      users, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  OpBuilder builder(first);
  IRMapping mapping;
  for (Operation *source : sources)
    builder.clone(*source, mapping)
        ->setAttr(kBackwardAttr, builder.getUnitAttr());
  for (Operation *user : users)
    for (OpOperand &operand : user->getOpOperands())
      operand.set(mapping.lookupOrDefault(operand.get()));
}

namespace {
struct CheckpointPass : plait::impl::CheckpointPassBase<CheckpointPass> {
  using CheckpointPassBase::CheckpointPassBase;

  void runOnOperation() override {
    if (!llvm::is_contained(getRecomputeKinds(), recompute)) {
      getOperation().emitError("recompute is \"")
          << recompute << "\", expected "
          << llvm::join(getRecomputeKinds(), " or ");
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      auto phase = function->getAttrOfType<StringAttr>(pipe::kPhaseAttr);
      if (phase && phase.getValue() == "joint")
        runOn(function);
    }
  }

  void runOn(func::FuncOp function) {
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
    if (recompute == "full")
      for (auto &[layer, users] : layers)
        recomputer.recompute(users, [&, layer = layer](Operation *op) {
          auto own = op->getAttrOfType<IntegerAttr>(nn::kLayerAttr);
          return isFree(op) || (own && own.getInt() == layer);
        });
    recomputer.recompute(backward, isFree);
  }
};
} // namespace
