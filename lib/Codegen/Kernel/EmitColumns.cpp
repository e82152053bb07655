//===- EmitColumns.cpp - Kernels over blocks of columns -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   for block of columns in [begin, end):
//     for row: partial sums of the block's columns in registers, stores
//     stores of one number per column
//
// The rows are added in order, whatever the split of the columns.
//
//===----------------------------------------------------------------------===//

#include "KernelShape.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

namespace {

class ColumnEmitter {
public:
  ColumnEmitter(Emitter &emitter, const ColumnShape &shape, KernelInfo &info)
      : emitter(emitter), builder(emitter.builder), space(emitter.space),
        shape(shape), info(info) {}

  void run();

private:
  void plan();
  void emitIndex(Value index);
  void emitBlock(int64_t count);
  void emitSums();

  Emitter &emitter;
  ImplicitLocOpBuilder &builder;
  const IterationSpace &space;
  const ColumnShape &shape;
  KernelInfo &info;

  int64_t rows = 1, blocks = 1;
  SmallVector<const Reduction *> reductions;
  SmallVector<unsigned> loopStores, indexStores, kernelStores;
};

} // namespace

void ColumnEmitter::plan() {
  for (int64_t group : shape.reduced) {
    emitter.groupScope[group] = LoopScope;
    rows *= space.getGroups()[group].extent;
  }
  emitter.assignScopes([](const Reduction &) { return IndexScope; });
  for (const Reduction &reduction : space.getReductions())
    if (reduction.reduced)
      reductions.push_back(&reduction);
  for (unsigned result = 0; result < emitter.cluster.getNumResults();
       ++result) {
    ScopeIndex scope = emitter.getScope(emitter.getYielded(result));
    (scope == LoopScope    ? loopStores
     : scope == IndexScope ? indexStores
                           : kernelStores)
        .push_back(result);
  }
}

/// The loop over rows, and what is known after it.
void ColumnEmitter::emitSums() {
  SmallVector<Value> sums;
  for (const Reduction *reduction : reductions) {
    bool wide = emitter.hasInner(space.getDims(reduction->op->getOpOperand(0)));
    sums.push_back(
        emitter.neutral(getRole(reduction->op), wide ? emitter.lanes : 1));
  }
  Value first = emitter.constant(0), last = emitter.constant(rows);
  Value step = emitter.constant(1);
  auto loop = scf::ForOp::create(builder, first, last, step, sums);
  emitter.setAnchor(IndexScope, loop);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    emitter.enter(LoopScope);
    emitter.setIndices(shape.reduced, loop.getInductionVar());
    SmallVector<Value> next;
    for (auto [reduction, sum] :
         llvm::zip(reductions, loop.getRegionIterArgs())) {
      bool wide = isa<VectorType>(sum.getType());
      Value summand = emitter.splat(emitter.emitSummand(*reduction),
                                    wide ? emitter.lanes : 1);
      next.push_back(emitter.combine(getRole(reduction->op), sum, summand));
    }
    emitter.storeResults(loopStores, LoopScope);
    scf::YieldOp::create(builder, next);
  }
  emitter.setAnchor(IndexScope, nullptr);
  for (auto [reduction, sum] : llvm::zip(reductions, loop.getResults()))
    emitter.setValue(reduction->op->getResult(0), IndexScope, sum);
  emitter.storeResults(indexStores, IndexScope);
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// A block of which `count` columns exist.
void ColumnEmitter::emitBlock(int64_t count) {
  emitter.enter(IndexScope);
  if (count < emitter.lanes)
    emitter.mask = emitter.constantMask(count);
  emitSums();
  emitter.mask = Value();
}

void ColumnEmitter::emitIndex(Value index) {
  Value count = emitter.constant(blocks);
  Value block = arith::RemUIOp::create(builder, index, count);
  Value kept = arith::DivUIOp::create(builder, index, count);
  emitter.setIndices(shape.kept, kept);
  emitter.groupIndex[space.getInner()] = emitter.mul(block, emitter.lanes);
  int64_t tail = space.getGroups()[space.getInner()].extent % emitter.lanes;
  if (tail == 0 || blocks == 1)
    return emitBlock(tail ? tail : emitter.lanes);
  Value isLast = arith::CmpIOp::create(builder, arith::CmpIPredicate::eq, block,
                                       emitter.constant(blocks - 1));
  auto branch = scf::IfOp::create(builder, isLast, true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  emitBlock(tail);
  builder.setInsertionPointToStart(branch.elseBlock());
  emitBlock(emitter.lanes);
}

void ColumnEmitter::run() {
  plan();
  const Group &inner = space.getGroups()[space.getInner()];
  blocks = llvm::divideCeil(inner.extent, emitter.lanes);
  info.extent = blocks;
  for (int64_t group : shape.kept)
    info.extent *= space.getGroups()[group].extent;
  info.grain = std::max<int64_t>(1, kGrainElements / (rows * emitter.lanes));
  Value step = emitter.constant(1);
  auto loop = scf::ForOp::create(builder, emitter.function.begin,
                                 emitter.function.end, step);
  emitter.setAnchor(KernelScope, loop);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    emitIndex(loop.getInductionVar());
  }
  emitter.setAnchor(KernelScope, nullptr);
  emitter.storeResults(kernelStores, KernelScope);
}

void codegen::emitColumns(Emitter &emitter, const ColumnShape &shape,
                          KernelInfo &info) {
  ColumnEmitter(emitter, shape, info).run();
}
