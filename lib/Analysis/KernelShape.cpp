//===- KernelShape.cpp - Loop structure of fused kernels ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which of the loops that KernelShape.h lists a cluster gets, and whether any
// fits. A scatter, or an op that emits rows, decides first, then sums over
// rows; what is left is computed row by row, in as many sweeps as reductions
// depend on each other. Errors name the op that does not fit; fusion asks in
// silence (hasKernel()), code generation aloud.
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/KernelShape.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/IntEqClasses.h"

using namespace mlir;
using namespace plait;

//===----------------------------------------------------------------------===//
// What all kernels have in common
//===----------------------------------------------------------------------===//

/// Kernels know 32-bit numbers and their halves, and loops of at least one
/// iteration.
static LogicalResult checkTypes(plan::ClusterOp cluster) {
  auto check = [](Operation *op, Type type) -> LogicalResult {
    auto tensor = cast<RankedTensorType>(type);
    Type element = tensor.getElementType();
    if (!element.isF32() && !element.isBF16() && !element.isInteger(32))
      return op->emitOpError("computes with ")
             << element << "; kernels compute with f32, bf16 and i32";
    if (!tensor.hasStaticShape() || tensor.getNumElements() == 0)
      return op->emitOpError("computes with ")
             << tensor << "; kernels need static extents of at least 1";
    return success();
  };
  for (Type type : cluster.getOperandTypes())
    if (failed(check(cluster, type)))
      return failure();
  for (Operation &op : cluster.getBody().front().without_terminator())
    for (Type type : op.getResultTypes())
      if (failed(check(&op, type)))
        return failure();
  for (auto [index, type] : llvm::enumerate(cluster.getResultTypes()))
    if (auto modes = cluster.getAccumulate();
        modes && (*modes)[index] && getElementTypeOrSelf(type).isInteger())
      return cluster.emitOpError("accumulates ")
             << type << ", which is not of floats";
  return success();
}

bool plait::readsMemory(OpOperand &operand) {
  return operand.getOperandNumber() == 0 &&
         getFacts(getRole(operand.getOwner())).readsMemory;
}

/// Checks that what is read from memory is an input, at indices that a loop
/// has.
static LogicalResult checkOperand(OpOperand &operand,
                                  const IterationSpace &space) {
  Operation *op = operand.getOwner();
  if (!isa<BlockArgument>(operand.get()))
    return op->emitOpError("reads elsewhere in a tensor that its own cluster "
                           "computes");
  std::optional<IndexMap> map = findIndexMap(op);
  if (map && space.getDims(op->getResult(0))[map->dim] == kNoDim)
    return op->emitOpError("reads elsewhere along a dimension that its "
                           "cluster has no loop over");
  return success();
}

