//===- Units.cpp - Ops of a function on their way to kernels --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Units.h"

#include "llvm/ADT/DenseSet.h"

#include <functional>
#include <utility>

using namespace mlir;
using namespace plait;

bool plait::sumsAll(Operation *op) {
  return isReduction(op) && shapeOf(op->getResult(0)).empty();
}

Shape plait::spaceOf(Operation *op) {
  return shapeOf(isReduction(op) ? op->getOperand(0) : op->getResult(0));
}

void Unit::add(Operation *op) {
  ops.push_back(op);
  hasTotal = hasTotal || sumsAll(op);
  if (!first || op->isBeforeInBlock(first))
    first = op;
  if (!last || last->isBeforeInBlock(op))
    last = op;
}

/// Adds the ops that `op` reads to `result`, free ones looked through.
static void addSources(Operation *op, llvm::SetVector<Operation *> &result) {
  for (OpOperand &operand : op->getOpOperands())
    if (Operation *source = operand.get().getDefiningOp()) {
      if (isFree(source) && !needsMemory(operand))
        addSources(source, result);
      else
        result.insert(source);
    }
}

Units::Units(Block &block) : block(block) {
  llvm::DenseMap<Attribute, SmallVector<SlotOpInterface>> accesses;
  for (Operation &op : block) {
    hasComparisons = hasComparisons || op.hasTrait<ComparesFloats>();
    if (isFree(&op) && llvm::none_of(op.getUses(), needsMemory))
      continue;
    llvm::SetVector<Operation *> earlier;
    addSources(&op, earlier);
    // Accesses to one parameter keep their order.
    if (auto access = dyn_cast<SlotOpInterface>(op)) {
      for (SlotOpInterface other : accesses[access.getSymbolAttr()])
        if (access.getAccess() != nn::SlotAccess::Read ||
            other.getAccess() != nn::SlotAccess::Read)
          earlier.insert(other);
      accesses[access.getSymbolAttr()].push_back(access);
    }
    before[&op] = earlier.takeVector();
    bool fusable = findRole(&op).has_value();
    unitOf[&op] = units.size();
    units.push_back({{}, fusable ? spaceOf(&op) : Shape(), !fusable});
    units.back().add(&op);
  }
}

ArrayRef<Operation *> Units::getSources(Operation *op) const {
  auto it = before.find(op);
  return it == before.end() ? ArrayRef<Operation *>() : it->second;
}

void Units::findSources(Operation *op) {
  llvm::SetVector<Operation *> sources;
  addSources(op, sources);
  before[op] = sources.takeVector();
}

void Units::add(Operation *op, int unit) {
  unitOf[op] = unit;
  units[unit].add(op);
  spans.add(units[unit].first, units[unit].last);
}

bool Units::hasOuterPath(int from, int to) {
  // Where in the program the first op may be that a path leads to: a unit that
  // has ops on both sides of one is made after it as a whole.
  Operation *reach = spans.findBegin(units[from].first);
  marks.resize(units.size());
  ++searches;
  auto isNew = [&](int unit) {
    return std::exchange(marks[unit], searches) != searches;
  };
  SmallVector<int> worklist{to};
  while (!worklist.empty()) {
    int unit = worklist.pop_back_val();
    for (Operation *op : units[unit].ops)
      for (Operation *source : getSources(op)) {
        int other = unitOf.lookup(source);
        if (other == from && unit != to)
          return true;
        if (other != from && other != to && isNew(other) && units[other].last &&
            !units[other].last->isBeforeInBlock(reach))
          worklist.push_back(other);
      }
  }
  return false;
}

bool Units::isReadOutside(
    Value value, const llvm::SmallPtrSetImpl<Operation *> &inside) const {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    if (inside.contains(user))
      return false;
    if (user->use_empty() && findRole(user))
      return false;
    return unitOf.contains(user) || isReadOutside(user->getResult(0), inside);
  });
}

SmallVector<Value> Units::findOutputs(ArrayRef<Operation *> members) const {
  llvm::SmallPtrSet<Operation *, 32> inside(members.begin(), members.end());
  SmallVector<Value> outputs;
  for (Operation *op : members)
    if (isReadOutside(op->getResult(0), inside))
      outputs.push_back(op->getResult(0));
  return outputs;
}

SmallVector<int> Units::order() {
  for (Unit &unit : units)
    unit.ops = inProgramOrder(unit.ops);
  SmallVector<int> order;
  llvm::DenseSet<int> done;
  std::function<void(int)> visit = [&](int unit) {
    if (!done.insert(unit).second)
      return;
    for (Operation *op : units[unit].ops)
      for (Operation *source : getSources(op))
        if (unitOf.lookup(source) != unit)
          visit(unitOf.lookup(source));
    order.push_back(unit);
  };
  auto isReady = [&](int unit) {
    return llvm::all_of(units[unit].ops, [&](Operation *op) {
      return llvm::all_of(getSources(op), [&](Operation *source) {
        return done.contains(unitOf.lookup(source));
      });
    });
  };
  SmallVector<int> waiting;
  for (Operation &op : block) {
    auto it = unitOf.find(&op);
    if (it == unitOf.end() || units[it->second].ops.back() != &op)
      continue;
    if (nn::getSlotAccess(&op) == nn::SlotAccess::Add && !isReady(it->second))
      waiting.push_back(it->second);
    else
      visit(it->second);
    llvm::erase_if(waiting, [&](int unit) {
      if (isReady(unit))
        visit(unit);
      return done.contains(unit);
    });
  }
  llvm::for_each(waiting, visit);
  return order;
}
