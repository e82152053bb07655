//===- TeamWorkers.cpp - The threads of a GPU's block ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Threads of a GPU's block as workers: Teams.h says who is who, here are the
// instructions for it. All control flow around barriers and exchanges must be
// taken alike by the threads that meet there: by a whole block for a barrier,
// by the lanes of its mask for an exchange.
//
//===----------------------------------------------------------------------===//

#include "Teams.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// The address space of a block's shared memory, and where its buffers begin.
static constexpr unsigned kShared = 3, kSharedAlignment = 16;

/// Indices below this are computed in 32 bits, which divide several times as
/// fast; threads beyond the end must not wrap around.
static constexpr int64_t kMostShort = (int64_t(1) << 31) - 2048;

TeamWorkers::TeamWorkers(Emitter &emitter, func::FuncOp kernel,
                         const Teams &teams, KernelInfo &info)
    : Workers(emitter), kernel(kernel), teams(teams), info(info) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  // At the beginning of the kernel, so that they are at hand in all scopes.
  thread = callI32("llvm.nvvm.read.ptx.sreg.tid.x", {});
  block = callI32("llvm.nvvm.read.ptx.sreg.ctaid.x", {});
  first = emitter.add(emitter.mul(widen(block), teams.threads), widen(thread));
  // Arithmetic is cheaper than memory here (docs/GPU.md), and more blocks of
  // the table than on a processor occupy a GPU.
  keepsCostly = false;
  leastOnline = 4096;
  tableBlocks = 8192;
  members = teams.members;
  neighbours = teams.neighbours;
  if (neighbours > 1)
    neighbour = widen(
        arith::RemUIOp::create(builder, thread, number(teams.neighbours)));
  if (members == 1)
    return;
  Value own = thread;
  if (neighbours > 1)
    own = arith::DivUIOp::create(builder, thread, number(neighbours));
  else if (members < teams.threads)
    own = arith::RemUIOp::create(builder, thread, number(members));
  member = widen(own);
  // One member writes what a team has as one number.
  emitter.indexGuard =
      arith::CmpIOp::create(builder, arith::CmpIPredicate::eq, own, number(0));
}

//===----------------------------------------------------------------------===//
// Helpers
//===----------------------------------------------------------------------===//

/// A call of an intrinsic that gives an i32.
Value TeamWorkers::callI32(StringRef intrinsic, ValueRange operands) {
  return LLVM::CallIntrinsicOp::create(
             emitter.builder, emitter.builder.getI32Type(),
             emitter.builder.getStringAttr(intrinsic), operands)
      .getResult(0);
}

/// Threads, lanes and shared memory are counted in i32.
Value TeamWorkers::number(int64_t value) {
  return arith::ConstantOp::create(
      emitter.builder,
      emitter.builder.getI32IntegerAttr(static_cast<int32_t>(value)));
}

/// Unsigned: numbers of threads and blocks are never negative.
Value TeamWorkers::widen(Value value) {
  return arith::ExtUIOp::create(emitter.builder, emitter.builder.getI64Type(),
                                value);
}

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

/// The parallel index of this thread's team, of `count`.
Value TeamWorkers::emitIndex(int64_t count) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  int64_t perBlock = teams.perBlock();
  if (perBlock == 1)
    return widen(block);
  if (count >= kMostShort)
    return members == 1 ? first
                        : arith::DivUIOp::create(builder, first,
                                                 emitter.constant(members))
                              .getResult();
  Value start = arith::MulIOp::create(builder, block, number(perBlock));
  Value team = thread;
  if (members > 1)
    team = arith::DivUIOp::create(builder, thread, number(members));
  return widen(arith::AddIOp::create(builder, start, team));
}

