//===- FormClusters.cpp - Group fusable ops into kernels ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is one kernel; whether there is a kernel for it, the rules of code
// generation say (plait/Analysis/KernelShape.h).
//
// 1. *Free* ops (constants, broadcasts, casts that do not round) are copied
//    into the kernels that use them and never stored.
// 2. A column reduction (over leading dimensions) takes copies of the
//    elementwise ops it reads, as far as nobody needs their results stored.
//    Those of a layer, and those that read the same, share a kernel.
// 3. Every other fusable op joins the kernel of an op it reads from, if both
//    work on the same rows and no path leads out of the kernel and back in.
//    Of several, the one with the most elements: what it needs of the others
//    is less to read.
// 4. What other kernels it reads from make for it alone joins as well, and what
//    they make one number a row of for others too.
// 5. What is compared (ComparesFloats) is read as it is stored, by the
//    comparison and by all others: in a register it may have more bits, and a
//    maximum of it would be equal to none of what is compared with it.
//
//===----------------------------------------------------------------------===//

#include "../Remarks.h"
#include "Fusion.h"
#include "IdenticalFunctions.h"
#include "Spans.h"
#include "plait/Analysis/KernelShape.h"
#include "plait/Transforms/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

#include <functional>
#include <map>
#include <utility>

namespace plait {
#define GEN_PASS_DEF_FORMCLUSTERSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
using Shape = SmallVector<int64_t, 5>;
Shape shapeOf(Value value) {
  return Shape(cast<RankedTensorType>(value.getType()).getShape());
}

/// A sum over everything is sequential: only its like joins it.
bool sumsAll(Operation *op) {
  return isReduction(op) && shapeOf(op->getResult(0)).empty();
}

/// The iteration space of an op on its own.
Shape spaceOf(Operation *op) {
  return shapeOf(isReduction(op) ? op->getOperand(0) : op->getResult(0));
}

/// Ops that will be one kernel, or a single other op.
struct Unit {
  SmallVector<Operation *> ops;
  Shape space;
  bool closed = false, hasTotal = false; // takes no more ops; one sumsAll()
  Operation *first = nullptr, *last = nullptr; // in the program's order

  void add(Operation *op) {
    ops.push_back(op);
    hasTotal = hasTotal || sumsAll(op);
    if (!first || op->isBeforeInBlock(first))
      first = op;
    if (!last || last->isBeforeInBlock(op))
      last = op;
  }
  void clear() { *this = {{}, std::move(space), closed}; }
};

/// A column reduction that others may share a kernel with.
struct Column {
  int unit;
  Attribute layer; // or null
  llvm::SetVector<Value> traffic;

  /// Whether it pays to be in a kernel with `other`. Data that a kernel reads
  /// is held until all of it is there. That is not for long within a layer, and
  /// no longer than anyhow where both read the same.
  bool gains(const Column &other) const {
    auto reads = [&](Value input) { return other.traffic.contains(input); };
    return (layer && layer == other.layer) || llvm::any_of(traffic, reads);
  }
};

/// Forms the clusters of one function.
class Former {
public:
  Former(func::FuncOp function, KnownClusters &known)
      : body(function.getBody().front()), builder(function.getContext()),
        known(known) {}

  void run();

private:
  void createUnits();
  void formColumns();
  void formRows();
  llvm::SetVector<Operation *> findSources(Operation *op);
  void addSources(Operation *op, llvm::SetVector<Operation *> &result);
  Value copyForColumn(Operation *column, Value value, IRMapping &copies,
                      SmallVectorImpl<Operation *> &made);
  bool fits(const Unit &unit, Operation *op);
  bool joinsCompared(ArrayRef<Operation *> ops, ArrayRef<Operation *> more);
  void add(Operation *op, int unit);
  bool hasOuterPath(int from, int to);
  StringRef findObstacle(Operation *op, int target);
  bool join(Operation *op, int target);
  void absorb(int from, int into);
  void tell();
  void emitAll();
  bool isReadOutside(Value value, const llvm::DenseSet<Operation *> &inside);
  SmallVector<Value> findOutputs(ArrayRef<Operation *> members);
  bool fitOneKernel(ArrayRef<Operation *> ops, ArrayRef<Operation *> more);
  void emitCluster(const Unit &unit);
  SmallVector<int> orderUnits();

