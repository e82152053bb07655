//===- Units.cpp - Ops of a function on their way to kernels --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Units.h"

#include "llvm/ADT/DenseSet.h"

#include <algorithm>
#include <functional>
#include <numeric>
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
  marks.resize(units.size());
  sorted.resize(units.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  places = sorted;
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
}

bool Units::visitNeeded(int to, int least,
                        llvm::function_ref<bool(int unit, int reader)> body) {
  ++searches;
  auto isNew = [&](int unit) {
    return std::exchange(marks[unit], searches) != searches;
  };
  isNew(to);
  SmallVector<int> worklist{to};
  while (!worklist.empty()) {
    int reader = worklist.pop_back_val();
    for (Operation *op : units[reader].ops)
      for (Operation *source : getSources(op)) {
        int unit = unitOf.lookup(source);
        if (unit == reader || places[unit] < least)
          continue;
        if (body(unit, reader))
          return true;
        if (isNew(unit))
          worklist.push_back(unit);
      }
  }
  return false;
}

void Units::merge(int from, int into) {
  // What the later one needs comes first, then both, then all else in between:
  // that neither needs what is behind it, nor does the earlier one have users
  // in front of it, since no path leads between them.
  int first = std::min(places[from], places[into]);
  int last = std::max(places[from], places[into]);
  visitNeeded(sorted[last], first, [](int, int) { return false; });
  SmallVector<int> needed, others;
  for (int place = first; place <= last; ++place)
    if (int unit = sorted[place]; unit != from && unit != into)
      (marks[unit] == searches ? needed : others).push_back(unit);
  needed.append({into, from});
  int place = first;
  for (int unit : llvm::concat<int>(needed, others)) {
    places[unit] = place;
    sorted[place++] = unit;
  }
  for (Operation *op : units[from].ops)
    add(op, into);
  units[from].clear();
}

bool Units::hasOuterPath(int from, int to) {
  return visitNeeded(to, places[from], [&](int unit, int reader) {
    return unit == from && reader != to;
  });
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
