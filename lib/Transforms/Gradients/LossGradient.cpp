//===- LossGradient.cpp - Gradient of the loss ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds the constant with which the gradient of the loss begins, the fusable
// ops and reshards that follow from it and from forward values, and takes their
// `nn.backward` mark away if that leaves no more bytes to keep. No op is moved:
// the mark alone says which pass an op belongs to. What such an op computes is
// nobody's business here; that it is cross-entropy's gradient is not asked.
//
// Where the loss is computed in chunks of rows (ChunkLoss.cpp), what the matmul
// in front of it makes of that gradient has to be computed with each chunk:
// then the marks of those matmuls go, too.
//
//===----------------------------------------------------------------------===//

#include "LossGradient.h"

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Transforms/StageFunctions.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace plait;

using OpSet = llvm::SetVector<Operation *>;

/// Whether the forward pass has it.
static bool isForward(Value value) {
  if (Operation *op = value.getDefiningOp())
    return !isBackward(op);
  auto argument = cast<BlockArgument>(value);
  auto joint = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  return getPort(joint, argument.getArgNumber()).getKind() !=
         pipe::PortKind::OutputGradient;
}

/// The constant with which the gradient of the loss begins, or null. Backward
/// ops come in the order in which they were made: it is the first of them.
static Operation *findSeed(Block &body) {
  auto isLoss = [](SlotOpInterface add) { return add.getSymbol() == kLossSum; };
  if (llvm::none_of(nn::findAccesses(body.getParentOp(), nn::SlotAccess::Add),
                    isLoss))
    return nullptr;
  auto first =
      llvm::find_if(body, [](Operation &op) { return isBackward(&op); });
  bool isConstant = first != body.end() && isa<FusableOpInterface>(*first) &&
                    first->getNumOperands() == 0;
  return isConstant ? &*first : nullptr;
}

/// Whether the backward pass stores the result or sends it away: that it does
/// itself.
static bool isStored(Operation *op) {
  return llvm::any_of(op->getUsers(), [](Operation *user) {
    return nn::getSlotAccess(user) == nn::SlotAccess::Add ||
           isa<func::ReturnOp>(user);
  });
}

/// Ops that could be forward ones.
static OpSet findMovable(Block &body, Operation *seed) {
  OpSet movable;
  movable.insert(seed);
  for (Operation &op : body) {
    bool mayMove = isa<FusableOpInterface>(op) || isa<dist::ReshardOp>(op);
    if (!isBackward(&op) || op.hasAttr(nn::kLayerAttr) || !mayMove ||
        isStored(&op))
      continue;
    // Operands come before users, so that one walk finds all.
    if (llvm::all_of(op.getOperands(), [&](Value operand) {
          return isForward(operand) ||
                 movable.contains(operand.getDefiningOp());
        }))
      movable.insert(&op);
  }
  return movable;
}

/// What of `movable` depends on the seed, and what that is made of.
static OpSet findMoved(const OpSet &movable, Operation *seed) {
  OpSet moved;
  moved.insert(seed);
  for (Operation *op : movable)
    if (llvm::any_of(op->getOperands(), [&](Value operand) {
          return moved.contains(operand.getDefiningOp());
        }))
      moved.insert(op);
  // Then back to what those read: constants and casts that were made for the
  // gradient have to come along.
  for (size_t index = 0; index < moved.size(); ++index)
    for (Value operand : moved[index]->getOperands())
      if (movable.contains(operand.getDefiningOp()))
        moved.insert(operand.getDefiningOp());
  return moved;
}

/// The bytes of forward values that the backward pass would keep for `moved`
/// alone. What is computed element by element is not kept.
static int64_t countFreed(const OpSet &moved) {
  llvm::SetVector<Value> values;
  auto addOperands = [&](Operation *op) {
    for (Value operand : op->getOperands())
      if (isForward(operand))
        values.insert(operand);
  };
  for (Operation *op : moved)
    addOperands(op);
  int64_t bytes = 0;
  for (size_t index = 0; index < values.size(); ++index) {
    Value value = values[index];
    Operation *source = value.getDefiningOp();
    bool isKept = llvm::any_of(value.getUsers(), [&](Operation *user) {
      return isBackward(user) && !moved.contains(user);
    });
    if (isa_and_present<FusableOpInterface>(source) && !isReduction(source))
      addOperands(source);
    else if (!isKept && (!source || source->getNumOperands()))
      bytes += byteSize(value.getType());
  }
  return bytes;
}

