//===- EmitRows.cpp - Kernels over rows -----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   for row:
//     for each sweep:
//       for j in the inner group, by lanes: partial sums, stores
//       the last, partial vector under a mask
//     stores of one number per row
//
// Which rows a thread has, and which elements of one, is its workers' business.
//
//===----------------------------------------------------------------------===//

#include "EmitKernel.h"
#include "OnlineSums.h"
#include "Workers.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

namespace {

/// Everything that one pass over the inner group computes.
struct Sweep {
  SmallVector<const Reduction *> reductions;
  SmallVector<OnlineSum> online;
  SmallVector<unsigned> stores;
};

/// The loops of one kernel over rows. Filled in by plan(), which decides what
/// every sweep does; the emit… functions below follow the nest from the outside
/// in.
class RowEmitter {
public:
  RowEmitter(Emitter &emitter, Workers &workers, const RowShape &shape,
             KernelInfo &info)
      : emitter(emitter), workers(workers), builder(emitter.builder),
        space(emitter.space), shape(shape), info(info) {}

  void run();

private:
  using Values = SmallVector<Value>;

  void plan();
  void emitRow(Value row, Values &totals);
  void emitSweep(unsigned index, Value row, Values &totals);
  void endSweep(const Sweep &sweep, Values &partials, Values &totals);
  void endOnline(const Sweep &sweep, ValueRange tops, Values &sums);
  void emitPick(const Reduction &sum);
  Value countedLanes(Value index);
  void emitMain(Sweep &sweep, Value row, Values &partials);
  void emitTail(Sweep &sweep, Value row, Values &partials, int64_t count);
  Values emitChunk(Sweep &sweep, Value index, ValueRange partials);
  void chooseSpills(const Sweep &sweep);
  std::optional<unsigned> findSpace(Value value);
  bool readsLater(Type type, Value kept);
  bool isFull(unsigned result);
  int64_t innerExtent() const {
    return space.getGroups()[space.getInner()].extent;
  }

  Emitter &emitter;
  Workers &workers;
  ImplicitLocOpBuilder &builder;
  const IterationSpace &space;
  const RowShape &shape;
  KernelInfo &info;

  // Parallel indices: rows, or blocks of the only row where the shape has
  // blocks.
  int64_t rows = 1;
  std::vector<Sweep> sweeps;
  RowStages stages;
  // Results of one number a row, and of one number altogether.
  SmallVector<unsigned> rowStores, kernelStores;
  // Reductions over all rows of what is one number in each.
  SmallVector<const Reduction *> rowTotals;
  unsigned current = 0;                           // sweep
  SmallVector<std::pair<Value, unsigned>> spills; // of this sweep
  llvm::SmallDenseSet<unsigned> spilled;          // results taken so far
  bool spillsChosen = false;
};

} // namespace

/// Distributes reductions and stores over the sweeps.
/// 1. Count the parallel indices and assign scopes: the inner group is looped
///    over, all others are fixed by the row.
/// 2. Give each reduction the sweep of its operand's stage.
/// 3. Give each result the sweep in which it becomes known, or the place after
///    the row or after the kernel where it has fewer dimensions. Nothing is
///    emitted here.
void RowEmitter::plan() {
  // 1.
  int64_t inner = space.getInner();
  for (int64_t group = 0; group < inner; ++group)
    rows *= space.getGroups()[group].extent;
  if (shape.block)
    rows = llvm::divideCeil(innerExtent(), shape.block);
  if (inner >= 0)
    emitter.groupScope[inner] = LoopScope;
  emitter.assignScopes([&](const Reduction &reduction) {
    return shape.isTotal(reduction) ? KernelScope : IndexScope;
  });
  // What needs a reduction over the row is known one sweep after it, unless it
  // is found with another.
  // In a block of threads for each row, whose barriers single elements need.
  bool isLong = workers.leastOnline && inner >= 0 &&
                innerExtent() >= workers.leastOnline && !shape.block &&
                shape.totals.empty();
  stages = assignRowStages(emitter.cluster, space, shape, isLong);
  auto sweepAt = [&](unsigned stage) -> Sweep & {
    if (sweeps.size() <= stage)
      sweeps.resize(stage + 1);
    return sweeps[stage];
  };
  // 2.
  for (const Reduction &reduction : space.getReductions()) {
    OpOperand &operand = reduction.op->getOpOperand(0);
    if (!reduction.reduced || stages.isFoundOtherwise(&reduction))
      continue;
    if (emitter.hasInner(space.getDims(operand)))
      sweepAt(stages.of.lookup(operand.get())).reductions.push_back(&reduction);
    else
      // It has one summand a row, which needs no loop.
      rowTotals.push_back(&reduction);
  }
  for (const OnlineSum &online : stages.online)
    sweepAt(stages.of.lookup(online.top->op->getOperand(0)))
        .online.push_back(online);
  // 3.
  for (unsigned result = 0; result < emitter.cluster.getNumResults();
       ++result) {
    OpOperand &use = emitter.getYielded(result);
    ScopeIndex scope = emitter.getScope(use);
    if (scope == LoopScope)
      sweepAt(stages.of.lookup(use.get())).stores.push_back(result);
    else
      (scope == IndexScope ? rowStores : kernelStores).push_back(result);
  }
}

