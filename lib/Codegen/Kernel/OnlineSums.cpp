//===- OnlineSums.cpp - Softmax of long rows in one sweep -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which sums of a kernel are found with the maximum that they need, and the
// arithmetic for it. Where the loops stand, EmitRows.cpp says.
//
//===----------------------------------------------------------------------===//

#include "OnlineSums.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

bool RowStages::isFoundOtherwise(const Reduction *reduction) const {
  return llvm::any_of(online, [&](const OnlineSum &one) {
    return one.sum == reduction || llvm::is_contained(one.picks, reduction);
  });
}

/// Whether two values are the same, or made by copies of the same ops, as free
/// ops have for each of their users.
static bool areSame(Value a, Value b) {
  Operation *first = a.getDefiningOp(), *second = b.getDefiningOp();
  return a == b ||
         (first && second && first->getName() == second->getName() &&
          first->getAttrDictionary() == second->getAttrDictionary() &&
          first->getNumOperands() == second->getNumOperands() &&
          llvm::all_of(llvm::zip(first->getOperands(), second->getOperands()),
                       [](auto pair) {
                         return areSame(std::get<0>(pair), std::get<1>(pair));
                       }));
}

/// Returns the maximum of a row that is subtracted of its elements before `sum`
/// adds up their exponentials, or null.
static nn::ReduceOp findTop(const Reduction &sum) {
  auto exp = sum.op->getOperand(0).getDefiningOp<nn::ExpOp>();
  auto centred = exp ? exp.getOperand().getDefiningOp<nn::SubOp>() : nullptr;
  auto spread =
      centred ? centred.getRhs().getDefiningOp<nn::BroadcastOp>() : nullptr;
  if (!spread || getRole(sum.op) != FusionRole::ReduceSum)
    return {};
  Value top = spread->getOperand(0);
  while (auto shift = top.getDefiningOp<nn::StopGradientOp>())
    top = shift->getOperand(0);
  auto reduce = top.getDefiningOp<nn::ReduceOp>();
  if (!reduce || getRole(reduce) != FusionRole::ReduceMax ||
      !areSame(reduce->getOperand(0), centred.getLhs()))
    return {};
  return reduce;
}

/// Finds the sums that need no sweep of their own.
static SmallVector<OnlineSum> findOnline(const IterationSpace &space,
                                         const RowShape &shape) {
  SmallVector<const Reduction *> ofRow;
  for (const Reduction &one : space.getReductions())
    if (one.reduced == GroupSet(1) << space.getInner() && !shape.isTotal(one))
      ofRow.push_back(&one);
  bool isOneDim = space.getGroups()[space.getInner()].dims.size() == 1;
  SmallVector<OnlineSum> found;
  for (const Reduction *sum : ofRow) {
    nn::ReduceOp top = findTop(*sum);
    const auto *place = llvm::find_if(
        ofRow, [&](const Reduction *one) { return top && one->op == top; });
    if (place == ofRow.end())
      continue;
    OnlineSum &online = found.emplace_back(OnlineSum{*place, sum, {}});
    Value centred = sum->op->getOperand(0).getDefiningOp()->getOperand(0);
    for (const Reduction *other : ofRow) {
      auto pick = other->op->getOperand(0).getDefiningOp<nn::PickOp>();
      bool isTaken = llvm::any_of(found, [&](const OnlineSum &one) {
        return llvm::is_contained(one.picks, other);
      });
      if (pick && isOneDim && !isTaken &&
          getRole(other->op) == FusionRole::ReduceSum &&
          areSame(pick.getInput(), centred))
        online.picks.push_back(other);
    }
  }
  return found;
}

/// Values that depend on a reduction over the row are known one sweep later
/// than what it reduces; an online sum is known when its maximum is.
RowStages codegen::assignRowStages(plan::ClusterOp cluster,
                                   const IterationSpace &space,
                                   const RowShape &shape, bool isLong) {
  RowStages stages;
  stages.of = shape.stage;
  if (!isLong)
    return stages;
  stages.online = findOnline(space, shape);
  llvm::DenseMap<Operation *, const Reduction *> ends;
  for (const Reduction &reduction : space.getReductions())
    if (reduction.reduced && !shape.isTotal(reduction))
      ends[reduction.op] = &reduction;
  for (Operation &op : cluster.getBody().front().without_terminator()) {
    unsigned stage = 0;
    for (Value operand : op.getOperands())
      stage = std::max(stage, stages.of.lookup(operand));
    const Reduction *end = ends.lookup(&op);
    // An online sum reads what follows from the maximum: its stage already.
    stage += end && !stages.isFoundOtherwise(end);
    stages.of[op.getResult(0)] = stage;
  }
  return stages;
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

/// exp(less - more), 1 where both are the same, also where that is infinity.
static Value expOfDifference(ImplicitLocOpBuilder &builder, Value less,
                             Value more) {
  Type type = less.getType();
  TypedAttr nothing = builder.getZeroAttr(type);
  Value zero = arith::ConstantOp::create(builder, nothing);
  Value isSame =
      arith::CmpFOp::create(builder, arith::CmpFPredicate::OEQ, less, more);
  Value difference = arith::SubFOp::create(builder, less, more);
  difference = arith::SelectOp::create(builder, isSame, zero, difference);
  return math::ExpOp::create(builder, difference);
}

/// One exponential an element: of the smaller number relative to the larger. It
/// is what x adds, or the factor of the sum so far, to which x then adds 1.
Value codegen::addOnline(ImplicitLocOpBuilder &builder, Value sum, Value top,
                         Value x) {
  Value grows =
      arith::CmpFOp::create(builder, arith::CmpFPredicate::OGT, x, top);
  Value less = arith::SelectOp::create(builder, grows, top, x);
  Value more = arith::SelectOp::create(builder, grows, x, top);
  Value power = expOfDifference(builder, less, more);
  Value one = arith::ConstantOp::create(
      builder, builder.getFloatAttr(getElementTypeOrSelf(x.getType()), 1));
  if (auto vector = dyn_cast<VectorType>(x.getType()))
    one = vector::BroadcastOp::create(builder, vector, one);
  Value scaled = arith::MulFOp::create(builder, sum, power);
  scaled = arith::AddFOp::create(builder, scaled, one);
  Value added = arith::AddFOp::create(builder, sum, power);
  return arith::SelectOp::create(builder, grows, scaled, added);
}

Value codegen::rescale(ImplicitLocOpBuilder &builder, Value sum, Value from,
                       Value top) {
  Value factor = expOfDifference(builder, from, top);
  return arith::MulFOp::create(builder, sum, factor);
}

/// Ids count from the beginning of the whole row, of which a rank may have a
/// part. The comparison is unsigned and so finds ids before it as well.
Value codegen::placeAtPicked(Emitter &emitter, Operation *op) {
  auto pick = cast<nn::PickOp>(op);
  ImplicitLocOpBuilder &builder = emitter.builder;
  Value id = emitter.emit(op->getOpOperand(1));
  Value place = arith::ExtSIOp::create(builder, builder.getI64Type(), id);
  if (nn::BeginAttr begin = pick.getBeginAttr())
    place = arith::SubIOp::create(builder, place,
                                  emitter.sumTerms(begin.getTerms()));
  int64_t inner = emitter.space.getInner();
  Value count = emitter.constant(emitter.space.getGroups()[inner].extent);
  Value inside =
      arith::CmpIOp::create(builder, arith::CmpIPredicate::ult, place, count);
  emitter.groupIndex[inner] =
      arith::SelectOp::create(builder, inside, place, emitter.constant(0));
  return inside;
}