/// The bytes that the backward pass keeps instead.
static int64_t countLeft(const OpSet &moved) {
  int64_t bytes = 0;
  for (Operation *op : moved)
    if (llvm::any_of(op->getUsers(),
                     [&](Operation *user) { return !moved.contains(user); }))
      bytes += byteSize(op->getResult(0).getType());
  return bytes;
}

/// Whether what becomes of a sum of terms becomes of each term, element by
/// element.
static bool goesByTerm(Operation *op) {
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  return isa<dist::ReshardOp>(op) || (op->hasTrait<OpTrait::Elementwise>() &&
                                      shardable && shardable.isLinear());
}

/// Whether a sum is moved, and added to a gradient, and nothing else.
static bool endsInSum(Operation *op) {
  while (op->getNumResults() == 1 && op->hasOneUse()) {
    op = *op->user_begin();
    if (nn::getSlotAccess(op) == nn::SlotAccess::Add)
      return true;
    if (!goesByTerm(op))
      return false;
  }
  return false;
}

/// Repeats for `term` what becomes of `sum`, of which it is one: sums excepted.
static void copyWay(Operation *sum, Value term) {
  OpBuilder builder(sum);
  for (Operation *op = sum; op->getNumResults();) {
    Value before = op->getResult(0);
    op = *op->user_begin();
    if (op->hasTrait<AddsOperands>())
      continue;
    Operation *own = builder.clone(*op);
    own->replaceUsesOfWith(before, term);
    if (own->getNumResults())
      term = own->getResult(0);
  }
}

/// Gives what is made of `value`, up to where it is added to a gradient, to the
/// forward pass. Another term of the sum on the way is added by itself: a tied
/// embedding's gradient is known only at the end of the backward pass.
static void accumulateEarly(Value value) {
  while (value.hasOneUse()) {
    Operation *user = *value.user_begin();
    if (user->hasTrait<AddsOperands>()) {
      // Both terms go the sum's way by themselves from here on.
      Value other = user->getOperand(user->getOperand(0) == value);
      if (!endsInSum(user))
        return;
      copyWay(user, value);
      user->getResult(0).replaceAllUsesWith(other);
      user->erase();
      continue;
    }
    if (!goesByTerm(user) && nn::getSlotAccess(user) != nn::SlotAccess::Add)
      return;
    user->removeAttr(nn::kBackwardAttr);
    if (!user->getNumResults())
      return;
    value = user->getResult(0);
  }
}

/// Finds what makes something smaller of `moved` and of forward values: the
/// matmuls that the gradient of the logits ends in, and sums over its rows.
static SmallVector<Operation *> findHeadGradients(Block &body,
                                                  const OpSet &moved) {
  SmallVector<Operation *> found;
  for (Operation &op : body) {
    auto contraction = dyn_cast<ContractionOpInterface>(op);
    bool shrinks =
        (contraction && contraction.contractsOnly()) || isReduction(&op);
    if (isBackward(&op) && !op.hasAttr(nn::kLayerAttr) && shrinks &&
        llvm::all_of(op.getOperands(), isForward) &&
        llvm::any_of(op.getOperands(), [&](Value operand) {
          return moved.contains(operand.getDefiningOp());
        }))
      found.push_back(&op);
  }
  return found;
}

/// Marks change last: an early return leaves the function as it was. A gradient
/// of the loss that is stored as such has nothing to win.
void plait::computeLossGradientEarly(func::FuncOp joint, bool inChunks) {
  Block &body = joint.getBody().front();
  Operation *seed = findSeed(body);
  if (!seed || isStored(seed))
    return;
  OpSet moved = findMoved(findMovable(body, seed), seed);
  if (countLeft(moved) > countFreed(moved))
    return;
  for (Operation *op : moved)
    op->removeAttr(nn::kBackwardAttr);
  if (!inChunks)
    return;
  for (Operation *op : findHeadGradients(body, moved)) {
    op->removeAttr(nn::kBackwardAttr);
    accumulateEarly(op->getResult(0));
  }
}
