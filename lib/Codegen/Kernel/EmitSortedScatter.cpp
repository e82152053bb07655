//===- EmitSortedScatter.cpp - Kernels that add rows by sorted ids --------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   for vector of the table:
//     zeros, or what is there if the kernel accumulates
//     for position of its row: add to it
//     store
//
// Which positions a row has is at hand (plait/Support/SortedTokens.h), so that
// nobody looks at the ids of others and each vector is written once: by one
// thread, without atomic additions. A row is added up in f32 in the order of
// its positions, as in EmitScatter.cpp: with a table in f32 the bits are the
// same.
//
//===----------------------------------------------------------------------===//

#include "EmitKernel.h"
#include "Workers.h"

#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Support/SortedTokens.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// Positions whose rows are read at once. A word such as "the" has thousands,
/// which one thread adds up for each vector: without that it would wait for
/// memory once for each of them.
static constexpr int64_t kAtOnce = 8;

namespace {

/// The loops of one kernel: a parallel index is a vector of the table.
class SortedScatterEmitter {
public:
  SortedScatterEmitter(Emitter &emitter, Operation *scatter)
      : emitter(emitter), builder(emitter.builder), scatter(scatter) {
    ids = cast<BlockArgument>(scatter->getOperand(1));
    sorted = {cast<RankedTensorType>(ids.getType()).getNumElements(),
              plan::getSortedEntries(ids)};
    auto type = cast<RankedTensorType>(scatter->getResult(0).getType());
    element = type.getElementType();
    rows = type.getDimSize(0);
    vectors = type.getDimSize(1) / emitter.lanes;
    // Positions are all groups but the inner one, which are the columns.
    for (int64_t group = 0; group < emitter.space.getInner(); ++group)
      positionGroups.push_back(group);
  }

  int64_t getExtent() const { return rows * vectors; }
  void emitVector(Value vector);

private:
  Value loadWord(Value word);
  Value loadStart(Value row, int64_t further);
  Value emitRow(Value position, Value column);
  Value addUp(Value first, Value last, int64_t step, Value column, Value sum);
  void emitSum(Value first, Value last, Value column, Value offset);

  Emitter &emitter;
  ImplicitLocOpBuilder &builder;
  Operation *scatter;
  BlockArgument ids;
  SortedTokens sorted;
  Type element; // of the table
  int64_t rows, vectors;
  SmallVector<int64_t> positionGroups;
};

} // namespace

/// A word behind the ids or among them, as i64.
Value SortedScatterEmitter::loadWord(Value word) {
  Value loaded =
      emitter.loadScalar(emitter.function.pointers[ids.getArgNumber()],
                         builder.getI32Type(), word);
  return arith::ExtSIOp::create(builder, builder.getI64Type(), loaded);
}

/// Loads where the positions of the row that is so much `further` begin. Rows
/// of the rank count from the beginning of its part. Those that are padding
/// have no positions: they begin where the last ones end.
Value SortedScatterEmitter::loadStart(Value row, int64_t further) {
  auto fusable = cast<FusableOpInterface>(scatter);
  Value id = emitter.add(row, emitter.constant(further));
  if (SmallVector<RankTerm> begin = fusable.getRankBegin(); !begin.empty())
    id = emitter.add(id, emitter.sumTerms(begin));
  int64_t limit = fusable.getRowLimit();
  int64_t most = limit ? std::min(limit, sorted.entries) : sorted.entries;
  id = arith::MinSIOp::create(builder, id, emitter.constant(most));
  return loadWord(emitter.add(id, emitter.constant(sorted.getStarts())));
}

/// A vector of what is added at a position.
Value SortedScatterEmitter::emitRow(Value position, Value column) {
  emitter.enter(LoopScope);
  emitter.setIndices(positionGroups, position);
  emitter.groupIndex[emitter.space.getInner()] = column;
  return emitter.splat(emitter.emit(scatter->getOpOperand(0)), emitter.lanes);
}