/// The grid has at least as many teams as indices: a branch, no loop.
void TeamWorkers::forIndices(int64_t count, ArrayRef<FusionRole> roles,
                             SmallVectorImpl<Value> &carried,
                             llvm::function_ref<void(Value)> body) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  if (!carried.empty())
    return loopOver(count, roles, carried, body);
  Value index = emitIndex(count);
  Value exists = arith::ConstantOp::create(builder, builder.getBoolAttr(true));
  // Only then does the last block have teams without an index.
  if (count % teams.perBlock())
    exists = arith::CmpIOp::create(builder, arith::CmpIPredicate::ult, index,
                                   emitter.constant(count));
  // Barriers stand in here only where a team is the whole block, which goes
  // one way; smaller teams exchange within a warp, under a mask.
  auto branch = scf::IfOp::create(builder, exists, false);
  emitter.setAnchor(KernelScope, branch);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  body(index);
}

/// The teams of one block share the indices; what they carried away is combined
/// by the whole block, each team counting once.
/// 1. Each team takes every perBlock()th index, so that neighbouring teams are
///    at neighbouring indices.
/// 2. All members of a team have the same totals: all but the first put the
///    neutral element in their place.
/// 3. One combination over all threads.
void TeamWorkers::loopOver(int64_t count, ArrayRef<FusionRole> roles,
                           SmallVectorImpl<Value> &carried,
                           llvm::function_ref<void(Value)> body) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  int64_t perBlock = teams.perBlock();
  // 1.
  Value team = emitter.constant(0);
  if (perBlock > 1)
    team = widen(arith::DivUIOp::create(builder, thread, number(members)));
  Value last = emitter.constant(count), step = emitter.constant(perBlock);
  auto loop =
      scf::ForOp::create(builder, team, last, step, ValueRange(carried));
  emitter.setAnchor(KernelScope, loop);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    carried.assign(loop.getRegionIterArgs().begin(),
                   loop.getRegionIterArgs().end());
    body(loop.getInductionVar());
    scf::YieldOp::create(builder, ValueRange(carried));
  }
  carried.assign(loop.result_begin(), loop.result_end());
  // 2.
  if (emitter.indexGuard)
    for (auto [role, value] : llvm::zip(roles, carried)) {
      Value nothing = emitter.neutral(role, 1);
      value =
          arith::SelectOp::create(builder, emitter.indexGuard, value, nothing);
    }
  // 3.
  combineOver(teams.threads, 1, roles, carried);
}

//===----------------------------------------------------------------------===//
// Combining
//===----------------------------------------------------------------------===//

/// Members are, in kernels over columns, `neighbours` threads apart.
void TeamWorkers::combine(ArrayRef<FusionRole> roles,
                          MutableArrayRef<Value> partials) {
  if (members > 1)
    combineOver(members * neighbours, neighbours, roles, partials);
}

/// The lanes of a warp that take part in exchanges among `reach` neighbours:
/// other groups of the warp may be elsewhere in the code.
/// `reach` is a power of two, so that the group begins at a multiple of it.
Value TeamWorkers::exchangeMask(int64_t reach) {
  if (reach >= kWarp)
    return number(-1);
  ImplicitLocOpBuilder &builder = emitter.builder;
  Value start = arith::AndIOp::create(builder, thread,
                                      number((kWarp - 1) & ~(reach - 1)));
  return arith::ShLIOp::create(builder, number((int64_t(1) << reach) - 1),
                               start);
}

/// The value of the lane whose number differs in the bit `distance`.
/// Lanes of a vector one by one: the instruction moves 32 bits.
Value TeamWorkers::exchange(Value value, int64_t distance, Value mask) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  auto swap = [&](Value scalar) -> Value {
    Value step = number(distance), bound = number(kWarp - 1);
    return LLVM::CallIntrinsicOp::create(
               builder, builder.getF32Type(),
               builder.getStringAttr("llvm.nvvm.shfl.sync.bfly.f32"),
               ValueRange{mask, scalar, step, bound})
        .getResult(0);
  };
  auto type = dyn_cast<VectorType>(value.getType());
  if (!type)
    return swap(value);
  SmallVector<Value> lanes;
  for (int64_t lane = 0; lane < type.getNumElements(); ++lane)
    lanes.push_back(swap(vector::ExtractOp::create(builder, value, lane)));
  return vector::FromElementsOp::create(builder, type, lanes);
}

