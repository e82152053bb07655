//===- EmitColumns.cpp - Kernels over blocks of columns -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   for part of the sums, for block of columns:
//     for row: partial sums of the block's columns in registers, stores
//     stores of one number per column
//
// The order of the additions does not depend on the split of the columns.
//
//===----------------------------------------------------------------------===//

#include "EmitKernel.h"
#include "Workers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

namespace {

/// The loops of one kernel that sums over rows and keeps columns. A parallel
/// index is a block of columns for one part of the sums and one index of the
/// other kept groups.
class ColumnEmitter {
public:
  ColumnEmitter(Emitter &emitter, Workers &workers, const ColumnShape &shape,
                KernelInfo &info)
      : emitter(emitter), workers(workers), builder(emitter.builder),
        space(emitter.space), shape(shape), info(info) {}

  void run();

private:
  void plan();
  void emitIndex(Value index);
  void emitPart(const ColumnPart &part, Value block);
  void placeNeighbours(Value block);
  void emitBlock(const ColumnPart &part, int64_t count);
  void emitSums(const ColumnPart &part);
  SmallVector<unsigned> resultsAt(const ColumnPart &part, ScopeIndex scope);

  Emitter &emitter;
  Workers &workers;
  ImplicitLocOpBuilder &builder;
  const IterationSpace &space;
  const ColumnShape &shape;
  KernelInfo &info;

  // `rows` that each sum is over; `kept` indices of groups outside of the
  // columns; `vectors` of columns, and `blocks` of `neighbours` such vectors.
  int64_t rows = 1, kept = 1, vectors = 1, blocks = 1;
  Value lastRow; // of this thread's columns; null: they have all
};

} // namespace

/// Which sum is over which rows is the shape's decision. Here the reduced
/// groups become the loop, and extents are counted.
void ColumnEmitter::plan() {
  for (int64_t group : shape.reduced) {
    emitter.groupScope[group] = LoopScope;
    rows *= space.getGroups()[group].extent;
  }
  emitter.assignScopes([](const Reduction &) { return IndexScope; });
  for (int64_t group : shape.kept)
    kept *= space.getGroups()[group].extent;
  int64_t columns = space.getGroups()[space.getInner()].extent;
  vectors = llvm::divideCeil(columns, emitter.lanes);
  blocks = llvm::divideCeil(vectors, workers.neighbours);
}

/// The results of `part` that become known in `scope`.
SmallVector<unsigned> ColumnEmitter::resultsAt(const ColumnPart &part,
                                               ScopeIndex scope) {
  SmallVector<unsigned> results;
  for (unsigned result : part.results)
    if (emitter.getScope(emitter.getYielded(result)) == scope)
      results.push_back(result);
  return results;
}

/// The loop over rows, and what is known after it.
/// 1. All sums begin at their neutral elements: vectors of columns, or a scalar
///    where the operand has no columns.
/// 2. One loop over the rows carries all sums of the part, so that what they
///    share is loaded once; results of all dimensions are stored on the way.
/// 3. The team combines, and what each column has is stored.
void ColumnEmitter::emitSums(const ColumnPart &part) {
  // 1.
  SmallVector<Value> sums;
  SmallVector<FusionRole> roles;
  for (const Reduction *reduction : part.reductions) {
    bool wide = emitter.hasInner(space.getDims(reduction->op->getOpOperand(0)));
    roles.push_back(getRole(reduction->op));
    sums.push_back(emitter.neutral(roles.back(), wide ? emitter.lanes : 1));
  }
  // 2.
  Workers::Share share = workers.deal(emitter.constant(0), rows, 1);
  // A thread adds every `members`th row to sums in registers; the threads of a
  // column meet once, after the loop.
  Value last = lastRow ? lastRow : emitter.constant(rows);
  Value step = emitter.constant(workers.members);
  auto loop = scf::ForOp::create(builder, share.begin, last, step, sums);
  emitter.setAnchor(IndexScope, loop);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    emitter.enter(LoopScope);
    emitter.setIndices(shape.reduced,
                       workers.dealtIndex(share, loop.getInductionVar()));
    SmallVector<Value> next;
    for (auto [reduction, sum] :
         llvm::zip(part.reductions, loop.getRegionIterArgs())) {
      bool wide = isa<VectorType>(sum.getType());
      Value summand = emitter.splat(emitter.emitSummand(*reduction),
                                    wide ? emitter.lanes : 1);
      next.push_back(emitter.combine(getRole(reduction->op), sum, summand));
    }
    emitter.storeResults(resultsAt(part, LoopScope), LoopScope);
    scf::YieldOp::create(builder, next);
  }
  // 3.
  emitter.setAnchor(IndexScope, nullptr);
  sums.assign(loop.result_begin(), loop.result_end());
  workers.combine(roles, sums);
  for (auto [reduction, sum] : llvm::zip(part.reductions, sums))
    emitter.setValue(reduction->op->getResult(0), IndexScope, sum);
  emitter.storeResults(resultsAt(part, IndexScope), IndexScope);
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// A block of which `count` columns exist.
void ColumnEmitter::emitBlock(const ColumnPart &part, int64_t count) {
  emitter.enter(IndexScope);
  if (count < emitter.lanes)
    emitter.mask = emitter.constantMask(count);
  emitSums(part);
  emitter.mask = Value();
}

