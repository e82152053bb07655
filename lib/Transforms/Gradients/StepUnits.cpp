//===- StepUnits.cpp - What is updated as one -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds for BuildOptimizer.cpp the packs of a rank and the parameters that are
// in none, with all that is known of their uses.
//
//===----------------------------------------------------------------------===//

#include "StepUnits.h"

using namespace mlir;
using namespace plait;
using nn::Slot;

bool StepUnit::dividesCopy() {
  if (!get().hasCopy)
    return false;
  return pack ? pack.isDivided(Slot::Value) && !pack.isDivided(Slot::Compute)
              : get().getSharding(Slot::Value) !=
                    get().getSharding(Slot::Compute);
}

/// That members of packs can be treated as one follows from how packs are made,
/// unless by hand.
static LogicalResult checkMember(nn::PackOp pack, ParameterUse &first,
                                 ParameterUse &use, dist::MeshOp mesh) {
  int64_t rank = pack.getRank();
  StringRef name = use.parameter.getSymName();
  if (!use.isSplitOnce(mesh))
    return pack.emitOpError("has member @")
           << name << ", whose value, gradient and state are not split alike";
  if (&use != &first && !endAlike(first, use, rank, mesh))
    return pack.emitOpError("has members @")
           << first.parameter.getSymName() << " and @" << name
           << ", which are not reduced, counted and updated alike";
  if (pack.getAxis() && !use.canDivide(*pack.getAxis(), mesh))
    return pack.emitOpError("is divided over axis ")
           << pack.getAxisAttr() << ", but not all ranks along it can update @"
           << name << " by rows";
  return success();
}

FailureOr<SmallVector<StepUnit>> plait::findStepUnits(ModuleOp module,
                                                      ParameterUses &uses,
                                                      int64_t rank,
                                                      dist::MeshOp mesh) {
  llvm::DenseMap<Attribute, nn::PackOp> packs; // by members
  for (auto pack : module.getOps<nn::PackOp>())
    if (int64_t(pack.getRank()) == rank)
      for (Attribute member : pack.getMembers())
        packs[member] = pack;
  llvm::MapVector<Operation *, StepUnit> units; // by parameter or pack
  for (ParameterUse &use : uses.parameters) {
    auto symbol = FlatSymbolRefAttr::get(use.parameter.getSymNameAttr());
    StepUnit own{packs.lookup(symbol), {&use}};
    auto [entry, isNew] = units.insert({own.getOp(), own});
    StepUnit &unit = entry->second;
    if (own.pack && failed(checkMember(own.pack, unit.get(), use, mesh)))
      return failure();
    if (!isNew)
      unit.members.push_back(&use);
  }
  // What is frozen on this rank has nothing to be updated by.
  auto found = llvm::to_vector(llvm::make_second_range(units));
  llvm::erase_if(
      found, [&](StepUnit &unit) { return !unit.get().gradients.count(rank); });
  return found;
}
