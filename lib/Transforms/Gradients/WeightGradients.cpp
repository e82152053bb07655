//===- WeightGradients.cpp - Delayed gradients of weights -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which ops of a backward function nobody but the end of the step waits for
// (the W of zero-bubble schedules; Qi et al. 2024). These are the matmuls that
// lead to gradients of parameters, what follows from them, and what they alone
// read if keeping its operands takes no more memory than keeping its results.
// Sums over the batch stay where they are: they read much and take little time.
// Asked by pipe-split-phases, which cuts there, and by the planner, which
// measures what is cut.
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/WeightGradients.h"

#include "plait/Dialect/Plan/IR/Buffers.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace plait;

/// Work that others would wait for and that time is worth saving of: matrix
/// matmuls and attention.
static bool isWork(Operation *op) {
  auto costed = dyn_cast<CostedOpInterface>(op);
  return costed && costed.getWorkShape().kind != WorkShape::Memory;
}

static bool isMatmul(Operation *op) {
  auto costed = dyn_cast<CostedOpInterface>(op);
  return costed && costed.getWorkShape().kind == WorkShape::Contraction;
}

/// Reads of parameters and constants: every function makes them for itself.
static bool isSource(Operation *op) { return op->getNumOperands() == 0; }

using OpSet = llvm::DenseSet<Operation *>;

/// Whether all that `op` makes is read by `users`, and something is.
static bool feedsOnly(Operation *op, const OpSet &users) {
  return !op->use_empty() && llvm::all_of(op->getUsers(), [&](Operation *user) {
    return users.contains(user);
  });
}

namespace {

/// Chooses the ops of one backward function that weight gradients can wait for.
class Delayer {
public:
  explicit Delayer(func::FuncOp backward) : body(backward.getBody().front()) {}

  /// In the order of the function.
  SmallVector<Operation *> run();

private:
  void delayMatmuls();
  void delayOperands();
  llvm::SetVector<Operation *> findChain(Operation *op) const;
  bool paysOff(const llvm::SetVector<Operation *> &ops, Operation *last) const;

  Block &body;
  OpSet delayed;
  llvm::DenseSet<Value> kept; // what crosses the cut, as things stand
};

} // namespace

/// The matmuls that lead to stores of gradients without another matmul on the
/// way, and what becomes of them.
void Delayer::delayMatmuls() {
  OpSet ends; // all that leads to stores, and to no more work
  // Backwards: users are judged before what they read. A matmul ends the chain:
  // what leads to it is a matter of delayOperands().
  for (Operation &op : llvm::reverse(body.without_terminator())) {
    bool leads =
        nn::getSlotAccess(&op) == nn::SlotAccess::Add || feedsOnly(&op, ends);
    if (leads && isMatmul(&op))
      delayed.insert(&op);
    else if (leads && !isWork(&op))
      ends.insert(&op);
  }
  // Forwards, the consequences: a cast of a gradient, and its store.
  for (Operation &op : body.without_terminator())
    if (llvm::any_of(op.getOperands(), [&](Value operand) {
          return delayed.contains(operand.getDefiningOp());
        }))
      delayed.insert(&op);
}

/// Finds `op` and what it is made of element by element, as far as nobody else
/// reads that.
llvm::SetVector<Operation *> Delayer::findChain(Operation *op) const {
  llvm::SetVector<Operation *> chain; // grows while it is walked
  chain.insert(op);
  auto isOwn = [&](Operation *source) {
    RoleFacts facts = getFacts(source);
    return (facts.elementwise || facts.repeats) && !source->use_empty() &&
           llvm::all_of(source->getUsers(), [&](Operation *user) {
             return delayed.contains(user) || chain.contains(user);
           });
  };
  for (size_t index = 0; index < chain.size(); ++index)
    for (Value operand : chain[index]->getOperands())
      if (Operation *source = operand.getDefiningOp();
          source && !isSource(source) && !kept.contains(operand) &&
          !delayed.contains(source) && isOwn(source))
        chain.insert(source);
  return chain;
}

/// Whether what would have to be kept for `ops` weighs no more than the results
/// of `last`.
bool Delayer::paysOff(const llvm::SetVector<Operation *> &ops,
                      Operation *last) const {
  int64_t saved = 0, added = 0;
  for (Value result : last->getResults())
    saved += byteSize(result.getType());
  llvm::SmallDenseSet<Value> counted;
  for (Operation *op : ops)
    for (Value operand : op->getOperands()) {
      Operation *source = operand.getDefiningOp();
      bool isThere = kept.contains(operand) ||
                     (source && (isSource(source) || ops.contains(source)));
      if (!isThere && counted.insert(operand).second)
        added += byteSize(operand.getType());
    }
  return added <= saved;
}

/// What delayed ops alone are made of, where that leaves less to keep.
void Delayer::delayOperands() {
  for (Operation *op : delayed)
    kept.insert(op->operand_begin(), op->operand_end());
  auto delay = [&](const llvm::SetVector<Operation *> &ops) {
    for (Operation *op : ops) {
      delayed.insert(op);
      kept.insert(op->operand_begin(), op->operand_end());
    }
  };
  // Greedy, from the end, by itself or with all of its chain: a difference in
  // f32 weighs more than the tensor in bf16 that it is made of, and no more
  // than the two that it is made of in one step.
  for (Operation &op : llvm::reverse(body.without_terminator())) {
    if (delayed.contains(&op) || isWork(&op) || !feedsOnly(&op, delayed))
      continue;
    llvm::SetVector<Operation *> alone;
    alone.insert(&op);
    if (paysOff(alone, &op))
      delay(alone);
    else if (auto chain = findChain(&op); paysOff(chain, &op))
      delay(chain);
  }
}

SmallVector<Operation *> Delayer::run() {
  delayMatmuls();
  delayOperands();
  SmallVector<Operation *> ordered;
  for (Operation &op : body.without_terminator())
    if (delayed.contains(&op))
      ordered.push_back(&op);
  return ordered;
}

SmallVector<Operation *> plait::findWeightGradients(func::FuncOp backward) {
  return Delayer(backward).run();
}
