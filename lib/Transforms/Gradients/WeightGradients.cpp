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

  Block &body;
  OpSet delayed;
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

/// What delayed ops alone are made of, where that leaves less to keep.
void Delayer::delayOperands() {
  // What crosses the cut as things stand. Grows with each op that is delayed.
  llvm::DenseSet<Value> kept;
  for (Operation *op : delayed)
    kept.insert(op->operand_begin(), op->operand_end());
  // Greedy, one op at a time from the end: an op is delayed if its operands
  // that would have to be kept for it weigh no more than its results.
  for (Operation &op : llvm::reverse(body.without_terminator())) {
    if (delayed.contains(&op) || isWork(&op) || !feedsOnly(&op, delayed))
      continue;
    int64_t saved = 0, added = 0;
    for (Value result : op.getResults())
      saved += byteSize(result.getType());
    for (Value operand : op.getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (!kept.contains(operand) && !(source && isSource(source)))
        added += byteSize(operand.getType());
    }
    if (added > saved)
      continue;
    delayed.insert(&op);
    kept.insert(op.operand_begin(), op.operand_end());
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