  Block &body;
  OpBuilder builder;
  bool hasComparisons = false; // most functions compare nothing
  std::vector<Unit> units;
  llvm::DenseMap<Operation *, int> unitOf;
  Spans spans;                 // of units
  uint32_t searches = 0;       // for paths
  std::vector<uint32_t> marks; // by unit: the last search that has met it
  KnownClusters &known;
  /// The ops that must come before each op, free ones looked through.
  llvm::DenseMap<Operation *, SmallVector<Operation *>> before;
};

} // namespace

//===----------------------------------------------------------------------===//
// Units
//===----------------------------------------------------------------------===//

void Former::addSources(Operation *op, llvm::SetVector<Operation *> &result) {
  for (OpOperand &operand : op->getOpOperands())
    if (Operation *source = operand.get().getDefiningOp()) {
      if (isFree(source) && !needsMemory(operand))
        addSources(source, result);
      else
        result.insert(source);
    }
}

/// The ops that `op` reads, free ones looked through.
llvm::SetVector<Operation *> Former::findSources(Operation *op) {
  llvm::SetVector<Operation *> result;
  addSources(op, result);
  return result;
}

void Former::createUnits() {
  llvm::DenseMap<Attribute, SmallVector<SlotOpInterface>> accesses;
  for (Operation &op : body) {
    hasComparisons = hasComparisons || op.hasTrait<ComparesFloats>();
    if (isFree(&op) && llvm::none_of(op.getUses(), needsMemory))
      continue;
    llvm::SetVector<Operation *> earlier = findSources(&op);
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

//===----------------------------------------------------------------------===//
// Growing
//===----------------------------------------------------------------------===//

void Former::add(Operation *op, int unit) {
  unitOf[op] = unit;
  units[unit].add(op);
  spans.add(units[unit].first, units[unit].last);
}

/// Whether a path leads from unit `from` through another unit to unit `to`.
bool Former::hasOuterPath(int from, int to) {
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
      for (Operation *source : before[op]) {
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

/// Whether `op` works on the rows of `unit`.
bool Former::fits(const Unit &unit, Operation *op) {
  // Such a sum makes a kernel sequential.
  if (sumsAll(op) != unit.hasTotal)
    return false;
  Shape space = spaceOf(op);
  ArrayRef<int64_t> own(space), other(unit.space);
  if (own == other)
    return true;
  // Scalars only go with scalars: rows run in parallel, they do not.
  if (own.empty() || other.empty())
    return false;
  // One number per row beside the elements of the row, or the reverse.
  return own == other.drop_back() || other == own.drop_back();
}

/// Step 5: whether in one kernel some of the ops would read from others what is
/// compared, before it is stored.
bool Former::joinsCompared(ArrayRef<Operation *> ops,
                           ArrayRef<Operation *> more) {
  auto reads = [&](ArrayRef<Operation *> readers,
                   ArrayRef<Operation *> makers) {
    return llvm::any_of(makers, [&](Operation *maker) {
      return isCompared(maker->getResult(0)) &&
             llvm::any_of(readers, [&](Operation *reader) {
               return llvm::is_contained(before[reader], maker);
             });
    });
  };
  return hasComparisons && (reads(ops, more) || reads(more, ops));
}

/// Whether a kernel can compute all these ops, as it can any sum of numbers.
bool Former::fitOneKernel(ArrayRef<Operation *> ops,
                          ArrayRef<Operation *> more) {
  if (joinsCompared(ops, more))
    return false;
  if (addNumbers(more) && addNumbers(ops))
    return true;
  SmallVector<Operation *> all(ops);
  llvm::append_range(all, more);
  all = inProgramOrder(all);
  return known.find(all, findOutputs(all)) != Copies::None;
}

/// Moves all of unit `from`, elementwise work that nobody but `into` reads, or
/// that is on one number of each of its rows, into that unit if it is legal:
/// the kernel then stores next to nothing of it.
void Former::absorb(int from, int into) {
  Unit &source = units[from], &target = units[into];
  bool isByRow = ArrayRef(source.space) ==
                     ArrayRef(target.space).drop_back(!target.space.empty()) &&
                 !source.space.empty();
  if (from == into || source.closed || target.closed ||
      (source.space != target.space && !isByRow))
    return;
  llvm::DenseSet<Operation *> both(source.ops.begin(), source.ops.end());
  both.insert(target.ops.begin(), target.ops.end());
  // A block of what is in memory may be read by any kernel.
  auto readsBlock = [](Operation *op) {
    std::optional<IndexMap> map = findIndexMap(op);
    return map && map->isBlock();
  };
  auto stays = [&](Operation *op) {
    return isReduction(op) || (readsElsewhere(op) && !readsBlock(op)) ||
           (!isByRow && isReadOutside(op->getResult(0), both));
  };
  // An op that reads by an index map finds its operand in memory, and is of its
  // own elements otherwise: half of a rotary embedding beside the other.
  llvm::DenseSet<Operation *> moved(source.ops.begin(), source.ops.end());
  auto readsMoved = [&](Operation *op) {
    return llvm::any_of(op->getOpOperands(), [&](OpOperand &use) {
      return readsMemory(use) && moved.contains(use.get().getDefiningOp());
    });
  };
  auto isAlone = [&](Operation *op) {
    bool mapsOnly = findRole(op) == FusionRole::Reindex && !readsMoved(op);
    return (readsElsewhere(op) && !readsFixedBlock(op) && !mapsOnly) ||
           sumsAll(op);
  };
  if (llvm::any_of(source.ops, stays) || llvm::any_of(target.ops, isAlone) ||
      hasOuterPath(into, from) || (isByRow && hasOuterPath(from, into)) ||
      !fitOneKernel(target.ops, source.ops))
    return;
  for (Operation *op : source.ops)
    add(op, into);
  source.clear();
}

/// Why `op` cannot move into unit `target`; empty: it can.
StringRef Former::findObstacle(Operation *op, int target) {
  const Unit &unit = units[target];
  if (unit.closed)
    return "that kernel adds up columns or rows, and takes no others";
  if (!fits(unit, op))
    return "that kernel works on other rows";
  if (hasOuterPath(target, unitOf[op]))
    return "what comes between the two is in neither";
  if (fitOneKernel(unit.ops, op))
    return "";
  return joinsCompared(unit.ops, op)
             ? "what is compared has to be stored before"
             : "no kernel computes both";
}

/// Moves `op` into unit `target` if that is legal.
bool Former::join(Operation *op, int target) {
  Unit &unit = units[target];
  int own = unitOf[op];
  if (own == target || !findObstacle(op, target).empty())
    return false;
  add(op, target);
  if (spaceOf(op).size() > unit.space.size())
    unit.space = spaceOf(op);
  units[own].clear();
  return true;
}

/// Returns what a column reduction is to read in place of `value`: copies, made
/// in front of it and listed, of the elementwise ops that only kernels read,
/// and of those that unpack.
Value Former::copyForColumn(Operation *column, Value value, IRMapping &copies,
                            SmallVectorImpl<Operation *> &made) {
  Unit &own = units[unitOf[column]];
  Operation *source = value.getDefiningOp();
  auto isStored = [](OpOperand &use) {
    return needsMemory(use) ||
           findRole(use.getOwner()) == FusionRole::ScatterAdd;
  };
  if (!source ||
      (findRole(source) != FusionRole::Elementwise && !unpacks(source)) ||
      source->getNumOperands() == 0 || shapeOf(value) != own.space ||
      isCompared(value) || llvm::any_of(value.getUses(), isStored))
    return value;
  if (Value known = copies.lookupOrNull(value))
    return known;
  SmallVector<Value> operands =
      llvm::map_to_vector(source->getOpOperands(), [&](OpOperand &operand) {
        return readsMemory(operand)
                   ? operand.get()
                   : copyForColumn(column, operand.get(), copies, made);
      });
  builder.setInsertionPoint(column);
  Operation *clone = builder.clone(*source);
  clone->setOperands(operands);
  made.push_back(clone);
  copies.map(value, clone->getResult(0));
  return clone->getResult(0);
}

/// Finds what `unit` reads of its whole space: nearly all that it reads.
static llvm::SetVector<Value> findTraffic(const Unit &unit) {
  llvm::SetVector<Value> inputs = findInputs(unit.ops);
  inputs.remove_if([&](Value input) { return shapeOf(input) != unit.space; });
  return inputs;
}

/// Step 2.
void Former::formColumns() {
  std::map<std::pair<Shape, Shape>, Column> open;
  SmallVector<Operation *> columns;
  for (Operation &op : body)
    if (findRole(&op) && unitOf.contains(&op) &&
        (isColumnReduction(&op) || findRole(&op) == FusionRole::ScatterAdd))
      columns.push_back(&op);
  for (Operation *op : columns)
    units[unitOf[op]].closed = true;
  llvm::erase_if(columns, [](Operation *op) { return !isColumnReduction(op); });
  // All first: asking for the ops' order in between numbers the block anew.
  llvm::DenseMap<Operation *, SmallVector<Operation *>> made;
  for (Operation *op : columns) {
    IRMapping copies;
    op->setOperand(0, copyForColumn(op, op->getOperand(0), copies, made[op]));
  }
  for (Operation *op : columns) {
    Unit &own = units[unitOf[op]];
    for (Operation *copy : made[op]) {
      add(copy, unitOf[op]);
      before[copy] = findSources(copy).takeVector();
    }
    before[op] = findSources(op).takeVector();
    Column column{unitOf[op], op->getAttr(nn::kLayerAttr), findTraffic(own)};
    auto [it, isNew] =
        open.try_emplace({own.space, shapeOf(op->getResult(0))}, column);
    int from = column.unit, target = it->second.unit;
    if (isNew || !column.gains(it->second) || hasOuterPath(target, from) ||
        hasOuterPath(from, target) ||
        !fitOneKernel(units[target].ops, own.ops)) {
      it->second = std::move(column);
      continue;
    }
    for (Operation *member : own.ops)
      add(member, target);
    own.clear();
  }
}

/// Steps 3 and 4.
void Former::formRows() {
  SmallVector<Operation *> ops;
  for (Operation &op : body)
    if (unitOf.contains(&op) && findRole(&op) && !units[unitOf[&op]].closed)
      ops.push_back(&op);
  for (Operation *op : ops) {
    // An op nobody reads any more, after columns took copies.
    if (op->use_empty())
      continue;
    SmallVector<Operation *> candidates = inProgramOrder(before[op]);
    llvm::stable_sort(candidates, [&](Operation *a, Operation *b) {
      auto elements = [&](Operation *source) {
        return ShapedType::getNumElements(units[unitOf.lookup(source)].space);
      };
      return elements(a) < elements(b);
    });
    for (Operation *source : llvm::reverse(candidates))
      if (join(op, unitOf.lookup(source)))
        break;
    for (Operation *source : llvm::reverse(candidates))
      absorb(unitOf.lookup(source), unitOf.lookup(op));
  }
}

/// Why ops are in another kernel than what they read.
void Former::tell() {
  if (!hasRemarks(builder.getContext()))
    return;
  for (Operation &op : body) {
    if (!unitOf.contains(&op) || !findRole(&op) || op.use_empty())
      continue;
    for (Operation *source : before[&op]) {
      if (!findRole(source) || unitOf.lookup(source) == unitOf[&op])
        continue;
      StringRef obstacle = findObstacle(&op, unitOf.lookup(source));
      remark::missed(op.getLoc(), about(&op, "fusion", "plan-form-clusters"))
          << remark::add("{0} does not share a kernel with {1}: {2}",
                         op.getName(), source->getName(),
                         obstacle.empty() ? "one of them has moved since"
                                          : obstacle);
    }
  }
}

//===----------------------------------------------------------------------===//
// Emission
//===----------------------------------------------------------------------===//

/// A topological order of the units that stays close to the program's: one
/// comes where its last op is, or before the first that needs it. That a value
/// is accumulated is no need: a kernel for sums of a whole layer would else
/// have all of the layer's input gradients before its weight gradients, and so
/// hold what these read. Sorts their ops.
SmallVector<int> Former::orderUnits() {
  for (Unit &unit : units)
    unit.ops = inProgramOrder(unit.ops);
  SmallVector<int> order;
  llvm::DenseSet<int> done;
  std::function<void(int)> visit = [&](int unit) {
    if (!done.insert(unit).second)
      return;
    for (Operation *op : units[unit].ops)
      for (Operation *source : before[op])
        if (unitOf.lookup(source) != unit)
          visit(unitOf.lookup(source));
    order.push_back(unit);
  };
  auto isReady = [&](int unit) {
    return llvm::all_of(units[unit].ops, [&](Operation *op) {
      return llvm::all_of(before[op], [&](Operation *source) {
        return done.contains(unitOf.lookup(source));
      });
    });
  };
  SmallVector<int> waiting;
  for (Operation &op : body) {
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

/// Whether a value is needed outside of the kernel that holds the ops `inside`:
/// free ops are copied into kernels, and ops that nobody reads any more go.
bool Former::isReadOutside(Value value,
                           const llvm::DenseSet<Operation *> &inside) {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    if (inside.contains(user))
      return false;
    if (findRole(user) && user->use_empty())
      return false;
    return unitOf.contains(user) || isReadOutside(user->getResult(0), inside);
  });
}

/// Finds what other ops than `members` read of their results.
SmallVector<Value> Former::findOutputs(ArrayRef<Operation *> members) {
  llvm::DenseSet<Operation *> inside(members.begin(), members.end());
  SmallVector<Value> outputs;
  for (Operation *op : members)
    if (isReadOutside(op->getResult(0), inside))
      outputs.push_back(op->getResult(0));
  return outputs;
}

void Former::emitCluster(const Unit &unit) {
  SmallVector<Value> outputs = findOutputs(unit.ops);
  // What only ops read that nobody reads.
  if (outputs.empty())
    return;
  plan::ClusterOp cluster =
      createCluster(unit.ops, outputs, known.find(unit.ops, outputs)).release();
  builder.insert(cluster);
  SmallPtrSet<Operation *, 16> inside(unit.ops.begin(), unit.ops.end());
  for (auto [value, result] : llvm::zip_equal(outputs, cluster.getResults()))
    value.replaceUsesWithIf(result, [&](OpOperand &use) {
      return !inside.contains(use.getOwner());
    });
}

void Former::emitAll() {
  Operation *terminator = body.getTerminator();
  SmallVector<Operation *> old;
  for (Operation &op : body)
    if (findRole(&op))
      old.push_back(&op);
  for (int index : orderUnits()) {
    Unit &unit = units[index];
    if (unit.ops.empty() || unit.ops.front() == terminator)
      continue;
    if (!findRole(unit.ops.front())) {
      unit.ops.front()->moveBefore(terminator);
      continue;
    }
    builder.setInsertionPoint(terminator);
    emitCluster(unit);
  }
  for (Operation *op : llvm::reverse(old))
    op->erase();
}

void Former::run() {
  prepareFusion(body);
  createUnits();
  formColumns();
  formRows();
  tell();
  emitAll();
}

void plait::formClusters(func::FuncOp function, KnownClusters &known) {
  Former(function, known).run();
  known.endFunction();
}

namespace {
struct FormClustersPass : plait::impl::FormClustersPassBase<FormClustersPass> {
  void runOnOperation() override {
    sortTokens(getOperation());
    KnownClusters known;
    transformOnce(getOperation(), [&](func::FuncOp function) {
      formClusters(function, known);
    });
  }
};
} // namespace