/// Combines the values of every `stride`th of `reach` neighbouring threads.
/// Takes log2(reach / stride) exchanges within a warp. Where a group is longer,
/// every lane has its warp's value then, and warps combine through shared
/// memory.
void TeamWorkers::combineOver(int64_t reach, int64_t stride,
                              ArrayRef<FusionRole> roles,
                              MutableArrayRef<Value> partials) {
  if (partials.empty())
    return;
  // A butterfly: every thread ends with the sum of all, and with the same
  // bits, since exchanged operands of an addition give them.
  Value mask = exchangeMask(reach);
  for (int64_t distance = stride; distance < std::min(reach, kWarp);
       distance *= 2)
    for (auto [role, value] : llvm::zip(roles, partials))
      value = emitter.combine(role, value, exchange(value, distance, mask));
  if (reach > kWarp)
    combineWarps(stride, roles, partials);
}

/// Shared memory of at least so many numbers. Two buffers take turns, so that
/// one barrier is enough: who writes to a buffer again has passed the barrier
/// of the other one, before which everybody has read this one.
/// A buffer grows to the largest request: the array's type is set again while
/// the kernel is being emitted. `info` counts the bytes of both.
Value TeamWorkers::takeShared(int64_t elements) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  SharedBuffer &buffer = shared[turn];
  std::string name = (kernel.getName() + "_shared_" + Twine(turn)).str();
  turn = 1 - turn;
  if (elements > buffer.elements) {
    info.sharedBytes += (elements - buffer.elements) * 4;
    buffer.elements = elements;
    auto type = LLVM::LLVMArrayType::get(builder.getF32Type(), elements);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(kernel);
    if (buffer.op)
      buffer.op.setGlobalType(type);
    else
      buffer.op = LLVM::GlobalOp::create(
          builder, type, /*isConstant=*/false, LLVM::Linkage::Internal, name,
          Attribute(), kSharedAlignment, kShared);
  }
  return LLVM::AddressOfOp::create(
      builder, LLVM::LLVMPointerType::get(builder.getContext(), kShared), name);
}

static int64_t lanesOf(Value value) {
  auto type = dyn_cast<VectorType>(value.getType());
  return type ? type.getNumElements() : 1;
}

/// Returns what the address of `lanes` numbers in shared memory is a multiple
/// of.
static unsigned alignmentOf(int64_t lanes) {
  return std::min<unsigned>(4 * lanes, kSharedAlignment);
}

/// The address of number `start` + `place` times `lanes`.
/// In numbers of 32 bits.
Value TeamWorkers::addressOf(Value memory, int64_t start, Value place,
                             int64_t lanes) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  Value offset = arith::MulIOp::create(builder, place, number(lanes));
  offset = arith::AddIOp::create(builder, offset, number(start));
  return LLVM::GEPOp::create(builder, memory.getType(), builder.getF32Type(),
                             memory, ArrayRef<LLVM::GEPArg>(offset));
}

/// All lanes of a warp have the warp's values: the first of each column writes
/// them for everybody.
/// The layout: value after value, within each warp after warp, within each
/// column after column.
void TeamWorkers::shareWarp(Value memory, int64_t stride,
                            ArrayRef<Value> partials) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  int64_t warps = teams.threads / kWarp;
  Value lane = arith::RemUIOp::create(builder, thread, number(kWarp));
  Value writes = arith::CmpIOp::create(builder, arith::CmpIPredicate::ult, lane,
                                       number(stride));
  auto branch = scf::IfOp::create(builder, writes, false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  Value warp = arith::DivUIOp::create(builder, thread, number(kWarp));
  Value own = arith::MulIOp::create(builder, warp, number(stride));
  own = arith::AddIOp::create(builder, own, lane);
  int64_t start = 0;
  for (Value value : partials) {
    int64_t lanes = lanesOf(value);
    LLVM::StoreOp::create(builder, value, addressOf(memory, start, own, lanes),
                          alignmentOf(lanes));
    start += warps * stride * lanes;
  }
}

