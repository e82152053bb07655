//===- ReduceGradients.cpp - Sums of gradients over ranks -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How the gradient of a parameter or of a pack gets to where it is updated, for
// BuildOptimizer.cpp.
//
//===----------------------------------------------------------------------===//

#include "CompressedSum.h"
#include "LowRankSum.h"
#include "StepEnd.h"
#include "plait/Configuration/CompressionFacts.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/NN/IR/Parameters.h"

using namespace mlir;
using namespace plait;
using dist::ShardingAttr;
using nn::Slot;

/// One parameter: to where it is updated, by whatever collectives its sharding
/// asks for; then over the ranks of the pipeline that hold it too. Rounded once
/// before, if at all. Both casts stand also where nothing is summed, so that
/// one rank, which the proof makes its claim of, says that gradients are
/// rounded: what kernels widen at once they do not round.
void StepEnd::reduceParameter(StepUnit &unit, ArrayRef<int64_t> holders) {
  ParameterUse &use = unit.get();
  ShardingAttr left = use.gradients.at(rank);
  Value gradient = readSlot(unit, Slot::Gradient, left);
  Value reduced = move(nn.cast(gradient, reducedType),
                       use.getType().clone(reducedType), left, use.getState());
  if (holders.size() > 1)
    reduced = sumOverRanks(reduced, holders);
  reduced = nn.widen(reduced);
  // Where nothing was to be reduced, the slot has it already.
  if (reduced != gradient)
    writeSlot(reduced, unit, Slot::Gradient);
}

