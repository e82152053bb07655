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
//    elementwise ops it reads, as far as nobody needs their results stored and
//    the copies read few tensors. Those of a layer, and those that read the
//    same, share a kernel. A scatter whose rows are added to a table that
//    nobody else reads adds them there.
// 3. Every other fusable op joins the kernel of an op it reads from, if both
//    work on the same rows and no path leads out of the kernel and back in.
//    What was copied for a later kernel (PrepareFusion.cpp) joins none but such
//    copies.
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
#include "Units.h"
#include "plait/Analysis/KernelShape.h"
#include "plait/Transforms/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

#include <map>

namespace plait {
#define GEN_PASS_DEF_FORMCLUSTERSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
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
  /// `copies` belong to the ops that read them.
  Former(func::FuncOp function, llvm::DenseSet<Operation *> copies,
         KnownClusters &known)
      : body(function.getBody().front()), builder(function.getContext()),
        units(body), copies(std::move(copies)), known(known) {
    for (Operation *copy : this->copies)
      for (Operation *source : units.getSources(copy))
        if (!this->copies.contains(source))
          stored.insert(source);
  }

  void run();

private:
  void formColumns();
  void formScatters();
  void formRows();
  bool isCopied(Value value, ArrayRef<int64_t> space);
  const llvm::SetVector<Value> &findReads(Value value, ArrayRef<int64_t> space);
  Value copyForColumn(Operation *column, Value value, IRMapping &copies,
                      SmallVectorImpl<Operation *> &made);
  bool fits(const Unit &unit, Operation *op);
  bool joinsCompared(ArrayRef<Operation *> ops, ArrayRef<Operation *> more);
  StringRef findObstacle(Operation *op, int target);
  bool join(Operation *op, int target);
  void absorb(int from, int into);
  void tell();
  void emitAll();
  bool fitOneKernel(ArrayRef<Operation *> ops, ArrayRef<Operation *> more);
  void emitCluster(const Unit &unit);

  Block &body;
  OpBuilder builder;
  Units units;
  llvm::DenseSet<Operation *> copies;
  llvm::DenseSet<Operation *> stored; // for them, by earlier kernels
  KnownClusters &known;
  /// Keeps what findReads() has found of values. Its nodes stay where they are
  /// while it grows.
  std::map<void *, llvm::SetVector<Value>> readsOf;
};

} // namespace

//===----------------------------------------------------------------------===//
// Growing
//===----------------------------------------------------------------------===//

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
    return llvm::any_of(readers, [&](Operation *reader) {
      return llvm::any_of(units.getSources(reader), [&](Operation *source) {
        return llvm::is_contained(makers, source) &&
               isCompared(source->getResult(0));
      });
    });
  };
  return units.compare() && (reads(ops, more) || reads(more, ops));
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
  return known.find(all, units.findOutputs(all)) != Copies::None;
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
  llvm::SmallPtrSet<Operation *, 32> both(source.ops.begin(), source.ops.end());
  both.insert(target.ops.begin(), target.ops.end());
  // A block of what is in memory may be read by any kernel.
  auto readsBlock = [](Operation *op) {
    std::optional<IndexMap> map = findIndexMap(op);
    return map && map->isBlock();
  };
  auto stays = [&](Operation *op) {
    return isReduction(op) || (readsElsewhere(op) && !readsBlock(op)) ||
           (!isByRow && units.isReadOutside(op->getResult(0), both));
  };
  // An op that reads by an index map finds its operand in memory, and is of its
  // own elements otherwise: half of a rotary embedding beside the other.
  llvm::SmallPtrSet<Operation *, 32> moved(source.ops.begin(),
                                           source.ops.end());
  auto readsMoved = [&](Operation *op) {
    return llvm::any_of(op->getOpOperands(), [&](OpOperand &use) {
      return readsMemory(use) && moved.contains(use.get().getDefiningOp());
    });
  };
  auto isAlone = [&](Operation *op) {
    bool mapsOnly = getFacts(op).maps && !readsMoved(op);
    return (readsElsewhere(op) && !readsFixedBlock(op) && !mapsOnly) ||
           sumsAll(op);
  };
  if (llvm::any_of(source.ops, stays) || llvm::any_of(target.ops, isAlone) ||
      units.hasOuterPath(into, from) ||
      (isByRow && units.hasOuterPath(from, into)) ||
      !fitOneKernel(target.ops, source.ops))
    return;
  units.merge(from, into);
}

