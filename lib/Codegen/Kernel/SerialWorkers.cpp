//===- SerialWorkers.cpp - Loops of a single thread -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SerialWorkers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

Workers::Share Workers::deal(Value first, int64_t count, int64_t step) {
  if (!member)
    return {first, Value()};
  Value place = emitter.mul(member, step);
  if (count % (members * step) == 0)
    return {first, place};
  return {emitter.add(first, place), Value()};
}

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
