//===- Emitter.cpp - Scopes, vectors and indices of kernels ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The emitter's groundwork: which scope a value belongs to, constants and
// vectors, and indices. Elements are in EmitElements.cpp, what they are in
// memory is in EmitMemory.cpp.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

#include "plait/Analysis/KernelShape.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <limits>

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// One lane is a scalar: vectors of one element would only be unpacked again.
static Type laneType(Type element, int64_t lanes) {
  return lanes == 1 ? element : VectorType::get({lanes}, element);
}

Emitter::Emitter(plan::ClusterOp cluster, const IterationSpace &space,
                 OpBuilder &builder, KernelFunction function, KernelInfo &info,
                 int64_t lanes)
    : lanes(lanes), cluster(cluster), space(space),
      builder(cluster.getLoc(), builder), function(std::move(function)),
      info(info) {
  // Every group is fixed by the parallel index, until the emitter of a kind of
  // loop says otherwise.
  groupScope.resize(space.getGroups().size(), IndexScope);
  groupIndex.resize(space.getGroups().size());
}

//===----------------------------------------------------------------------===//
// Scopes
//===----------------------------------------------------------------------===//

/// The innermost of the loops that fix these groups.
ScopeIndex Emitter::getScope(GroupSet groups) const {
  ScopeIndex scope = KernelScope;
  for (auto [index, own] : llvm::enumerate(groupScope))
    if (groups >> index & 1)
      scope = std::max(scope, own);
  return scope;
}

ScopeIndex Emitter::getScope(OpOperand &use) const {
  if (isa<BlockArgument>(use.get()))
    return getScope(space.getGroups(space.getDims(use)));
  return getScope(use.get());
}

/// A value is computed in the outermost loop in which all of it is known: the
/// innermost of its own dimensions and of its operands. A reduction leaves the
/// loop that it goes over.
void Emitter::assignScopes(
    llvm::function_ref<ScopeIndex(const Reduction &)> reduced) {
  // The space lists reductions in the order of the body, so that one pass over
  // both is enough.
  const Reduction *next = space.getReductions().begin();
  for (Operation &op : cluster.getBody().front().without_terminator()) {
    Value value = op.getResult(0);
    bool reduces = next != space.getReductions().end() && next->op == &op;
    const Reduction *reduction = reduces ? next++ : nullptr;
    if (reduction && reduction->reduced) {
      valueScope[value] = reduced(*reduction);
      continue;
    }
    ScopeIndex scope = getScope(space.getGroups(space.getDims(value)));
    for (OpOperand &operand : op.getOpOperands())
      scope = std::max(scope, getScope(operand));
    valueScope[value] = scope;
  }
}

/// Ops of an outer scope are emitted before the loop inside of it, wherever the
/// loop's body has got to.
void Emitter::moveTo(ScopeIndex scope) {
  if (scopes[scope].anchor)
    builder.setInsertionPoint(scopes[scope].anchor);
}

//===----------------------------------------------------------------------===//
// Numbers and vectors
//===----------------------------------------------------------------------===//

bool Emitter::hasInner(ArrayRef<int64_t> dims) const {
  return llvm::any_of(dims, [&](int64_t dim) {
    return dim != kNoDim && space.getGroup(dim) == space.getInner();
  });
}

OpOperand &Emitter::getYielded(unsigned result) {
  return cluster.getBody().front().getTerminator()->getOpOperand(result);
}

/// Without the attribute every result is overwritten.
plan::Accumulate Emitter::getMode(unsigned result) {
  if (findScatterAddend(cluster))
    return plan::Accumulate::Add;
  auto modes = cluster.getAccumulate();
  return modes ? static_cast<plan::Accumulate>((*modes)[result])
               : plan::Accumulate::Overwrite;
}

Value Emitter::constant(int64_t value) {
  return arith::ConstantOp::create(builder, builder.getI64IntegerAttr(value));
}

Value Emitter::add(Value a, Value b) {
  return arith::AddIOp::create(builder, a, b);
}

Value Emitter::mul(Value a, int64_t b) {
  return b == 1 ? a : arith::MulIOp::create(builder, a, constant(b));
}

Value Emitter::splat(Value element, int64_t lanes) {
  if (lanes == 1 || isa<VectorType>(element.getType()))
    return element;
  return vector::BroadcastOp::create(
      builder, laneType(element.getType(), lanes), element);
}

/// Minus infinity is what a maximum over no elements is.
Value Emitter::neutral(FusionRole role, int64_t lanes) {
  float value = role == FusionRole::ReduceSum
                    ? 0.0f
                    : -std::numeric_limits<float>::infinity();
  Value scalar =
      arith::ConstantOp::create(builder, builder.getF32FloatAttr(value));
  return splat(scalar, lanes);
}

/// This maximum propagates NaN: that of a row must not hide one.
Value Emitter::combine(FusionRole role, Value a, Value b) {
  if (role == FusionRole::ReduceSum)
    return arith::AddFOp::create(builder, a, b);
  return arith::MaximumFOp::create(builder, a, b);
}