//===----------------------------------------------------------------------===//
// Keeping costly values between sweeps
//===----------------------------------------------------------------------===//

/// Whether the kernel writes all of the result, and once.
bool RowEmitter::isFull(unsigned result) {
  GroupSet all = (GroupSet(1) << space.getGroups().size()) - 1;
  return emitter.getMode(result) == plan::Accumulate::Overwrite &&
         space.getGroups(space.getDims(emitter.getYielded(result))) == all;
}

/// Whether the sweeps to come read an operand of `type` along the inner group,
/// in whose place a result may lie (findOverwrites), if `kept` and what has
/// been spilled are not computed again.
/// The results' memory may be an operand's: a value that waits there would
/// destroy an operand that is yet to be read. Operands of all types but `type`
/// cannot share it. Follows definitions backwards from the ops of later sweeps;
/// what only a kept value is computed of is not read again.
bool RowEmitter::readsLater(Type type, Value kept) {
  llvm::SmallSetVector<Value, 8> needed;
  auto isKept = [&](Value value) {
    return value == kept || llvm::any_of(spills, [&](const auto &spill) {
             return spill.first == value;
           });
  };
  for (Operation &op : emitter.cluster.getBody().front().without_terminator())
    if (stages.of.lookup(op.getResult(0)) > current &&
        emitter.getScope(op.getResult(0)) == LoopScope)
      needed.insert(op.operand_begin(), op.operand_end());
  for (size_t index = 0; index < needed.size(); ++index) {
    Value value = needed[index];
    if (isa<BlockArgument>(value)) {
      if (value.getType() == type)
        return true;
    } else if (!isKept(value) && emitter.getScope(value) == LoopScope) {
      Operation *op = value.getDefiningOp();
      needed.insert(op->operand_begin(), op->operand_end());
    }
  }
  return false;
}

/// A result that the last sweep writes and that could hold `value` until then,
/// all of its bits.
/// Only f32: a value in a bf16 buffer would come back rounded. Only results of
/// the last sweep, so that no sweep in between writes there, and of the value's
/// own dimensions, so that each element has its own place.
std::optional<unsigned> RowEmitter::findSpace(Value value) {
  if (!getElementTypeOrSelf(value).isF32())
    return std::nullopt;
  for (unsigned result : sweeps.back().stores) {
    OpOperand &use = emitter.getYielded(result);
    if (isFull(result) && !spilled.contains(result) &&
        space.getDims(use) == space.getDims(value) &&
        getElementTypeOrSelf(use.get()) == getElementTypeOrSelf(value) &&
        !readsLater(use.get().getType(), value))
      return result;
  }
  return std::nullopt;
}