/// `sum` and the rows of [first, last), `step` of them at once. All are read
/// before the first is added, in their order.
Value SortedScatterEmitter::addUp(Value first, Value last, int64_t step,
                                  Value column, Value sum) {
  auto loop = scf::ForOp::create(builder, first, last, emitter.constant(step),
                                 ValueRange(sum));
  emitter.setAnchor(IndexScope, loop);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Value word = emitter.add(loop.getInductionVar(),
                           emitter.constant(sorted.getPositions()));
  SmallVector<Value> positions, added;
  for (int64_t i = 0; i < step; ++i)
    positions.push_back(loadWord(emitter.add(word, emitter.constant(i))));
  for (Value position : positions)
    added.push_back(emitRow(position, column));
  sum = loop.getRegionIterArg(0);
  for (Value row : added)
    sum = emitter.combine(FusionRole::ReduceSum, sum, row);
  scf::YieldOp::create(builder, sum);
  return loop.getResult(0);
}

/// 1. What there is: zeros, or what the kernel adds to.
/// 2. As many at once as there are, then the rest one by one.
/// 3. One store.
void SortedScatterEmitter::emitSum(Value first, Value last, Value column,
                                   Value offset) {
  Value pointer = emitter.getResultPointer(0);
  // 1.
  Value sum = emitter.neutral(FusionRole::ReduceSum, emitter.lanes);
  plan::Accumulate mode = emitter.getMode(0);
  if (mode != plan::Accumulate::Overwrite) {
    Value old = emitter.loadLanes(pointer, element, offset);
    sum = mode == plan::Accumulate::Add
              ? old
              : arith::SelectOp::create(builder, emitter.isFirstMicrobatch(),
                                        sum, old)
                    .getResult();
  }
  // 2.
  Value count = arith::SubIOp::create(builder, last, first);
  Value whole =
      arith::AndIOp::create(builder, count, emitter.constant(-kAtOnce));
  Value middle = emitter.add(first, whole);
  sum = addUp(first, middle, kAtOnce, column, sum);
  sum = addUp(middle, last, 1, column, sum);
  // 3.
  emitter.store(pointer, element, sum, offset);
}

/// A row without positions stays as it is where the kernel adds to it.
void SortedScatterEmitter::emitVector(Value vector) {
  emitter.enter(IndexScope);
  Value count = emitter.constant(vectors);
  Value row = arith::DivUIOp::create(builder, vector, count);
  Value column = emitter.mul(arith::RemUIOp::create(builder, vector, count),
                             emitter.lanes);
  Value first = loadStart(row, 0), last = loadStart(row, 1);
  Value offset = emitter.mul(vector, emitter.lanes);
  plan::Accumulate mode = emitter.getMode(0);
  if (mode == plan::Accumulate::Overwrite)
    return emitSum(first, last, column, offset);
  Value writes =
      arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, first, last);
  if (mode == plan::Accumulate::AddUnlessFirst)
    writes = arith::OrIOp::create(builder, writes, emitter.isFirstMicrobatch());
  auto branch = scf::IfOp::create(builder, writes, false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  emitSum(first, last, column, offset);
}

/// Vectors of the table are whole: lanes divide a row (chooseAccess).
void codegen::emitSortedScatter(Emitter &emitter, Workers &workers,
                                Operation *op, KernelInfo &info) {
  for (ScopeIndex &scope : emitter.groupScope)
    scope = LoopScope;
  emitter.assignScopes([](const Reduction &) { return LoopScope; });
  SortedScatterEmitter scatter(emitter, op);
  info.extent = scatter.getExtent();
  info.grain = std::max<int64_t>(1, kGrainElements / emitter.lanes);
  SmallVector<Value> none;
  workers.forIndices(info.extent, {}, none,
                     [&](Value vector) { scatter.emitVector(vector); });
}