/// Why `op` cannot move into unit `target`; empty: it can.
StringRef Former::findObstacle(Operation *op, int target) {
  const Unit &unit = units[target];
  if (unit.closed)
    return "that kernel adds up columns or rows, and takes no others";
  if (!fits(unit, op))
    return "that kernel works on other rows";
  if (units.hasOuterPath(target, units.find(op)))
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
  int own = units.find(op);
  if (own == target || !findObstacle(op, target).empty())
    return false;
  units.merge(own, target);
  if (spaceOf(op).size() > unit.space.size())
    unit.space = spaceOf(op);
  return true;
}

/// Tells whether a column reduction over `space` may have a copy of the op that
/// makes `value`: it is elementwise, or unpacks, and only kernels read it.
bool Former::isCopied(Value value, ArrayRef<int64_t> space) {
  auto isStored = [](OpOperand &use) {
    return needsMemory(use) || getFacts(use.getOwner()).scatters;
  };
  Operation *source = value.getDefiningOp();
  return source && (getFacts(source).elementwise || unpacks(source)) &&
         source->getNumOperands() != 0 && !stored.contains(source) &&
         shapeOf(value) == space && !isCompared(value) &&
         !llvm::any_of(value.getUses(), isStored);
}

/// A copy that would read more tensors than this in place of one reads that
/// one: a gradient that layer after layer only adds to, as where norms are
/// behind attention and MLP, would else be added up anew by the kernel of each.
static constexpr size_t kMostReads = 4;

/// Finds the tensors of `space` that a column reduction over it reads where it
/// reads `value`.
const llvm::SetVector<Value> &Former::findReads(Value value,
                                                ArrayRef<int64_t> space) {
  auto [it, isNew] = readsOf.try_emplace(value.getAsOpaquePointer());
  llvm::SetVector<Value> &found = it->second;
  if (!isNew)
    return found;
  bool copies = isCopied(value, space);
  if (copies)
    for (OpOperand &operand : value.getDefiningOp()->getOpOperands()) {
      if (readsMemory(operand))
        found.insert(operand.get());
      else if (shapeOf(operand.get()) == space)
        found.insert_range(findReads(operand.get(), space));
    }
  if (!copies || found.size() > kMostReads) {
    found.clear();
    found.insert(value);
  }
  return found;
}

/// Returns what a column reduction is to read in place of `value`: copies, made
/// in front of it and listed, of what may be copied.
Value Former::copyForColumn(Operation *column, Value value, IRMapping &copies,
                            SmallVectorImpl<Operation *> &made) {
  const Shape &space = units[units.find(column)].space;
  if (!isCopied(value, space) || findReads(value, space).contains(value))
    return value;
  if (Value known = copies.lookupOrNull(value))
    return known;
  Operation *source = value.getDefiningOp();
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
    if (findRole(&op) && units.contains(&op) &&
        (isColumnReduction(&op) || getFacts(&op).scatters))
      columns.push_back(&op);
  for (Operation *op : columns)
    units[units.find(op)].closed = true;
  llvm::erase_if(columns, [](Operation *op) { return !isColumnReduction(op); });
  // All first: asking for the ops' order in between numbers the block anew.
  llvm::DenseMap<Operation *, SmallVector<Operation *>> made;
  for (Operation *op : columns) {
    IRMapping copies;
    op->setOperand(0, copyForColumn(op, op->getOperand(0), copies, made[op]));
  }
  for (Operation *op : columns) {
    Unit &own = units[units.find(op)];
    for (Operation *copy : made[op]) {
      units.add(copy, units.find(op));
      units.findSources(copy);
    }
    units.findSources(op);
    Column column{units.find(op), op->getAttr(nn::kLayerAttr),
                  findTraffic(own)};
    auto [it, isNew] =
        open.try_emplace({own.space, shapeOf(op->getResult(0))}, column);
    int from = column.unit, target = it->second.unit;
    if (isNew || !column.gains(it->second) ||
        units.hasOuterPath(target, from) || units.hasOuterPath(from, target) ||
        !fitOneKernel(units[target].ops, own.ops)) {
      it->second = std::move(column);
      continue;
    }
    units.merge(column.unit, target);
  }
}