/// A value that took long to compute and that a later sweep needs waits in the
/// buffer of a result that is written later.
/// In the order of the body, so that equal clusters give equal kernels. A value
/// that is stored in this sweep anyway needs no second place; see emitSweep().
void RowEmitter::chooseSpills(const Sweep &sweep) {
  spillsChosen = true;
  Block &body = emitter.cluster.getBody().front();
  for (Operation &op : body.without_terminator()) {
    Value value = op.getResult(0);
    bool later = llvm::any_of(value.getUsers(), [&](Operation *user) {
      return user->getNumResults() == 1 &&
             stages.of.lookup(user->getResult(0)) > current &&
             emitter.getScope(user->getResult(0)) == LoopScope;
    });
    bool stored = llvm::any_of(sweep.stores, [&](unsigned result) {
      return emitter.getYielded(result).get() == value;
    });
    if (!later || stored || stages.of.lookup(value) != current ||
        emitter.getScope(value) != LoopScope || !emitter.isCostly(value))
      continue;
    if (std::optional<unsigned> result = findSpace(value)) {
      spills.push_back({value, *result});
      spilled.insert(*result);
    }
  }
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

/// One vector of a row: reductions, then stores, then spills. Returns the new
/// partial sums, one vector for each of the sweep's reductions.
RowEmitter::Values RowEmitter::emitChunk(Sweep &sweep, Value index,
                                         ValueRange partials) {
  emitter.enter(LoopScope);
  emitter.groupIndex[space.getInner()] = index;
  Values next, summands;
  for (auto [reduction, partial] : llvm::zip(sweep.reductions, partials)) {
    FusionRole role = getRole(reduction->op);
    Value summand =
        emitter.splat(emitter.emitSummand(*reduction), emitter.lanes);
    // Lanes beyond the row hold zeros, or what lies between rows, and the
    // arithmetic has made anything of it: they count as nothing.
    if (Value counts = emitter.mask ? emitter.mask : emitter.counted) {
      Value nothing = emitter.neutral(role, emitter.lanes);
      summand = arith::SelectOp::create(builder, counts, summand, nothing);
    }
    next.push_back(emitter.combine(role, partial, summand));
    summands.push_back(summand);
  }
  for (auto [online, sum] :
       llvm::zip(sweep.online, partials.drop_front(sweep.reductions.size()))) {
    size_t top =
        llvm::find(sweep.reductions, online.top) - sweep.reductions.begin();
    next.push_back(addOnline(builder, sum, partials[top], summands[top]));
  }
  // What is costly is known when it has been emitted, so this comes after the
  // first chunk's reductions and holds for the tail as well.
  if (current + 1 < sweeps.size() && !spillsChosen && workers.keepsCostly)
    chooseSpills(sweep);
  // Stores first: they load what they need, which may lie where a value is to
  // wait. They write themselves where no operand lies, as later sweeps follow.
  emitter.storeResults(sweep.stores, LoopScope);
  for (auto [value, result] : spills)
    emitter.spill(value, result);
  return next;
}

/// Those of the lanes from `index` on that belong to the row.
/// In 32 bits, like the lanes: what is left of a row fits, and masks cost less.
Value RowEmitter::countedLanes(Value index) {
  auto type = VectorType::get({emitter.lanes}, builder.getI32Type());
  SmallVector<int32_t> numbers = llvm::to_vector_of<int32_t>(
      llvm::seq<int32_t>(static_cast<int32_t>(emitter.lanes)));
  Value lane = arith::ConstantOp::create(
      builder, DenseElementsAttr::get(type, ArrayRef<int32_t>(numbers)));
  Value left =
      arith::SubIOp::create(builder, emitter.constant(innerExtent()), index);
  left = arith::TruncIOp::create(builder, builder.getI32Type(), left);
  return arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, lane,
                               emitter.splat(left, emitter.lanes));
}

/// The whole vectors of a row, if it has any, or all.
/// With blocks, `row` is the number of a block of the only row, and the loop
/// ends at the block's end or the row's. Where vectors may reach beyond the row
/// (readsBeyondRows) the last one is a part of this loop, and `counted` keeps
/// its surplus lanes out of sums; else emitTail() has it.
void RowEmitter::emitMain(Sweep &sweep, Value row, Values &partials) {
  int64_t whole = llvm::alignTo(innerExtent(), emitter.lanes);
  if (!workers.readsBeyondRows)
    whole -= whole == innerExtent() ? 0 : emitter.lanes;
  if (whole == 0)
    return;
  Value first = emitter.constant(0), last = emitter.constant(whole);
  if (shape.block) {
    first = emitter.mul(row, shape.block);
    Value next = emitter.add(first, emitter.constant(shape.block));
    last = arith::MinSIOp::create(builder, next, last);
  }
  Workers::Share share = workers.deal(first, whole, emitter.lanes);
  Value step = emitter.constant(workers.members * emitter.lanes);
  auto loop = scf::ForOp::create(builder, share.begin, last, step, partials);
  emitter.setAnchor(IndexScope, loop);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Value index = workers.dealtIndex(share, loop.getInductionVar());
  if (whole > innerExtent())
    emitter.counted = countedLanes(index);
  Values next = emitChunk(sweep, index, loop.getRegionIterArgs());
  emitter.counted = Value();
  if (!partials.empty())
    scf::YieldOp::create(builder, next);
  partials.assign(loop.result_begin(), loop.result_end());
}