/// Every thread adds up what the warps have for its column, warp 0 first.
/// 1. Each warp writes its values.
/// 2. A barrier, for all threads of the block.
/// 3. Every thread reads its column's values of all warps.
void TeamWorkers::combineWarps(int64_t stride, ArrayRef<FusionRole> roles,
                               MutableArrayRef<Value> partials) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  int64_t warps = teams.threads / kWarp, size = 0, start = 0;
  for (Value value : partials)
    size += warps * stride * lanesOf(value);
  Value memory = takeShared(size);
  // 1.
  shareWarp(memory, stride, partials);
  // 2.
  LLVM::CallIntrinsicOp::create(
      builder, builder.getStringAttr("llvm.nvvm.barrier.cta.sync.aligned.all"),
      ValueRange{number(0)});
  // 3.
  Value column = arith::RemUIOp::create(builder, thread, number(stride));
  for (auto [role, value] : llvm::zip(roles, partials)) {
    int64_t lanes = lanesOf(value);
    // One after the other, not as a tree: all threads do it at once, each for
    // its column, and there are 16 warps at most.
    Value all;
    for (int64_t warp = 0; warp < warps; ++warp) {
      Value address =
          addressOf(memory, start + warp * stride * lanes, column, lanes);
      Value one = LLVM::LoadOp::create(builder, value.getType(), address,
                                       alignmentOf(lanes));
      all = all ? emitter.combine(role, all, one) : one;
    }
    value = all;
    start += warps * stride * lanes;
  }
}

//===----------------------------------------------------------------------===//
// Matches
//===----------------------------------------------------------------------===//

/// 1. Each lane tests one of 32 neighbouring numbers.
/// 2. A ballot makes the result of all lanes known to each.
/// 3. All lanes go through the hits together, from the lowest on: the order of
///    additions is that of the numbers.
void TeamWorkers::forMatches(int64_t count,
                             llvm::function_ref<Value(Value)> test,
                             llvm::function_ref<void(Value)> body) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  Value begin = emitter.constant(0), last = emitter.constant(count);
  Value step = emitter.constant(kWarp);
  auto loop = scf::ForOp::create(builder, begin, last, step);
  emitter.setAnchor(IndexScope, loop);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Value base = loop.getInductionVar();
  Value own = emitter.add(base, member);
  Value exists =
      arith::CmpIOp::create(builder, arith::CmpIPredicate::ult, own, last);
  // 1. A lane without a position tests the first one, so that it reads nothing
  // beyond the end, and finds nothing.
  Value place = arith::SelectOp::create(builder, exists, own, base);
  Value matches = test(place);
  matches = arith::AndIOp::create(builder, matches, exists);
  // 2. and 3. All lanes are here: the loop's bounds do not depend on the lane.
  Value mask = number(-1);
  visitMatches(callI32("llvm.nvvm.vote.ballot.sync", {mask, matches}), base,
               body);
}

/// Goes through the bits of `matches`, the same in all lanes, from the lowest.
void TeamWorkers::visitMatches(Value matches, Value base,
                               llvm::function_ref<void(Value)> body) {
  ImplicitLocOpBuilder &builder = emitter.builder;
  Type type = matches.getType();
  auto loop = scf::WhileOp::create(builder, TypeRange(type), matches);
  OpBuilder::InsertionGuard guard(builder);
  Block *before =
      builder.createBlock(&loop.getBefore(), {}, type, builder.getLoc());
  Value bits = before->getArgument(0);
  Value some =
      arith::CmpIOp::create(builder, arith::CmpIPredicate::ne, bits, number(0));
  scf::ConditionOp::create(builder, some, bits);
  Block *after =
      builder.createBlock(&loop.getAfter(), {}, type, builder.getLoc());
  bits = after->getArgument(0);
  Value lowest = LLVM::CountTrailingZerosOp::create(builder, type, bits,
                                                    /*is_zero_poison=*/true);
  body(emitter.add(base, widen(lowest)));
  // The lowest bit is cleared: b & (b - 1).
  Value less = arith::SubIOp::create(builder, bits, number(1));
  Value rest = arith::AndIOp::create(builder, bits, less);
  scf::YieldOp::create(builder, rest);
}
