//===- DelayMatmuls.cpp - Matmuls beside collectives ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The gradient of a parameter is needed at the end of the step, that of an
// input at once, and with tensor parallelism only after a sum over ranks. A
// matmul for the former is worth most beside that sum. It then holds what it
// reads for longer; where that would raise the function's peak it stays.
//
// One walk from the first op to the last. Matmuls are collected until a
// collective comes and are moved behind it, in their order, each with the ops
// that add its result up. Lifetimes are those before anything was moved, with
// ends that grow: the body is not analysed again.
//
//===----------------------------------------------------------------------===//

#include "PreparePlacing.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "llvm/ADT/SetVector.h"

#include <vector>

using namespace mlir;
using namespace plait;

/// Whether `op` is a matmul that is added to gradients, and nothing else.
static bool isGradient(Operation *op) {
  auto costed = dyn_cast<CostedOpInterface>(op);
  return costed && costed.getWorkShape().kind == WorkShape::Contraction &&
         !op->use_empty() && llvm::all_of(op->getUsers(), [](Operation *user) {
           return nn::getSlotAccess(user) == nn::SlotAccess::Add;
         });
}

namespace {

/// Moves the matmuls of one function.
class Delayer {
public:
  Delayer(func::FuncOp function, const Surroundings &surroundings)
      : body(function.getBody().front()),
        workspace(findWorkspace(function, surroundings)) {}

  void run();

private:
  void countLive();
  Lifetime *findLifetime(Value value);
  bool extend(Operation *matmul, int64_t last);

  Block &body;
  Workspace workspace;
  std::vector<int64_t> live; // bytes of the workspace, by step
  int64_t peak = 0;
};

} // namespace

/// Differences first, then their running sum.
void Delayer::countLive() {
  live.assign(body.getOperations().size() + 1, 0);
  for (auto &[value, lifetime] : workspace.lifetimes) {
    live[lifetime.first] += lifetime.bytes;
    live[lifetime.last + 1] -= lifetime.bytes;
  }
  // What lies where something was that is released takes nothing.
  for (auto &[argument, read] : workspace.released)
    live[read.last + 1] -= read.bytes;
  for (size_t step = 1; step < live.size(); ++step)
    live[step] += live[step - 1];
  peak = *llvm::max_element(live);
}

/// Finds the lifetime of the bytes that `value` takes in the workspace; null:
/// none.
Lifetime *Delayer::findLifetime(Value value) {
  auto found = workspace.lifetimes.find(workspace.findRoot(value));
  return found == workspace.lifetimes.end() ? nullptr : &found->second;
}

/// Has what `matmul` reads live until step `last`, unless that is too much.
bool Delayer::extend(Operation *matmul, int64_t last) {
  llvm::SmallSetVector<Lifetime *, 2> read;
  for (Value operand : matmul->getOperands())
    if (Lifetime *lifetime = findLifetime(operand))
      read.insert(lifetime);
  // Judged by the bytes that live, which packing comes close to, and not by
  // packing again for each matmul.
  auto add = [&](int64_t sign) {
    bool fits = true;
    for (Lifetime *lifetime : read)
      // Linear in the steps by which a life grows, which is the distance to one
      // collective.
      for (int64_t step = lifetime->last + 1; step <= last; ++step) {
        live[step] += sign * lifetime->bytes;
        fits = fits && live[step] <= peak;
      }
    return fits;
  };
  if (!add(1)) {
    add(-1);
    return false;
  }
  for (Lifetime *lifetime : read)
    lifetime->last = std::max(lifetime->last, last);
  return true;
}

void Delayer::run() {
  countLive();
  SmallVector<Operation *> matmuls; // since the last collective
  // Sums into gradients that were passed. Asking the block for its order after
  // each move would number all of its ops anew.
  llvm::DenseSet<Operation *> passed;
  int64_t step = 0;
  for (Operation &op : llvm::make_early_inc_range(body)) {
    // What has been moved is behind the iterator, and counts where it was.
    int64_t at = step++;
    if (isGradient(&op))
      matmuls.push_back(&op);
    if (nn::getSlotAccess(&op) == nn::SlotAccess::Add)
      passed.insert(&op);
    if (!isa<dist::CollectiveOpInterface>(op))
      continue;
    Operation *last = &op;
    for (Operation *matmul : matmuls) {
      if (!extend(matmul, at))
        continue;
      // In their order, each followed by those that add it up.
      matmul->moveAfter(last);
      last = matmul;
      for (Operation *user : llvm::make_early_inc_range(matmul->getUsers()))
        if (passed.contains(user)) {
          user->moveAfter(last);
          last = user;
        }
    }
    matmuls.clear();
  }
}

/// Most functions have nothing to move, and are spared the analysis.
void plait::delayMatmuls(func::FuncOp function,
                         const Surroundings &surroundings) {
  auto has = [&](auto isSuch) {
    return llvm::any_of(function.getBody().front(),
                        [&](Operation &op) { return isSuch(&op); });
  };
  if (has(isGradient) && has(llvm::IsaPred<dist::CollectiveOpInterface>))
    Delayer(function, surroundings).run();
}