/// A sum over `axis` of rows of a pack, of which each rank gets a part.
Value StepEnd::scatterRows(StringAttr axis, Value rows) {
  auto type = cast<RankedTensorType>(rows.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[0] /= mesh.getAxisSize(axis);
  return dist::ReduceScatterOp::create(
      builder, nn.loc, type.clone(shape), rows, meshRef, axis,
      dist::ReductionAttr::get(builder.getContext(), dist::Reduction::Sum),
      builder.getI64IntegerAttr(0));
}

/// Sums in f32 are stored one by one, so that all-reduces work in place; what
/// is rounded has no slot of its own, and is stored when it is widened again.
/// Nor has what is scattered over some of the axes.
void StepEnd::reducePack(StepUnit &unit, ArrayRef<int64_t> holders) {
  Slot slot = Slot::Gradient;
  Value held; // that is in no slot yet
  if (!reducedType.isF32())
    held = nn.cast(readSlot(unit, slot, {}), reducedType);
  auto load = [&] { return held ? held : readSlot(unit, slot, {}); };
  auto store = [&](Value sum) {
    held = sum;
    if (sum.getType() != unit.pack.getSlotType(slot))
      return;
    writeSlot(sum, unit, slot);
    held = {};
  };
  // From the scatters on, only the rank's own rows are summed over the axes
  // that are left, which is a part of the bytes.
  auto dividing = unit.pack.getDividingAxes();
  for (StringAttr axis : unit.get().getReducedAxes(mesh, rank)) {
    if (!llvm::is_contained(dividing, axis)) {
      store(sumOver(axis, load()));
      continue;
    }
    Value input = load();
    slot = Slot::Reduced;
    store(scatterRows(axis, input));
  }
  if (holders.size() > 1)
    store(sumOverRanks(load(), holders));
  if (held)
    writeSlot(nn.widen(held), unit, slot);
}

/// Sums are divided by the number of targets later, and momentum has been.
MomentumFactors StepEnd::readMomentumFactors() {
  Value count = total(kTokenCount);
  Value beta = step("Beta1");
  return {complement(nn, beta), nn.mul(beta, count)};
}

/// The momentum of a gradient of which each of so many replicas has a part:
/// each adds as much of the momentum that all of them have. What one rank adds
/// for all replicas is rounded as they do, which makes it the same sum to the
/// proof.
Value StepEnd::makeMomentum(StepUnit &unit, Value gradient,
                            ShardingAttr sharding, int64_t replicas) {
  auto scaled = [&](Value value, Value factor) {
    Value all =
        nn.broadcast(factor, cast<ShapedType>(value.getType()).getShape(), {});
    return nn.mul(value, all);
  };
  Value own = scaled(gradient, momentum.ofGradient);
  Value old = readSlot(unit, Slot::getState("moment1"), sharding);
  Value kept = scaled(old, momentum.ofMomentum);
  if (replicas > 1)
    kept = nn.scale(kept, 1.0 / double(replicas));
  if (replicas > 1 && !unit.pack)
    kept = nn.scale(kept, double(replicas));
  return nn.add(own, kept);
}

/// Replicas compress a sum over all other ranks, so that neither mesh nor
/// pipeline changes it.
void StepEnd::sumOverOthers(StepUnit &unit, ArrayRef<int64_t> holders) {
  ParameterUse &use = unit.get();
  auto load = [&] {
    return readSlot(unit, Slot::Gradient, use.gradients.at(rank));
  };
  for (StringAttr axis : use.getReducedAxes(mesh, rank))
    if (axis != kDataAxis)
      writeSlot(sumOver(axis, load()), unit, Slot::Gradient);
  if (holders.size() > 1)
    writeSlot(sumOverRanks(load(), holders), unit, Slot::Gradient);
}

/// Replicas that add up other rows of a pack have as many of them each, and
/// divide what they keep of these. How packs are made sees to it, unless by
/// hand.
static LogicalResult checkRows(nn::PackOp pack, dist::MeshOp mesh,
                               const Compression &compression) {
  int64_t replicas = mesh.getAxisSize(kDataAxis);
  int64_t rows = cast<ShapedType>(pack.getType()).getDimSize(0);
  bool sums = compression.both && replicas > 1;
  auto axes = pack.getDividingAxes();
  bool fits = sums && compression.feedback
                  ? pack.getSums() && axes.size() == 1 && axes[0] == kDataAxis
                  : !pack.getSums();
  fits &= !compression.both || !pack.isDivided();
  if (fits && (!sums || rows % replicas == 0))
    return success();
  return pack.emitOpError("has ")
         << rows << " rows in other parts than those that `compress` "
         << print(compression) << " adds up over " << kDataAxis << " of "
         << replicas;
}

/// Compresses chunks. On a mesh they are rows of packs; the step of one
/// rank that others are held against has no packs.
void StepEnd::reduceCompressed(StepUnit &unit, ArrayRef<int64_t> holders) {
  ParameterUse &use = unit.get();
  const Compression &compression = configuration.compress;
  if (!unit.pack && !compression.replicas) {
    canMove = false;
    use.parameter.emitOpError("is split in one way and its gradient in another,"
                              " which cannot be compressed");
    return;
  }
  if (unit.pack && failed(checkRows(unit.pack, mesh, compression))) {
    canMove = false;
    return;
  }
  bool isAdded = unit.addsToError(mesh, rank, configuration);
  if (!isAdded)
    sumOverOthers(unit, holders);
  auto load = [&] {
    return readSlot(unit, Slot::Gradient, use.gradients.at(rank));
  };
  auto places = unit.findPlaces(mesh, compression.block);
  SmallVector<StringAttr> dividing;
  if (unit.isDivided())
    llvm::append_range(dividing, unit.pack.getDividingAxes());
  CompressedSum sum(nn, mesh, compression, bool(unit.pack), places, dividing);
  int64_t replicas =
      unit.pack ? mesh.getAxisSize(Axis::DP) : compression.replicas;
  auto wanted = [&] {
    Value gradient = load();
    return sendsMomentum(compression)
               ? makeMomentum(unit, gradient, use.getState(), replicas)
               : gradient;
  };
  auto read = [&](Slot slot) { return readSlot(unit, slot, use.getState()); };
  auto write = [&](Value value, Slot slot) { writeSlot(value, unit, slot); };
  write(sum.apply(wanted, {read, write, isAdded}),
        unit.isDivided() ? Slot::Reduced : Slot::Gradient);
}

/// The factor that a step leaves to the next one is like a parameter of which
/// no model knows. It begins with random numbers, and ranks of the pipeline
/// that share a parameter share it, too.
nn::ParameterOp StepEnd::getFactor(ParameterUse &use, RankedTensorType type) {
  std::string name = (use.parameter.getSymName() + ".factor").str();
  if (auto known = module.lookupSymbol<nn::ParameterOp>(name))
    return known;
  OpBuilder at(use.parameter->getContext());
  at.setInsertionPointAfter(use.parameter);
  auto init = nn::InitAttr::get(at.getContext(), at.getF64FloatAttr(0),
                                at.getF64FloatAttr(1));
  auto factor = nn::ParameterOp::create(
      at, use.parameter.getLoc(), at.getStringAttr(name), TypeAttr::get(type),
      init, UnitAttr(), FloatAttr(), StringAttr(), FloatAttr(), nn::FileAttr(),
      ShardingAttr::getReplicated(meshRef, type.getRank()), Attribute(),
      DenseI64ArrayAttr());
  factor->setAttr(nn::kUnsavedAttr, at.getUnitAttr());
  return factor;
}

/// Sends a matrix as factors. Where ranks have parts of one, all of them make
/// the factors of the whole one, and keep their part of what was not sent.
void StepEnd::reduceMatrix(ParameterUse &use, ArrayRef<int64_t> holders) {
  StepUnit unit{{}, {&use}};
  const Compression &compression = configuration.compress;
  sumOverOthers(unit, holders);
  ShardingAttr split = use.getState();
  auto whole = ShardingAttr::getReplicated(meshRef, use.getType().getRank());
  auto error = Slot::getState(kErrorState);
  Value block = readSlot(unit, Slot::Gradient, use.gradients.at(rank));
  if (compression.feedback)
    block = nn.add(block, readSlot(unit, error, split));
  LowRankSum factors(nn, use.getType().getShape(), compression.keep);
  RankedTensorType type = factors.getKeptType();
  nn::ParameterOp factor = getFactor(use, type);
  Value kept = nn::ReadOp::create(builder, nn.loc, type, factor.getSymName(),
                                  Slot::Value);
  Value matrix = move(block, use.getType(), split, whole);
  LowRankSum::Sums sums = factors.apply(matrix, kept, [&](Value part) {
    bool isAlone = mesh.getAxisSize(kDataAxis) <= 1;
    return isAlone ? part : sumOver(builder.getStringAttr(kDataAxis), part);
  });
  nn::WriteOp::create(builder, nn.loc, sums.kept, factor.getSymName(),
                      Slot::Value);
  if (compression.feedback)
    writeSlot(nn.sub(block, move(sums.own, use.getType(), whole, split)), unit,
              error);
  writeSlot(move(sums.all, use.getType(), whole, split), unit, Slot::Gradient);
}

/// Matrices come one by one. Of those that ranks divide each then takes its
/// rows.
void StepEnd::reduceMatrices(StepUnit &unit, ArrayRef<int64_t> holders) {
  for (ParameterUse *member : unit.members) {
    nn.loc = member->parameter.getLoc();
    reduceMatrix(*member, holders);
  }
  nn.loc = unit.getLoc();
  if (unit.isDivided())
    writeSlot(takeRows(readSlot(unit, Slot::Gradient, {}), unit), unit,
              Slot::Reduced);
}

/// The location is the unit's, for remarks and profiles of its collectives. A
/// number is too little to be compressed.
void StepEnd::reduce(StepUnit &unit) {
  SmallVector<int64_t> holders(llvm::make_first_range(unit.get().gradients));
  nn.loc = unit.getLoc();
  const Compression &compression = configuration.compress;
  bool isSent = compresses(compression, nn::countDims(unit.get().parameter));
  if (!isSent)
    unit.pack ? reducePack(unit, holders) : reduceParameter(unit, holders);
  else if (sendsFactors(compression))
    reduceMatrices(unit, holders);
  else
    reduceCompressed(unit, holders);
  if (!isSent && sendsMomentum(compression))
    writeSlot(makeMomentum(unit, read(unit, Slot::Gradient),
                           unit.get().getState(), /*replicas=*/1),
              unit, Slot::Gradient);
  nn.loc = module.getLoc();
}