/// The last `count` elements. Of blocks, only the last one has them.
/// Under a constant mask: one vector of code rather than a loop over single
/// elements. The branch that blocks need carries the partial sums around.
void RowEmitter::emitTail(Sweep &sweep, Value row, Values &partials,
                          int64_t count) {
  auto emitBody = [&] {
    emitter.mask = emitter.constantMask(count);
    Value index = emitter.constant(innerExtent() - count);
    Values next = emitChunk(sweep, index, partials);
    emitter.mask = Value();
    return next;
  };
  if (!shape.block) {
    partials = emitBody();
    return;
  }
  Value isLast = arith::CmpIOp::create(builder, arith::CmpIPredicate::eq, row,
                                       emitter.constant(rows - 1));
  auto branch = scf::IfOp::create(builder, ValueRange(partials).getTypes(),
                                  isLast, true, !partials.empty());
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  Values next = emitBody();
  scf::YieldOp::create(builder, next);
  if (partials.empty())
    return;
  builder.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(builder, partials);
  partials.assign(branch.result_begin(), branch.result_end());
}

/// 1. Begin all partial sums at their neutral elements, in all lanes.
/// 2. Emit the loop and the tail.
/// 3. Make known what has been stored: a value whose result is written in full
///    is read back by later sweeps rather than computed again.
/// 4. End the reductions.
void RowEmitter::emitSweep(unsigned index, Value row, Values &totals) {
  Sweep &sweep = sweeps[index];
  current = index;
  spills.clear();
  spillsChosen = false;
  // 1.
  Values partials;
  for (const Reduction *reduction : sweep.reductions)
    partials.push_back(emitter.neutral(getRole(reduction->op), emitter.lanes));
  partials.append(sweep.online.size(),
                  emitter.neutral(FusionRole::ReduceSum, emitter.lanes));
  // 2.
  emitMain(sweep, row, partials);
  if (int64_t count = innerExtent() % emitter.lanes;
      count && !workers.readsBeyondRows)
    emitTail(sweep, row, partials, count);
  // 3. Behind the loop: what later sweeps need of the row is emitted here.
  emitter.setAnchor(IndexScope, nullptr);
  for (auto [value, result] : spills)
    emitter.reloadFrom(value, result);
  for (unsigned result : sweep.stores)
    if (isFull(result) && emitter.getYielded(result).get().getDefiningOp())
      emitter.reloadFrom(emitter.getYielded(result).get(), result);
  // 4.
  endSweep(sweep, partials, totals);
}

/// Makes known what the sweep's reductions found.
void RowEmitter::endSweep(const Sweep &sweep, Values &partials,
                          Values &totals) {
  SmallVector<FusionRole> roles;
  size_t count = sweep.reductions.size();
  Values tops(partials.begin(), partials.begin() + count);
  Values sums(partials.begin() + count, partials.end());
  partials.truncate(count);
  for (auto [reduction, partial] : llvm::zip(sweep.reductions, partials)) {
    roles.push_back(getRole(reduction->op));
    partial = emitter.combineLanes(roles.back(), partial);
  }
  // Lanes first, then threads, always in the same order: the same bits in every
  // run, though not on machines with other vectors.
  workers.combine(roles, partials);
  for (auto [reduction, sum] : llvm::zip(sweep.reductions, partials)) {
    auto *total = llvm::find(shape.totals, reduction);
    if (total == shape.totals.end()) {
      emitter.setValue(reduction->op->getResult(0), IndexScope, sum);
      continue;
    }
    Value &slot = totals[total - shape.totals.begin()];
    slot = emitter.combine(getRole(reduction->op), slot, sum);
  }
  if (!sweep.online.empty())
    endOnline(sweep, tops, sums);
}

