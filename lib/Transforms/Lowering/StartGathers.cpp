//===- StartGathers.cpp - Gathers for gradients of weights ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With sequence parallelism each rank keeps a part of what a layer's matmuls
// read, and gathers it once more for the gradients of their weights. Nothing
// has to be waited for to begin that, but the ranks' collectives run one after
// the other, and if it begins late, the sum of an input's gradient behind it
// does, too. It goes where the links have nothing to do: behind the gather of
// the result's gradient, beside the matmuls that wait for that.
//
// What is computed again, a norm, is computed before it, while a GPU waits for
// the collective in front.
//
//===----------------------------------------------------------------------===//

#include "LiveBytes.h"
#include "PreparePlacing.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

using namespace mlir;
using namespace plait;

/// Whether only gradients of weights read what `collective` gathers.
static bool isForWeights(dist::CollectiveOpInterface collective) {
  return collective.getKind() == CollectiveKind::AllGather &&
         llvm::all_of(collective->getUsers(), isWeightGradient);
}

/// Whether `op` may stand anywhere behind what it reads, in a function that
/// replaces nothing.
static bool isMovable(Operation *op) {
  return isa<plan::ClusterOp>(op) ||
         nn::getSlotAccess(op) == nn::SlotAccess::Read;
}

namespace {

/// Moves the gathers of one function.
class Starter {
public:
  Starter(func::FuncOp function, const Surroundings &surroundings)
      : body(function.getBody().front()),
        workspace(findWorkspace(function, surroundings)),
        live(workspace, body.getOperations().size()) {}

  void run();

private:
  bool collect(Operation *op, Operation *behind,
               SmallVector<Operation *> &needed);
  void start(Operation *gather, Operation *behind);

  Block &body;
  Workspace workspace;
  LiveBytes live;
  llvm::DenseMap<Operation *, int64_t> steps; // as they were
};

} // namespace

/// Adds `op` and what it needs from behind `behind`, in an order in which they
/// may stand; fails where that may not be moved.
bool Starter::collect(Operation *op, Operation *behind,
                      SmallVector<Operation *> &needed) {
  for (Value operand : op->getOperands()) {
    Operation *maker = operand.getDefiningOp();
    if (!maker || steps.at(maker) < steps.at(behind) ||
        llvm::is_contained(needed, maker))
      continue;
    if (!isMovable(maker) || !collect(maker, behind, needed))
      return false;
  }
  needed.push_back(op);
  return true;
}

void Starter::start(Operation *gather, Operation *behind) {
  SmallVector<Operation *> needed;
  if (!collect(gather, behind, needed))
    return;
  SmallVector<Lifetime> more;
  for (Operation *op : needed)
    for (Value result : op->getResults())
      if (auto own = workspace.lifetimes.find(result);
          own != workspace.lifetimes.end())
        more.push_back(
            {own->second.bytes, steps.at(behind) + 1, own->second.first - 1});
  if (!live.add(more))
    return;
  for (Operation *op : needed) {
    op->moveAfter(behind);
    behind = op;
  }
}

/// Walks the ops, of which those that have been moved count where they were.
void Starter::run() {
  for (Operation &op : body)
    steps[&op] = int64_t(steps.size());
  llvm::StringMap<Operation *> last; // by axis
  for (Operation &op : llvm::make_early_inc_range(body)) {
    auto collective = dyn_cast<dist::CollectiveOpInterface>(op);
    if (!collective)
      continue;
    Operation *&before = last[collective.getAxis()];
    if (before && isForWeights(collective))
      start(collective, before);
    before = collective;
  }
}

void plait::startGathers(func::FuncOp function,
                         const Surroundings &surroundings) {
  bool gathers = llvm::any_of(function.getBody().front(), [](Operation &op) {
    auto collective = dyn_cast<dist::CollectiveOpInterface>(op);
    return collective && isForWeights(collective);
  });
  if (gathers && nn::findAccesses(function, nn::SlotAccess::Replace).empty())
    Starter(function, surroundings).run();
}