/// Whether a kernel may add to `table` where it lies: a matmul has made it, for
/// one reader.
static bool isOwnTable(Value table) {
  return table.getDefiningOp<ContractionOpInterface>() && table.hasOneUse();
}

/// Whether `value` may be made in the place of an operand: it has to lie in no
/// buffer, slot or whole.
static bool liesAnywhere(Value value) {
  return llvm::none_of(value.getUsers(), [](Operation *user) {
    return isa<MemoryOpInterface, func::ReturnOp>(user) ||
           user->hasTrait<JoinsOperands>();
  });
}

/// Step 2, of scatters: the gradient of a table that the loss reads as well.
void Former::formScatters() {
  SmallVector<Operation *> scatters;
  for (Operation &op : body)
    if (units.contains(&op) && getFacts(&op).scatters &&
        op.getResult(0).hasOneUse())
      scatters.push_back(&op);
  for (Operation *op : scatters) {
    Operation *add = *op->user_begin();
    if (!add->hasTrait<AddsOperands>() || !units.contains(add) ||
        !liesAnywhere(add->getResult(0)))
      continue;
    int from = units.find(add), target = units.find(op);
    if (llvm::any_of(add->getOperands(), isOwnTable) &&
        !units.hasOuterPath(target, from) &&
        fitOneKernel(units[target].ops, add))
      units.merge(from, target);
  }
}

/// Steps 3 and 4.
void Former::formRows() {
  SmallVector<Operation *> ops;
  for (Operation &op : body)
    if (units.contains(&op) && findRole(&op) && !units[units.find(&op)].closed)
      ops.push_back(&op);
  for (Operation *op : ops) {
    // An op nobody reads any more, after columns took copies.
    if (op->use_empty())
      continue;
    SmallVector<Operation *> candidates = inProgramOrder(units.getSources(op));
    if (copies.contains(op))
      llvm::erase_if(candidates, [&](Operation *source) {
        return !copies.contains(source);
      });
    llvm::stable_sort(candidates, [&](Operation *a, Operation *b) {
      auto elements = [&](Operation *source) {
        return ShapedType::getNumElements(units[units.find(source)].space);
      };
      return elements(a) < elements(b);
    });
    for (Operation *source : llvm::reverse(candidates))
      if (join(op, units.find(source)))
        break;
    for (Operation *source : llvm::reverse(candidates))
      absorb(units.find(source), units.find(op));
  }
}

/// Why ops are in another kernel than what they read.
void Former::tell() {
  if (!hasRemarks(builder.getContext()))
    return;
  for (Operation &op : body) {
    if (!units.contains(&op) || !findRole(&op) || op.use_empty())
      continue;
    for (Operation *source : units.getSources(&op)) {
      if (!findRole(source) || units.find(source) == units.find(&op))
        continue;
      StringRef obstacle = findObstacle(&op, units.find(source));
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

void Former::emitCluster(const Unit &unit) {
  SmallVector<Value> outputs = units.findOutputs(unit.ops);
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
  for (int index : units.order()) {
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
  formColumns();
  formScatters();
  formRows();
  tell();
  emitAll();
}

void plait::formClusters(func::FuncOp function, KnownClusters &known) {
  auto copies = prepareFusion(function.getBody().front());
  Former(function, std::move(copies), known).run();
  known.endFunction();
}

namespace {
struct FormClustersPass : plait::impl::FormClustersPassBase<FormClustersPass> {
  /// Kept for modules that follow, in the same context.
  KnownClusters known;

  void runOnOperation() override {
    sortTokens(getOperation());
    transformOnce(getOperation(), [&](func::FuncOp function) {
      formClusters(function, known);
    });
  }
};
} // namespace
