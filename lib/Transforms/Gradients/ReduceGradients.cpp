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
#include "StepEnd.h"
#include "plait/Configuration/CompressionFacts.h"
#include "plait/Transforms/Names.h"

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
/// pipeline changes it. On a mesh the chunks are rows of packs; the step of one
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
  auto load = [&] {
    return readSlot(unit, Slot::Gradient, use.gradients.at(rank));
  };
  for (StringAttr axis : use.getReducedAxes(mesh, rank))
    if (axis != kDataAxis)
      writeSlot(sumOver(axis, load()), unit, Slot::Gradient);
  if (holders.size() > 1)
    writeSlot(sumOverRanks(load(), holders), unit, Slot::Gradient);
  CompressedSum sum(nn, mesh, compression, bool(unit.pack),
                    unit.findPlaces(mesh, compression.block));
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
  auto takeUpdated = [&](Value all) {
    return unit.isDivided() ? takeRows(all, unit) : all;
  };
  write(sum.apply(wanted, {read, write, takeUpdated}),
        unit.isDivided() ? Slot::Reduced : Slot::Gradient);
}

/// The location is the unit's, for remarks and profiles of its collectives. A
/// number is too little to be compressed.
void StepEnd::reduce(StepUnit &unit) {
  SmallVector<int64_t> holders(llvm::make_first_range(unit.get().gradients));
  nn.loc = unit.getLoc();
  if (configuration.compress.isOn() && unit.get().getType().getRank() > 0) {
    reduceCompressed(unit, holders);
  } else {
    unit.pack ? reducePack(unit, holders) : reduceParameter(unit, holders);
    if (sendsMomentum(configuration.compress))
      writeSlot(makeMomentum(unit, read(unit, Slot::Gradient),
                             unit.get().getState(), /*replicas=*/1),
                unit, Slot::Gradient);
  }
  nn.loc = module.getLoc();
}
