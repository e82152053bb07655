//===- InsertMoves.cpp - To another place, and back -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decides what lies in the host's memory, or another place, and when it is on
// its way. That it does not lie in the arena follows from the moves: see
// plan::getMemoryPlace.
//
// Copies have streams of their own. One that is to be hidden needs something
// beside it, so what comes from there is fetched while the op computes that
// uses what was fetched before. That holds two pieces at a time, as one buffer
// for each of both would.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

#include <map>

namespace plait {
#define GEN_PASS_DEF_INSERTMOVESPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using pipe::ActionKind;
using pipe::PortAttr;
using pipe::PortKind;
using plan::CopyKind;

namespace {

/// The values that one function has in another place.
struct Offloaded {
  SmallVector<Value> taken;
  SmallVector<OpOperand *> given;
};

} // namespace

static plan::MoveOp createMove(OpBuilder &builder, CopyKind kind, Value value) {
  return plan::MoveOp::create(builder, value.getLoc(), value.getType(), kind,
                              value);
}

/// Whether both are gathers over one axis, which GPUs launch together where
/// nothing comes between (plan::batchGathers).
static bool isLaunchedWith(Operation *op, Operation *next) {
  auto gather = dyn_cast_or_null<dist::AllGatherOp>(op);
  auto other = dyn_cast_or_null<dist::AllGatherOp>(next);
  return gather && other && gather.getAxis() == other.getAxis();
}

/// Moves it as soon as it is there.
static void moveTo(MemoryPlace place, OpOperand &given) {
  Value value = given.get();
  OpBuilder builder(value.getContext());
  builder.setInsertionPointAfterValue(value);
  Operation *maker = value.getDefiningOp();
  for (; maker && isLaunchedWith(maker, maker->getNextNode());
       maker = maker->getNextNode())
    builder.setInsertionPointAfter(maker->getNextNode());
  given.set(createMove(builder, getCopyTo<CopyKind>(place), value));
}

static Operation *findFirstUser(Value value) {
  Operation *first = nullptr;
  for (Operation *user : value.getUsers())
    if (!first || user->isBeforeInBlock(first))
      first = user;
  return first;
}

static void moveFrom(MemoryPlace place, ArrayRef<Value> taken) {
  llvm::MapVector<Operation *, SmallVector<Value>> users;
  for (Value value : taken)
    if (Operation *first = findFirstUser(value))
      users[first].push_back(value);
  auto groups = users.takeVector();
  llvm::stable_sort(groups, [](const auto &left, const auto &right) {
    return left.first->isBeforeInBlock(right.first);
  });
  auto getBegin = [&](size_t index) {
    Operation *begin = groups[index ? index - 1 : 0].first;
    while (isLaunchedWith(begin->getPrevNode(), begin))
      begin = begin->getPrevNode();
    return begin;
  };
  // Before anything moves: to ask for an order behind a move numbers the whole
  // block anew.
  llvm::SmallPtrSet<Operation *, 8> late; // reads behind their move
  for (auto [index, group] : llvm::enumerate(groups))
    for (Value value : group.second)
      if (Operation *read = value.getDefiningOp();
          read && getBegin(index)->isBeforeInBlock(read))
        late.insert(read);
  for (auto [index, group] : llvm::enumerate(groups)) {
    OpBuilder builder(getBegin(index));
    for (Value value : group.second) {
      if (Operation *read = value.getDefiningOp(); read && late.contains(read))
        read->moveBefore(getBegin(index));
      plan::MoveOp move =
          createMove(builder, getCopyFrom<CopyKind>(place), value);
      value.replaceAllUsesExcept(move, move);
    }
  }
}

static void insertMoves(MemoryPlace place, const Offloaded &found) {
  // In this order: users that are moves are no users of what is taken.
  for (OpOperand *given : found.given)
    moveTo(place, *given);
  moveFrom(place, found.taken);
}

//===----------------------------------------------------------------------===//
// What lies there
//===----------------------------------------------------------------------===//

static Offloaded findResiduals(func::FuncOp function) {
  Offloaded found;
  auto isResidual = [](PortAttr port) {
    return port && port.getKind() == PortKind::Residual;
  };
  Block &body = function.getBody().front();
  for (BlockArgument argument : body.getArguments())
    if (isResidual(getPort(function, argument.getArgNumber())))
      found.taken.push_back(argument);
  for (OpOperand &result : body.getTerminator()->getOpOperands())
    if (isResidual(getResultPort(function, result.getOperandNumber())))
      found.given.push_back(&result);
  return found;
}

/// Finds, of what outlives the step, the buffers that no function in `others`
/// uses.
static Offloaded findState(func::FuncOp optimizer,
                           ArrayRef<func::FuncOp> others,
                           const ParameterPacks &packs) {
  llvm::StringSet<> used;
  for (func::FuncOp other : others)
    other.walk([&](SlotOpInterface op) {
      used.insert(packs.locate(op.getSymbol(), op.getSlot()).buffer);
    });
  Offloaded found;
  optimizer.walk([&](SlotOpInterface op) {
    nn::Slot slot = op.getSlot();
    bool isKept = slot == nn::Slot::Value || slot.isState();
    if (!isKept || used.contains(packs.locate(op.getSymbol(), slot).buffer))
      return;
    if (op.getAccess() == nn::SlotAccess::Read)
      found.taken.push_back(op.getTensor());
    else
      found.given.push_back(&op->getOpOperand(0));
  });
  return found;
}

namespace {
struct InsertMovesPass : plait::impl::InsertMovesPassBase<InsertMovesPass> {
  void runOnOperation() override {
    Offload offload = getConfiguration(getOperation()).offload;
    std::map<int64_t, SmallVector<func::FuncOp>> others; // by rank
    SmallVector<func::FuncOp> optimizers;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (doesAction(function, ActionKind::Optimizer))
        optimizers.push_back(function);
      else if (std::optional<int64_t> rank = getRank(function))
        others[*rank].push_back(function);
    if (offloadsOptimizer(offload))
      for (func::FuncOp optimizer : optimizers) {
        int64_t rank = *getRank(optimizer);
        ParameterPacks packs(getOperation(), rank);
        insertMoves(offload.optimizer,
                    findState(optimizer, others[rank], packs));
      }
    if (!offloadsActivations(offload))
      return;
    for (auto &[rank, functions] : others)
      for (func::FuncOp function : functions)
        insertMoves(offload.activations, findResiduals(function));
  }
};
} // namespace
