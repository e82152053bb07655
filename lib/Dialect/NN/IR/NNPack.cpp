//===- NNPack.cpp - Parameters that lie side by side ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

RankedTensorType PackOp::getSlotType(Slot slot) {
  auto type = cast<RankedTensorType>(getType());
  return slot == Slot::Compute ? type.clone(BFloat16Type::get(getContext()))
                               : type;
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
  return success();
}

/// The elements of one rank's block of a parameter.
static int64_t countLocalElements(ParameterOp parameter) {
  auto type = cast<RankedTensorType>(parameter.getType());
  dist::MeshOp mesh = dist::MeshOp::find(parameter);
  auto sharding =
      dyn_cast_or_null<dist::ShardingAttr>(parameter.getShardingAttr());
  if (mesh && sharding)
    type = mesh.getLocalType(dist::withSharding(type, sharding));
  return type.getNumElements();
}

LogicalResult PackOp::verifySymbolUses(SymbolTableCollection &tables) {
  // (C3)
  llvm::DenseSet<Attribute> taken;
  for (auto other : (*this)->getParentOfType<ModuleOp>().getOps<PackOp>())
    if (other != *this && other.getStage() == getStage())
      taken.insert(other.getMembers().begin(), other.getMembers().end());
  for (auto [index, member] :
       llvm::enumerate(getMembers().getAsRange<FlatSymbolRefAttr>())) {
    auto parameter = tables.lookupNearestSymbolFrom<ParameterOp>(*this, member);
    if (!parameter)
      return emitOpError("has member ") << member << ", which is no parameter";
    if (!taken.insert(member).second)
      return emitOpError("has member ")
             << member << ", which is packed twice for stage " << getStage();
    // (C4)
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