/// Threads beyond the last column stand in for the last one without rows: they
/// take part in combining, but count for nothing.
/// They cannot leave instead: the barrier of combine() waits for all threads of
/// the block.
void ColumnEmitter::placeNeighbours(Value block) {
  Value vector =
      emitter.add(emitter.mul(block, workers.neighbours), workers.neighbour);
  if (vectors % workers.neighbours) {
    Value exists = arith::CmpIOp::create(builder, arith::CmpIPredicate::ult,
                                         vector, emitter.constant(vectors));
    vector =
        arith::MinUIOp::create(builder, vector, emitter.constant(vectors - 1));
    Value all = emitter.constant(rows), none = emitter.constant(0);
    lastRow = arith::SelectOp::create(builder, exists, all, none);
    Value &guard = emitter.indexGuard;
    guard = guard ? arith::AndIOp::create(builder, guard, exists).getResult()
                  : exists;
  }
  emitter.groupIndex[space.getInner()] = emitter.mul(vector, emitter.lanes);
}

/// The last block may be narrower than a vector, and is the only one with a
/// mask: code for both, chosen by a branch, costs less than masks everywhere.
void ColumnEmitter::emitPart(const ColumnPart &part, Value block) {
  int64_t tail = space.getGroups()[space.getInner()].extent % emitter.lanes;
  if (tail == 0 || blocks == 1)
    return emitBlock(part, tail ? tail : emitter.lanes);
  Value isLast = arith::CmpIOp::create(builder, arith::CmpIPredicate::eq, block,
                                       emitter.constant(blocks - 1));
  auto branch = scf::IfOp::create(builder, isLast, true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  emitBlock(part, tail);
  builder.setInsertionPointToStart(branch.elseBlock());
  emitBlock(part, emitter.lanes);
}

/// A parallel index counts, from the fastest on, blocks of columns, the other
/// kept groups, and parts of the sums. Columns are the fastest, so that
/// neighbouring threads and blocks read neighbouring memory. Each part has its
/// own code, behind a branch that all threads of a team take alike.
void ColumnEmitter::emitIndex(Value index) {
  Value count = emitter.constant(blocks);
  Value block = arith::RemUIOp::create(builder, index, count);
  Value rest = arith::DivUIOp::create(builder, index, count);
  Value part;
  if (shape.parts.size() > 1) {
    Value size = emitter.constant(kept);
    part = arith::DivUIOp::create(builder, rest, size);
    rest = arith::RemUIOp::create(builder, rest, size);
  }
  emitter.setIndices(shape.kept, rest);
  if (workers.neighbours > 1)
    placeNeighbours(block);
  else
    emitter.groupIndex[space.getInner()] = emitter.mul(block, emitter.lanes);
  if (!part)
    return emitPart(shape.parts.front(), block);
  for (auto [number, one] : llvm::enumerate(shape.parts)) {
    Value own = arith::CmpIOp::create(builder, arith::CmpIPredicate::eq, part,
                                      emitter.constant(number));
    auto branch = scf::IfOp::create(builder, own, false);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(branch.thenBlock());
    emitPart(one, block);
  }
}

void ColumnEmitter::run() {
  plan();
  info.extent = blocks * kept * static_cast<int64_t>(shape.parts.size());
  info.grain = std::max<int64_t>(1, kGrainElements / (rows * emitter.lanes));
  SmallVector<Value> none;
  workers.forIndices(info.extent, {}, none,
                     [&](Value index) { emitIndex(index); });
  emitter.setAnchor(KernelScope, nullptr);
  for (const ColumnPart &part : shape.parts)
    emitter.storeResults(resultsAt(part, KernelScope), KernelScope);
}

void codegen::emitColumns(Emitter &emitter, Workers &workers,
                          const ColumnShape &shape, KernelInfo &info) {
  ColumnEmitter(emitter, workers, shape, info).run();
}