/// Every lane of every thread has added up relative to its own maximum, one of
/// `tops`: the sums are brought to that of the row, and combined. Before that
/// single elements are loaded: combining waits for all threads, of which the
/// first then may write where the row lies.
void RowEmitter::endOnline(const Sweep &sweep, ValueRange tops, Values &sums) {
  SmallVector<FusionRole> roles(sums.size(), FusionRole::ReduceSum);
  for (auto [online, sum] : llvm::zip(sweep.online, sums)) {
    for (const Reduction *picked : online.picks)
      emitPick(*picked);
    const auto *place = llvm::find(sweep.reductions, online.top);
    Value own = tops[place - sweep.reductions.begin()];
    Value top = emitter.emit(*online.top->op->getResult(0).use_begin());
    sum = rescale(builder, sum, own, emitter.splat(top, emitter.lanes));
    sum = emitter.combineLanes(FusionRole::ReduceSum, sum);
  }
  workers.combine(roles, sums);
  for (auto [online, sum] : llvm::zip(sweep.online, sums))
    emitter.setValue(online.sum->op->getResult(0), IndexScope, sum);
}

/// A sum of one element of the row needs no sweep: all its threads load that.
void RowEmitter::emitPick(const Reduction &sum) {
  Operation *pick = sum.op->getOperand(0).getDefiningOp();
  int64_t lanes = std::exchange(emitter.lanes, 1);
  emitter.enter(LoopScope);
  Value inside = placeAtPicked(emitter, pick);
  Value value = emitter.emit(pick->getOpOperand(0));
  Value zero = emitter.neutral(FusionRole::ReduceSum, 1);
  value = arith::SelectOp::create(builder, inside, value, zero);
  emitter.setValue(sum.op->getResult(0), IndexScope, value);
  emitter.lanes = lanes;
}

/// All that one row needs; `totals` are the numbers carried from row to row.
void RowEmitter::emitRow(Value row, Values &totals) {
  emitter.enter(IndexScope);
  SmallVector<int64_t> rowGroups;
  for (int64_t group = 0; group < space.getInner(); ++group)
    rowGroups.push_back(group);
  emitter.setIndices(rowGroups, row);
  for (unsigned index = 0; index < sweeps.size(); ++index)
    emitSweep(index, row, totals);
  for (const Reduction *reduction : rowTotals) {
    Value &slot =
        totals[llvm::find(shape.totals, reduction) - shape.totals.begin()];
    Value summand = emitter.emitSummand(*reduction);
    slot = emitter.combine(getRole(reduction->op), slot, summand);
  }
  emitter.storeResults(rowStores, IndexScope);
}

/// The grain is such that a thread gets a few thousand elements at least: a
/// short row alone is not worth one.
void RowEmitter::run() {
  plan();
  // What is added up over all rows is carried by one loop over them, which is
  // one call however many rows there are.
  bool once = !shape.totals.empty();
  info.extent = once ? 1 : rows;
  int64_t width = shape.block      ? shape.block
                  : sweeps.empty() ? 1
                                   : innerExtent();
  info.grain = std::max<int64_t>(1, kGrainElements / width);
  Values totals;
  SmallVector<FusionRole> roles;
  for (const Reduction *reduction : shape.totals) {
    roles.push_back(getRole(reduction->op));
    totals.push_back(emitter.neutral(roles.back(), 1));
  }
  if (!sweeps.empty() || !rowStores.empty() || !rowTotals.empty())
    workers.forIndices(rows, roles, totals,
                       [&](Value row) { emitRow(row, totals); });
  emitter.setAnchor(KernelScope, nullptr);
  for (auto [reduction, total] : llvm::zip(shape.totals, totals))
    emitter.setValue(reduction->op->getResult(0), KernelScope, total);
  emitter.storeResults(kernelStores, KernelScope);
}

void codegen::emitRows(Emitter &emitter, Workers &workers,
                       const RowShape &shape, KernelInfo &info) {
  RowEmitter(emitter, workers, shape, info).run();
}