Value Emitter::combineLanes(FusionRole role, Value vector) {
  auto type = dyn_cast<VectorType>(vector.getType());
  if (!type)
    return vector;
  // The upper half onto the lower one: vectors have a power of two of lanes.
  int64_t count = type.getNumElements();
  while ((count /= 2)) {
    auto half = [&](int64_t first) -> Value {
      return vector::ExtractStridedSliceOp::create(
          builder, vector, ArrayRef<int64_t>(first), ArrayRef<int64_t>(count),
          ArrayRef<int64_t>(1));
    };
    Value low = half(0), high = half(count);
    vector = combine(role, low, high);
  }
  return vector::ExtractOp::create(builder, vector, 0);
}

Value Emitter::constantMask(int64_t count) {
  SmallVector<bool> bits(lanes, false);
  std::fill_n(bits.begin(), count, true);
  return arith::ConstantOp::create(
      builder,
      DenseElementsAttr::get(VectorType::get({lanes}, builder.getI1Type()),
                             ArrayRef<bool>(bits)));
}

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

/// The outermost index is what is left: it needs no remainder, since `running`
/// is below the number of all indices.
void Emitter::setIndices(ArrayRef<int64_t> set, Value running) {
  for (int64_t group : llvm::reverse(set)) {
    Value extent = constant(space.getGroups()[group].extent);
    bool outermost = group == set.front();
    groupIndex[group] =
        outermost ? running : arith::RemUIOp::create(builder, running, extent);
    if (!outermost)
      running = arith::DivUIOp::create(builder, running, extent);
  }
}

/// 1. The group's running index, in i32: tensors' dimensions fit, and vectors
///    of i32 are as wide as those of f32.
/// 2. Plus the number of the lane, if this is the inner group.
/// 3. Divided by the dimensions inside of `dim`, modulo its extent: a group is
///    several dimensions that are one in memory.
Value Emitter::indexOf(int64_t dim, int64_t lanes) {
  if (dim == kNoDim) {
    Value zero =
        arith::ConstantOp::create(builder, builder.getI32IntegerAttr(0));
    return splat(zero, lanes);
  }
  // 1.
  int64_t index = space.getGroup(dim);
  const Group &group = space.getGroups()[index];
  Value place =
      arith::TruncIOp::create(builder, builder.getI32Type(), groupIndex[index]);
  place = splat(place, lanes);
  // 2.
  if (index == space.getInner() && lanes > 1) {
    SmallVector<int32_t> numbers(lanes);
    for (int64_t lane = 0; lane < lanes; ++lane)
      numbers[lane] = lane;
    auto type = VectorType::get({lanes}, builder.getI32Type());
    Value offsets = arith::ConstantOp::create(
        builder, DenseElementsAttr::get(type, ArrayRef<int32_t>(numbers)));
    place = add(place, offsets);
  }
  // 3.
  int64_t stride = 1;
  for (int64_t other : llvm::reverse(group.dims)) {
    if (other == dim)
      break;
    stride *= space.getExtent(other);
  }
  auto number = [&](int64_t value) {
    Value scalar = arith::ConstantOp::create(
        builder, builder.getI32IntegerAttr(static_cast<int32_t>(value)));
    return splat(scalar, lanes);
  };
  if (stride != 1)
    place = arith::DivUIOp::create(builder, place, number(stride));
  if (dim != group.dims.front())
    place =
        arith::RemUIOp::create(builder, place, number(space.getExtent(dim)));
  return place;
}

/// Each distinct scalar is passed once and read once, at the beginning of the
/// kernel.
Value Emitter::rankScalar(RankScalar scalar) {
  auto *found = llvm::find(info.scalars, scalar);
  unsigned index = found - info.scalars.begin();
  if (found == info.scalars.end())
    info.scalars.push_back(scalar);
  auto known = scalarValues.find(index);
  if (known != scalarValues.end())
    return known->second;
  OpBuilder::InsertionGuard guard(builder);
  // Its first user may stand in a branch that the others do not pass.
  builder.setInsertionPointToStart(function.pointers.front().getParentBlock());
  return scalarValues[index] = function.getScalar(builder, index);
}

/// Emits at the beginning of the kernel: the same for all elements.
Value Emitter::sumTerms(ArrayRef<RankTerm> terms) {
  OpBuilder::InsertionGuard guard(builder);
  moveTo(KernelScope);
  Value sum;
  for (const RankTerm &term : terms) {
    Value scalar = rankScalar({term.axis, term.scale});
    sum = sum ? add(sum, scalar) : scalar;
  }
  return sum ? sum : constant(0);
}

/// Goes by the number of the op, so that clusters of one structure share a
/// kernel though their ops are given different values (KernelLibrary::add()).
Value Emitter::callValue(Operation *op) {
  auto ops = cluster.getBody().front().without_terminator();
  int64_t number = std::distance(ops.begin(), op->getIterator());
  return rankScalar({StringAttr(), 0, getCallValue(op), false, number});
}

Value Emitter::isFirstMicrobatch() {
  Value flag = rankScalar({StringAttr(), 0, 0, true});
  return arith::CmpIOp::create(builder, arith::CmpIPredicate::ne, flag,
                               constant(0));
}
