//===- EmitScatter.cpp - Kernels that add to rows of a table --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   for block of the table's rows:
//     zeros, unless the kernel accumulates
//     for position: if its id names a row of the block, add to it
//
// Every block looks at all ids, which is little beside a row of numbers; no two
// blocks write one row, and each row is added to in the order of positions.
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

/// The loops of one kernel that adds rows of gradients to rows of a table.
/// `height` rows of the table are a block, `width` numbers a row.
class ScatterEmitter {
public:
  ScatterEmitter(Emitter &emitter, Workers &workers, Operation *scatter,
                 KernelInfo &info)
      : emitter(emitter), workers(workers), builder(emitter.builder),
        scatter(scatter), info(info) {
    auto type = cast<RankedTensorType>(scatter->getResult(0).getType());
    element = type.getElementType();
    rows = type.getDimSize(0), width = type.getDimSize(1);
    height = llvm::divideCeil(rows, workers.tableBlocks);
  }

  void run();

private:
  void emitBlock(Value block);
  Value emitRow(Value position);
  Value emitTest(Value position, Value first, Value last);
  void emitPosition(Value position);
  void zeroRows(Value first, Value last);
  void overColumns(llvm::function_ref<void(Value)> body);

  Emitter &emitter;
  Workers &workers;
  ImplicitLocOpBuilder &builder;
  Operation *scatter;
  KernelInfo &info;
  Type element; // of the table
  int64_t rows, width, height;
  SmallVector<int64_t> positionGroups;
};

} // namespace

/// Calls `body` for the columns of one row, by lanes.
/// The team's members deal out the columns. A rest that is no whole vector is
/// under a mask; only processors have one, where a team is one thread (see
/// chooseAccess()).
void ScatterEmitter::overColumns(llvm::function_ref<void(Value)> body) {
  int64_t tail = width % emitter.lanes;
  if (width > tail) {
    Value first = emitter.constant(0), last = emitter.constant(width - tail);
    Workers::Share share = workers.deal(first, width - tail, emitter.lanes);
    Value step = emitter.constant(workers.members * emitter.lanes);
    auto loop = scf::ForOp::create(builder, share.begin, last, step);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    body(workers.dealtIndex(share, loop.getInductionVar()));
  }
  if (tail == 0)
    return;
  emitter.mask = emitter.constantMask(tail);
  body(emitter.constant(width - tail));
  emitter.mask = Value();
}

/// Rows that no id names have to be zero as well, so this is a pass of its own.
void ScatterEmitter::zeroRows(Value first, Value last) {
  Value zero = emitter.neutral(FusionRole::ReduceSum, emitter.lanes);
  Value step = emitter.constant(1);
  auto loop = scf::ForOp::create(builder, first, last, step);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Value start = emitter.mul(loop.getInductionVar(), width);
  overColumns([&](Value column) {
    emitter.store(emitter.getResultPointer(0), element, zero,
                  emitter.add(start, column));
  });
}

/// The row that a position's id names.
Value ScatterEmitter::emitRow(Value position) {
  emitter.enter(LoopScope);
  emitter.setIndices(positionGroups, position);
  Value inside;
  return emitter.emitRow(scatter, rows, inside);
}

/// Whether that is one of the rows [first, last).
/// Rows are signed here, so that ids outside of the table, whichever way they
/// are outside, are in no block.
Value ScatterEmitter::emitTest(Value position, Value first, Value last) {
  Value row = emitRow(position);
  Value after =
      arith::CmpIOp::create(builder, arith::CmpIPredicate::sge, row, first);
  Value before =
      arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, row, last);
  return arith::AndIOp::create(builder, after, before);
}

/// Computes the row once more: what was computed for the test is another
/// thread's on a GPU.
void ScatterEmitter::emitPosition(Value position) {
  Value row = emitRow(position);
  Value start = emitter.mul(row, width), pointer = emitter.getResultPointer(0);
  overColumns([&](Value column) {
    emitter.enter(LoopScope);
    emitter.groupIndex[emitter.space.getInner()] = column;
    Value gradient =
        emitter.splat(emitter.emit(scatter->getOpOperand(0)), emitter.lanes);
    Value offset = emitter.add(start, column);
    Value old = emitter.loadLanes(pointer, element, offset);
    Value sum = emitter.combine(FusionRole::ReduceSum, old, gradient);
    emitter.store(pointer, element, sum, offset);
  });
}

/// 1. Bring the block's rows to their initial state: zeros, or what is there,
///    depending on how the result accumulates.
/// 2. Go through all positions in order and add those that fall into the block.
void ScatterEmitter::emitBlock(Value block) {
  emitter.enter(IndexScope);
  Value first = emitter.mul(block, height);
  Value end = emitter.add(first, emitter.constant(height));
  Value last = arith::MinSIOp::create(builder, end, emitter.constant(rows));
  // 1.
  plan::Accumulate mode = emitter.getMode(0);
  if (mode == plan::Accumulate::Overwrite)
    zeroRows(first, last);
  if (mode == plan::Accumulate::AddUnlessFirst) {
    auto branch =
        scf::IfOp::create(builder, emitter.isFirstMicrobatch(), false);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(branch.thenBlock());
    zeroRows(first, last);
  }
  // 2.
  int64_t positions = 1;
  for (int64_t group : positionGroups)
    positions *= emitter.space.getGroups()[group].extent;
  // No atomic additions: whoever has the block adds what its rows get in the
  // order of positions, so that the sum has the same bits in every run.
  workers.forMatches(
      positions,
      [&](Value position) { return emitTest(position, first, last); },
      [&](Value position) { emitPosition(position); });
}

/// Positions are all groups but the inner one, which are the table's columns.
void ScatterEmitter::run() {
  for (ScopeIndex &scope : emitter.groupScope)
    scope = LoopScope;
  emitter.assignScopes([](const Reduction &) { return LoopScope; });
  for (int64_t group = 0; group < emitter.space.getInner(); ++group)
    positionGroups.push_back(group);
  info.extent = llvm::divideCeil(rows, height);
  info.grain = std::max<int64_t>(1, kGrainElements / (height * width));
  SmallVector<Value> none;
  workers.forIndices(info.extent, {}, none,
                     [&](Value block) { emitBlock(block); });
}

void codegen::emitScatter(Emitter &emitter, Workers &workers,
                          const ScatterShape &shape, KernelInfo &info) {
  // Processors have few blocks, and ids that are near.
  if (emitter.aligned && isSorted(shape.op))
    return emitSortedScatter(emitter, workers, shape.op, info);
  ScatterEmitter(emitter, workers, shape.op, info).run();
}
