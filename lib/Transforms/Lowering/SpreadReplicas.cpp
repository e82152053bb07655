//===- SpreadReplicas.cpp - Work beside what replicas exchange ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives over dp have a stream of their own (plait/Plan/Streams.h), in
// which they begin as soon as the bytes that they use allow. What divides
// parameters or gradients would still be waited for at once: a layer's
// parameters are gathered right before its first use, and what is reduced is
// added up right after. So both get a distance, of one layer (as the prefetch
// of PyTorch's fully sharded data parallelism, Zhao et al. 2023, section 3.3.2)
// and of one reduction, for which bytes live longer: parameters of two layers,
// and one more gradient.
//
//===----------------------------------------------------------------------===//

#include "PreparePlacing.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/NN/IR/Names.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace plait;

namespace {
/// The order of a block's ops while some move. MLIR numbers all of them anew
/// after each move, which takes the square of a model's layers.
class Order {
public:
  explicit Order(Block &body) {
    for (auto [index, op] : llvm::enumerate(body))
      places[&op] = {2 * int64_t(index), 0};
  }

  bool isBefore(Operation *a, Operation *b) const {
    return places.at(a) < places.at(b);
  }
  /// `other` has not been moved.
  void moveBefore(Operation *op, Operation *other) {
    op->moveBefore(other);
    places[op] = {places.at(other).first - 1, ++moves};
  }
  /// `other` has not been moved, or is what was moved behind such a one last.
  void moveAfter(Operation *op, Operation *other) {
    op->moveAfter(other);
    places[op] = {places.at(other).first, ++moves};
  }

private:
  /// Twice the place that an op had, or one less in front of that; then the
  /// order of moves.
  llvm::DenseMap<Operation *, std::pair<int64_t, int64_t>> places;
  int64_t moves = 0;
};
} // namespace

/// Whether ZeRO divides state over `axis`.
static bool dividesState(StringRef axis) {
  const AxisFacts *facts = findAxis(axis);
  return facts && facts->dividesState;
}

/// Whether `op` puts what it is given into a slot, at once or behind further
/// sums and one op on it alone, as the cast that widens it again.
static bool isStored(Operation *op, bool isWidened) {
  std::optional<nn::SlotAccess> access = nn::getSlotAccess(op);
  if (access == nn::SlotAccess::Add || access == nn::SlotAccess::Replace)
    return true;
  bool isSum = isa<dist::ReduceScatterOp, dist::AllReduceOp>(op);
  if (op->getNumResults() == 0 || (!isSum && isWidened) ||
      (!isSum && op->getNumOperands() > 1))
    return false;
  return llvm::all_of(op->getUsers(), [&](Operation *user) {
    return isStored(user, isWidened || !isSum);
  });
}

/// Layers have such collectives, too, over axes that also split their tokens:
/// gradients of gathered keys, and what experts make of gathered tokens. Those
/// are waited for, and their results are no gradients of parameters.
bool plait::isReplicaSum(Operation *op) {
  auto sum = dyn_cast<dist::ReduceScatterOp>(op);
  return sum && dividesState(sum.getAxis()) &&
         isStored(op, /*isWidened=*/false);
}

bool plait::isParameterGather(Operation *op) {
  auto gather = dyn_cast<dist::AllGatherOp>(op);
  Operation *input = gather ? gather.getInput().getDefiningOp() : nullptr;
  return input && dividesState(gather.getAxis()) &&
         (nn::getSlotAccess(input) == nn::SlotAccess::Read ||
          isParameterGather(input));
}

/// The first op behind `op` that does neither read nor gather parameters.
static Operation *findWork(Operation *op) {
  do
    op = op->getNextNode();
  while (isParameterGather(op) ||
         nn::getSlotAccess(op) == nn::SlotAccess::Read);
  return op;
}

/// Gathers of a layer move to where the work of the layer before begins. They
/// keep their order.
static void gatherAhead(Block &body) {
  struct Layer {
    Attribute name;
    SmallVector<dist::AllGatherOp> gathers;
    Operation *begin; // the work behind the first of them
  };
  Order order(body);
  SmallVector<Layer> layers; // in the order of their first gathers
  for (Operation &op : body) {
    if (!isParameterGather(&op))
      continue;
    Attribute name = op.getAttr(nn::kLayerAttr);
    // Without a layer each gather is on its own: such uses are far apart.
    bool isSame = !layers.empty() && name && layers.back().name == name;
    if (!isSame)
      layers.push_back({name, {}, findWork(&op)});
    layers.back().gathers.push_back(cast<dist::AllGatherOp>(op));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    // Nothing that is read before the first layer could hide its gather.
    Operation *begin = layers[i ? i - 1 : 0].begin;
    // The read goes along: it has no operands, and has to stand before.
    for (dist::AllGatherOp gather : layers[i].gathers)
      for (Operation *op :
           {gather.getInput().getDefiningOp(), gather.getOperation()})
        if (order.isBefore(begin, op))
          order.moveBefore(op, begin);
  }
}

/// Whether all that `op` computes is added to gradients.
static bool onlyAdds(Operation *op) {
  if (nn::getSlotAccess(op) == nn::SlotAccess::Add)
    return true;
  return op->getNumResults() > 0 && !isa<dist::CollectiveOpInterface>(op) &&
         llvm::all_of(op->getUsers(), [](Operation *user) {
           return nn::getSlotAccess(user) == nn::SlotAccess::Add;
         });
}

/// Moves `op` and those who use its results behind `last`, which it returns.
static Operation *moveBehind(Operation *op, Operation *last, Order &order) {
  llvm::SetVector<Operation *> all;
  all.insert(op);
  all.insert_range(op->getUsers());
  for (Operation *one : all)
    if (order.isBefore(one, last)) {
      order.moveAfter(one, last);
      last = one;
    }
  return last;
}

/// Adding the block that a reduction leaves needs its result; placed behind the
/// next reduction, it leaves that one time to end while others compute.
static void addUpLater(Block &body) {
  Order order(body);
  SmallVector<Operation *> sums;
  for (Operation &op : body)
    if (isReplicaSum(&op))
      sums.push_back(&op);
  // The last reduction has none behind it, and its result is added where it
  // was.
  for (size_t i = 0; i + 1 < sums.size(); ++i) {
    Operation *last = sums[i + 1];
    llvm::SetVector<Operation *> users(sums[i]->user_begin(),
                                       sums[i]->user_end());
    for (Operation *user : users)
      if (onlyAdds(user) && order.isBefore(user, sums[i + 1]))
        last = moveBehind(user, last, order);
  }
}

void plait::spreadReplicas(func::FuncOp function) {
  Block &body = function.getBody().front();
  gatherAhead(body);
  addUpLater(body);
}
