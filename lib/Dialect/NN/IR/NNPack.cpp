//===- NNPack.cpp - Parameters that lie side by side ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pack is a table in which parameters of one rank of the pipeline lie side by
// side, as they are on a rank. Accesses by the pack's symbol touch all members
// at once. Divided, ranks along an axis have some rows each of what only the
// optimizer uses.
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Dialect/NN/IR/Parameters.h"

#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

SmallVector<SlotOpInterface> nn::findAccesses(Operation *root,
                                              SlotAccess access) {
  SmallVector<SlotOpInterface> found;
  root->walk([&](SlotOpInterface op) {
    if (op.getAccess() == access)
      found.push_back(op);
  });
  return found;
}

/// Gradients are added up whole before they are scattered, and copies to
/// compute with are gathered whole; values are divided only where such a copy
/// exists, because the forward pass reads them otherwise, or where that gathers
/// them. What a replica has not sent is of all rows.
bool PackOp::isDivided(Slot slot) {
  if (!getAxes() || slot == Slot::getState(kSumErrorState))
    return getSums();
  if (!isDivided())
    return false;
  if (slot == Slot::Value)
    return getMaster() || getBlocks();
  return (getBlocks() && slot == Slot::Compute) ||
         (slot != Slot::Gradient && slot != Slot::Compute &&
          !isOwnState(slot.getName()));
}

SmallVector<StringAttr, 2> PackOp::getDividingAxes() {
  if (!getAxes())
    return {};
  return dist::getAxes(getAxesAttr());
}

/// All slots are f32 but the copy.
RankedTensorType PackOp::getSlotType(Slot slot) {
  auto type = cast<RankedTensorType>(getType());
  if (slot == Slot::Compute)
    type = type.clone(BFloat16Type::get(getContext()));
  dist::MeshOp mesh = dist::MeshOp::find(*this);
  int64_t parts = mesh && isDivided(slot) ? mesh.getBlocks(getAxesAttr()) : 1;
  int64_t rows = type.getDimSize(0) / parts;
  return type.clone({rows, type.getDimSize(1)});
}

LogicalResult PackOp::verify() {
  // (C1)
  if (getMembers().empty() || getMembers().size() != getOffsets().size())
    return emitOpError("has ") << getOffsets().size() << " offsets for "
                               << getMembers().size() << " members";
  // (C2)
  for (int64_t offset : getOffsets())
    if (offset < 0 || offset % kAlignment)
      return emitOpError("has a member at element ")
             << offset << ", which is not a multiple of " << kAlignment;
  // (C5)
  if (getAxes() && !getMeshAttr())
    return emitOpError("is divided over axes ")
           << getAxesAttr() << " but names no mesh";
  if (getAxes() && getDividingAxes().empty())
    return emitOpError("is divided over no axis");
  llvm::SmallDenseSet<Attribute> named;
  for (StringAttr axis : getDividingAxes())
    if (!named.insert(axis).second)
      return emitOpError("is divided over axis ") << axis << " twice";
  // (C6)
  if (getMaster() && !getAxes())
    return emitOpError("has master values but is not divided");
  if (getSums() && (getMaster() || !getAxes()))
    return emitOpError("has sums of rows but ")
           << (getMaster() ? "divides master values" : "is not divided");
  // (C7)
  if (getBlocks() && (getMembers().size() != 1 || !isDivided()))
    return emitOpError("has blocks of ")
           << getMembers().size() << " members"
           << (isDivided() ? ", expected one" : " but divides no values");
  return success();
}

/// (C5), except for the members.
static LogicalResult verifyDivision(PackOp pack,
                                    SymbolTableCollection &tables) {
  if (!pack.getAxes())
    return success();
  auto mesh =
      tables.lookupNearestSymbolFrom<dist::MeshOp>(pack, pack.getMeshAttr());
  if (!mesh)
    return pack.emitOpError("is divided on ")
           << pack.getMeshAttr() << ", which is no mesh";
  for (StringAttr axis : pack.getDividingAxes())
    if (!mesh.hasAxis(axis))
      return pack.emitOpError("is divided over axis ")
             << axis << ", which " << pack.getMeshAttr() << " does not have";
  int64_t parts = mesh.getBlocks(pack.getAxesAttr());
  int64_t rows = cast<ShapedType>(pack.getType()).getDimSize(0);
  if (rows % parts)
    return pack.emitOpError("has ")
           << rows << " rows, which " << parts << " ranks cannot divide evenly";
  return success();
}

/// The elements of one rank's block of a parameter.
static int64_t countLocalElements(ParameterOp parameter) {
  auto type = cast<RankedTensorType>(parameter.getType());
  dist::MeshOp mesh = dist::MeshOp::find(parameter);
  dist::ShardingAttr sharding = getSharding(parameter);
  if (mesh && sharding)
    type = mesh.getLocalType(dist::withSharding(type, sharding));
  return type.getNumElements();
}

/// (C3)
/// A parameter may be in packs of several ranks, but once in each. The first
/// pack of a module is asked for all: each by itself would look at all others.
static LogicalResult verifyPackedOnce(PackOp first) {
  for (Operation *before = first->getPrevNode(); before;
       before = before->getPrevNode())
    if (isa<PackOp>(before))
      return success();
  llvm::DenseMap<std::pair<Attribute, int64_t>, PackOp> packs;
  for (auto pack : first->getParentOfType<ModuleOp>().getOps<PackOp>())
    for (Attribute member : pack.getMembers()) {
      int64_t rank = pack.getRank();
      auto [known, isNew] = packs.try_emplace({member, rank}, pack);
      if (!isNew)
        return known->second.emitOpError("has member ")
               << member << ", which is packed twice for rank " << rank;
    }
  return success();
}

LogicalResult PackOp::verifySymbolUses(SymbolTableCollection &tables) {
  if (failed(verifyDivision(*this, tables)) || failed(verifyPackedOnce(*this)))
    return failure();
  for (auto [index, member] :
       llvm::enumerate(getMembers().getAsRange<FlatSymbolRefAttr>())) {
    auto parameter = tables.lookupNearestSymbolFrom<ParameterOp>(*this, member);
    if (!parameter)
      return emitOpError("has member ") << member << ", which is no parameter";
    // (C5)
    dist::ShardingAttr sharding = getSharding(parameter);
    for (StringAttr axis : getDividingAxes())
      if (sharding && sharding.findDim(axis) >= 0 && !getBlocks())
        return emitOpError("is divided over axis ")
               << axis << ", which splits member " << member;
    // (C4)
    // Members stand in the order of their offsets, each with room up to the
    // next.
    int64_t begin = getOffsets()[index];
    int64_t bound = index + 1 < getOffsets().size()
                        ? getOffsets()[index + 1]
                        : cast<ShapedType>(getType()).getNumElements();
    int64_t count = countLocalElements(parameter);
    if (count > bound - begin)
      return emitOpError("has ") << bound - begin << " elements for member "
                                 << member << ", which has " << count;
  }
  return success();
}
