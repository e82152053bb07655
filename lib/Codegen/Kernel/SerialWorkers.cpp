//===- SerialWorkers.cpp - Loops of a single thread -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One thread that computes a range of parallel indices by itself, and how a
// loop is dealt out among members of a team where there are several.
//
//===----------------------------------------------------------------------===//

#include "SerialWorkers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// Members take every `members`th piece, so that at any time they are at
/// neighbouring ones. Where all have equally many, the loop counts the same for
/// all of them, and the member's place is added inside: bounds that do not
/// depend on the thread let the compiler unroll the loop and keep threads
/// together.
Workers::Share Workers::deal(Value first, int64_t count, int64_t step) {
  if (!member)
    return {first, Value()};
  Value place = emitter.mul(member, step);
  if (count % (members * step) == 0)
    return {first, place};
  return {emitter.add(first, place), Value()};
}

/// Something carried leaves one parallel index, [0, 1), which stands for all of
/// `count`: multiplying the bounds by `count` makes the loop go over them, in
/// order, in the one call that gets the index.
void SerialWorkers::forIndices(int64_t count, ArrayRef<FusionRole>,
                               SmallVectorImpl<Value> &carried,
                               llvm::function_ref<void(Value)> body) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  int64_t share = carried.empty() ? 1 : count;
  Value first = emitter.mul(begin, share);
  Value last = emitter.mul(end, share);
  Value step = emitter.constant(1);
  auto loop =
      scf::ForOp::create(builder, first, last, step, ValueRange(carried));
  // What no index fixes is emitted before the loop.
  emitter.setAnchor(KernelScope, loop);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  carried.assign(loop.getRegionIterArgs().begin(),
                 loop.getRegionIterArgs().end());
  body(loop.getInductionVar());
  if (!carried.empty())
    scf::YieldOp::create(builder, ValueRange(carried));
  carried.assign(loop.result_begin(), loop.result_end());
}

void SerialWorkers::forMatches(int64_t count,
                               llvm::function_ref<Value(Value)> test,
                               llvm::function_ref<void(Value)> body) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  Value first = emitter.constant(0), last = emitter.constant(count);
  Value step = emitter.constant(1);
  auto loop = scf::ForOp::create(builder, first, last, step);
  emitter.setAnchor(IndexScope, loop);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Value number = loop.getInductionVar();
  auto branch = scf::IfOp::create(builder, test(number), false);
  builder.setInsertionPointToStart(branch.thenBlock());
  body(number);
}