/// Types first, then loops, then what ops read elsewhere, which has to be found
/// in memory and so cannot be computed by the same kernel.
FailureOr<IterationSpace> plait::analyzeCluster(plan::ClusterOp cluster) {
  if (failed(checkTypes(cluster)))
    return failure();
  FailureOr<IterationSpace> space = IterationSpace::analyze(cluster);
  if (failed(space))
    return failure();
  for (Operation &op : cluster.getBody().front().without_terminator())
    for (OpOperand &operand : op.getOpOperands())
      if (readsMemory(operand) && failed(checkOperand(operand, *space)))
        return failure();
  return space;
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

static GroupSet groupsOf(const IterationSpace &space, Value value) {
  return space.getGroups(space.getDims(value));
}

static GroupSet operandGroups(const IterationSpace &space,
                              const Reduction &reduction) {
  return space.getGroups(space.getDims(reduction.op->getOpOperand(0)));
}

/// The innermost group as a set; empty for a kernel of scalars.
static GroupSet innerOf(const IterationSpace &space) {
  return space.getInner() < 0 ? 0 : GroupSet(1) << space.getInner();
}

/// The op that scatters, or null.
static Operation *findScatter(plan::ClusterOp cluster) {
  for (Operation &op : cluster.getBody().front().without_terminator())
    if (getFacts(&op).scatters)
      return &op;
  return nullptr;
}

/// Returns the table in memory that `add` adds to, if its other operand is
/// `rows`, which nobody else reads; else null.
static BlockArgument findTable(Operation *add, Value rows) {
  if (!add->hasTrait<AddsOperands>() || !rows.hasOneUse())
    return {};
  unsigned own = add->getOperand(0) == rows ? 0 : 1;
  auto table = dyn_cast<BlockArgument>(add->getOperand(1 - own));
  bool isAlone = table && table.hasOneUse() &&
                 table.getType() == add->getResult(0).getType();
  return isAlone ? table : BlockArgument();
}

BlockArgument plait::findScatterAddend(plan::ClusterOp cluster) {
  Operation *scatter = findScatter(cluster);
  auto yielded = cluster.getBody().front().getTerminator()->getOperands();
  if (!scatter || yielded.size() != 1 || yielded == scatter->getResults())
    return {};
  Operation *add = yielded.front().getDefiningOp();
  return add ? findTable(add, scatter->getResult(0)) : BlockArgument();
}

/// Whether the cluster needs a kernel over columns.
static bool needsColumns(const IterationSpace &space) {
  GroupSet inner = innerOf(space);
  // A reduction that leaves the inner group, and whose operand has it: rows are
  // added up element by element.
  return llvm::any_of(space.getReductions(), [&](const Reduction &reduction) {
    return reduction.reduced && !(reduction.reduced & inner) &&
           (operandGroups(space, reduction) & inner);
  });
}

/// The first value that has a loop's group and depends on a value of `from`,
/// which are known only after that loop: `loop` are such groups.
static Operation *findDependent(plan::ClusterOp cluster,
                                const IterationSpace &space,
                                ArrayRef<const Reduction *> from,
                                GroupSet loop) {
  // In the order of the ops, which is one of their dependencies: a single
  // walk.
  llvm::DenseSet<Value> after;
  for (Operation &op : cluster.getBody().front().without_terminator()) {
    bool reduces = llvm::any_of(
        from, [&](const Reduction *reduction) { return reduction->op == &op; });
    bool depends = llvm::any_of(op.getOperands(), [&](Value operand) {
      return after.contains(operand);
    });
    if (depends && (reduces || (groupsOf(space, op.getResult(0)) & loop)))
      return &op;
    if (depends || reduces)
      after.insert(op.getResult(0));
  }
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Sweeps: a reduction's result is known one sweep after its operand.
static void assignStages(plan::ClusterOp cluster, const IterationSpace &space,
                         RowShape &shape) {
  llvm::DenseSet<Operation *> ends;
  // A total over all rows ends no sweep over one row: nothing within the kernel
  // waits for it.
  for (const Reduction &reduction : space.getReductions())
    if (reduction.reduced && !shape.isTotal(reduction))
      ends.insert(reduction.op);
  for (Operation &op : cluster.getBody().front().without_terminator()) {
    unsigned stage = 0;
    for (Value operand : op.getOperands())
      stage = std::max(stage, shape.stage.lookup(operand));
    shape.stage[op.getResult(0)] = stage + ends.contains(&op);
  }
}

/// 1. Sorts reductions: over the inner group, which end a sweep, or over
///    everything, which are totals. There is no loop for others.
/// 2. Nothing may depend on a total, which is known after the last row.
/// 3. One long row is cut into blocks where nothing waits for a sum over it.
/// 4. Numbers the sweeps.
static FailureOr<KernelShape> analyzeRows(plan::ClusterOp cluster,
                                          const IterationSpace &space,
                                          int64_t block) {
  // 1.
  RowShape shape;
  GroupSet inner = innerOf(space);
  GroupSet rows = 0;
  for (int64_t group = 0; group < space.getInner(); ++group)
    rows |= GroupSet(1) << group;
  SmallVector<const Reduction *> overInner;
  for (const Reduction &reduction : space.getReductions()) {
    GroupSet operand = operandGroups(space, reduction);
    if (!reduction.reduced)
      continue;
    if (reduction.reduced == inner)
      overInner.push_back(&reduction);
    else if (reduction.reduced == operand && (operand & rows) == rows)
      shape.totals.push_back(&reduction);
    else
      return reduction.op->emitOpError(
          "reduces dimensions that no kernel of its cluster's largest tensor "
          "loops over innermost");
  }
  // 2.
  if (Operation *op = findDependent(cluster, space, shape.totals, ~GroupSet(0)))
    return op->emitOpError("needs a sum over all rows before the first row");
  // 3. A single row would be the work of one thread: it is cut into blocks
  //    where nothing needs a sum over all of it before its end.
  bool flat = space.getGroups().size() == 1;
  if (flat && block && space.getGroups()[0].extent > block &&
      !findDependent(cluster, space, overInner, ~GroupSet(0))) {
    shape.block = block;
    shape.totals.append(overInner);
  }
  // 4.
  assignStages(cluster, space, shape);
  return KernelShape(std::move(shape));
}

//===----------------------------------------------------------------------===//
// Columns
//===----------------------------------------------------------------------===//

/// Joins the `classes` of reductions that an op depends on. Returns one
/// reduction of the class that each value needs; those that need none are left
/// out.
static llvm::DenseMap<Value, int>
joinNeeded(plan::ClusterOp cluster, ArrayRef<const Reduction *> reductions,
           llvm::IntEqClasses &classes) {
  // In the order of the ops, in which operands come before users.
  llvm::DenseMap<Value, int> needed;
  auto need = [&](Operation *op) {
    int own = -1;
    for (Value operand : op->getOperands()) {
      auto found = needed.find(operand);
      if (found == needed.end())
        continue;
      own = own < 0 ? found->second : classes.join(own, found->second);
    }
    return own;
  };
  for (Operation &op : cluster.getBody().front().without_terminator()) {
    int own = need(&op);
    const auto *place = llvm::find_if(
        reductions, [&](const Reduction *one) { return one->op == &op; });
    if (place != reductions.end())
      own = place - reductions.begin();
    if (own >= 0)
      needed[op.getResult(0)] = own;
  }
  return needed;
}

/// The reductions that each result depends on share a part. Parts take further
/// ones, in order, up to `most`.
static SmallVector<ColumnPart>
splitParts(plan::ClusterOp cluster, ArrayRef<const Reduction *> reductions,
           size_t most) {
  llvm::IntEqClasses classes(reductions.size());
  llvm::DenseMap<Value, int> needed = joinNeeded(cluster, reductions, classes);
  // Numbers the classes in the order of their first reductions, so that parts
  // are formed in program order.
  classes.compress();
  // Each sum of a part takes registers for the whole loop over rows; a part
  // more reads its operands once more.
  SmallVector<size_t> sizes(classes.getNumClasses(), 0);
  for (unsigned index = 0; index < reductions.size(); ++index)
    ++sizes[classes[index]];
  SmallVector<unsigned> partOf;
  SmallVector<ColumnPart> parts(1);
  size_t filled = 0;
  // A class is never cut: a result that depends on two sums needs both in one
  // part. One with more sums than `most` is a part of its own.
  for (size_t size : sizes) {
    if (filled && filled + size > most) {
      parts.emplace_back();
      filled = 0;
    }
    filled += size;
    partOf.push_back(parts.size() - 1);
  }
  for (auto [index, reduction] : llvm::enumerate(reductions))
    parts[partOf[classes[index]]].reductions.push_back(reduction);
  for (OpOperand &use :
       cluster.getBody().front().getTerminator()->getOpOperands()) {
    auto found = needed.find(use.get());
    unsigned part = found == needed.end() ? 0 : partOf[classes[found->second]];
    parts[part].results.push_back(use.getOperandNumber());
  }
  return parts;
}

/// All reductions have to be over the same groups, which one loop runs over,
/// and no element of a row may depend on a sum: the sums are known after the
/// last row.
static FailureOr<KernelShape> analyzeColumns(plan::ClusterOp cluster,
                                             const IterationSpace &space,
                                             size_t most) {
  ColumnShape shape;
  GroupSet inner = innerOf(space), reduced = 0;
  SmallVector<const Reduction *> reductions;
  for (const Reduction &reduction : space.getReductions()) {
    if (!reduction.reduced)
      continue;
    if ((reduction.reduced & inner) ||
        (reduced && reduction.reduced != reduced))
      return reduction.op->emitOpError("reduces other dimensions than another "
                                       "op of its cluster, which no kernel "
                                       "does");
    reduced = reduction.reduced;
    reductions.push_back(&reduction);
  }
  if (Operation *op = findDependent(cluster, space, reductions, reduced))
    return op->emitOpError("needs a sum over all rows before the first row");
  for (int64_t group = 0; group < space.getInner(); ++group)
    (reduced >> group & 1 ? shape.reduced : shape.kept).push_back(group);
  shape.parts = splitParts(cluster, reductions, most);
  return KernelShape(std::move(shape));
}

//===----------------------------------------------------------------------===//
// Scattering
//===----------------------------------------------------------------------===//

/// A scattering kernel walks the positions in order and adds each row where it
/// belongs, in a table of zeros or in one that it is given. It has one result,
/// and all that it computes is of the row that it adds.
static LogicalResult checkScatter(plan::ClusterOp cluster,
                                  const IterationSpace &space, Operation *op) {
  Block &body = cluster.getBody().front();
  BlockArgument table = findScatterAddend(cluster);
  if (!table && body.getTerminator()->getOperands() != op->getResults())
    return op->emitOpError("shares its cluster with other results, which no "
                           "kernel computes");
  if (table && cluster.getAccumulate() && (*cluster.getAccumulate())[0])
    return op->emitOpError("adds to a table, and that to what is there, which "
                           "no kernel does");
  ArrayRef<int64_t> dims = space.getDims(op->getOpOperand(0));
  GroupSet all = (GroupSet(1) << space.getGroups().size()) - 1;
  if (space.getGroups(dims) != all)
    return op->emitOpError("scatters a tensor that is not its cluster's "
                           "largest, which no kernel computes");
  for (const Reduction &reduction : space.getReductions())
    if (reduction.reduced)
      return reduction.op->emitOpError("shares a cluster with a scattering op");
  return success();
}

int64_t plait::countTableRows(Operation *op) {
  auto fusable = cast<FusableOpInterface>(op);
  if (int64_t limit = fusable.getRowLimit())
    return limit;
  int64_t rows =
      cast<RankedTensorType>(op->getResult(0).getType()).getDimSize(0);
  for (const RankTerm &term : fusable.getRankBegin())
    rows += term.scale *
            (dist::MeshOp::find(op).getAxisSize(term.axis.getValue()) - 1);
  return rows;
}

// Ids of whole microbatches alone: what ops of the cluster make of them are
// others, and the order is of those that were fed. An order of fewer ids says
// nothing of the last rows.
bool plait::isSorted(Operation *op) {
  return getFacts(op).scatters && isa<BlockArgument>(op->getOperand(1)) &&
         plan::getSortedEntries(op->getOperand(1)) >= countTableRows(op);
}

//===----------------------------------------------------------------------===//
// Rows that an op emits
//===----------------------------------------------------------------------===//

/// The op that has all of the cluster's rows, or null.
static Operation *findRowOp(plan::ClusterOp cluster) {
  for (Operation &op : cluster.getBody().front().without_terminator())
    if (getFacts(getRole(&op)).ownsRows)
      return &op;
  return nullptr;
}

/// It reads its operands where they lie, and writes its result.
static LogicalResult checkRowOp(plan::ClusterOp cluster, Operation *op) {
  Block &body = cluster.getBody().front();
  bool isAlone =
      llvm::hasSingleElement(body.without_terminator()) &&
      body.getTerminator()->getOperands() == op->getResults() &&
      (!cluster.getAccumulate() || (*cluster.getAccumulate())[0] == 0);
  if (isAlone)
    return success();
  return op->emitOpError("shares its cluster with other ops, or adds to what "
                         "is there, which no kernel does");
}

//===----------------------------------------------------------------------===//
// Choosing
//===----------------------------------------------------------------------===//

FailureOr<KernelShape> plait::chooseShape(plan::ClusterOp cluster,
                                          const IterationSpace &space,
                                          const ShapeLimits &limits) {
  if (Operation *scatter = findScatter(cluster)) {
    if (failed(checkScatter(cluster, space, scatter)))
      return failure();
    return KernelShape(ScatterShape{scatter});
  }
  if (Operation *op = findRowOp(cluster)) {
    if (failed(checkRowOp(cluster, op)))
      return failure();
    return KernelShape(RowOpShape{op});
  }
  if (needsColumns(space))
    return analyzeColumns(cluster, space, limits.columnSums);
  bool reduces = llvm::any_of(space.getReductions(), [](const Reduction &one) {
    return one.reduced != 0;
  });
  if (limits.elements && !reduces)
    return KernelShape(ElementShape{});
  return analyzeRows(cluster, space, limits.block);
}

/// The limits of a machine change the loops and never whether there are any, so
/// that those of none do.
bool plait::hasKernel(plan::ClusterOp cluster) {
  ScopedDiagnosticHandler silent(cluster.getContext(),
                                 [](Diagnostic &) { return success(); });
  FailureOr<IterationSpace> space = analyzeCluster(cluster);
  return succeeded(space) &&
         succeeded(chooseShape(cluster, *space, ShapeLimits()));
}

//===----------------------------------------------------------------------===//
// Results in the place of operands
//===----------------------------------------------------------------------===//

/// Whether all that reads the operand does so element by element, where the
/// result lies along the same dimensions.
static bool readsAlike(BlockArgument operand, OpOperand &result,
                       const IterationSpace &space) {
  return llvm::all_of(operand.getUses(), [&](OpOperand &use) {
    return !readsMemory(use) && !getFacts(use.getOwner()).scatters &&
           space.getDims(use) == space.getDims(result);
  });
}

SmallVector<Overwrite> plait::findOverwrites(plan::ClusterOp cluster) {
  ScopedDiagnosticHandler silent(cluster.getContext(),
                                 [](Diagnostic &) { return success(); });
  FailureOr<IterationSpace> space = analyzeCluster(cluster);
  if (failed(space) || space->getInner() < 0)
    return {};
  FailureOr<KernelShape> shape = chooseShape(cluster, *space, ShapeLimits());
  if (BlockArgument table = findScatterAddend(cluster);
      table && succeeded(shape))
    return {{0, table.getArgNumber()}};
  // Under these limits a cluster without reductions is one over rows, too.
  // Loops over columns, and those that scatter, read other elements than they
  // write.
  auto *rows = succeeded(shape) ? std::get_if<RowShape>(&*shape) : nullptr;
  if (!rows)
    return {};
  Block &body = cluster.getBody().front();
  GroupSet all = (GroupSet(1) << space->getGroups().size()) - 1;
  // The last sweep that computes elements of a row.
  unsigned last = 0;
  for (Operation &op : body.without_terminator())
    if (groupsOf(*space, op.getResult(0)) & innerOf(*space))
      last = std::max(last, rows->stage.lookup(op.getResult(0)));
  SmallVector<Overwrite> found;
  // Only in the last sweep: an earlier one would overwrite what a later one
  // reads.
  for (OpOperand &result : body.getTerminator()->getOpOperands()) {
    unsigned index = result.getOperandNumber();
    // A result that is added to needs what lies at its own address.
    auto modes = cluster.getAccumulate();
    if ((modes && (*modes)[index]) || isa<BlockArgument>(result.get()) ||
        space->getGroups(space->getDims(result)) != all ||
        rows->stage.lookup(result.get()) != last)
      continue;
    for (BlockArgument operand : body.getArguments())
      if (operand.getType() == result.get().getType() &&
          readsAlike(operand, result, *space))
        found.push_back({index, operand.getArgNumber()});
  }
  return found;
}
