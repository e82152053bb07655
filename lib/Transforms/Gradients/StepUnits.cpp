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

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Dialect/NN/IR/NNDraw.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/NN/IR/Parameters.h"

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

bool StepUnit::addsToError(dist::MeshOp mesh, int64_t rank,
                           const TrainingConfiguration &configuration) {
  auto isReplicas = [](StringAttr axis) { return axis == kDataAxis; };
  return configuration.zero >= 2 && isDivided() &&
         compresses(configuration.compress, nn::countDims(get().parameter)) &&
         get().gradients.size() == 1 &&
         llvm::all_of(get().getReducedAxes(mesh, rank), isReplicas);
}

/// Neighbours on a rank are so in the whole up to the innermost dimension that
/// is split. Dimensions of one block before it change nothing.
static TensorPlace findPlace(ParameterUse &use, dist::MeshOp mesh,
                             int64_t block) {
  dist::ShardingAttr sharding = use.getPacked(mesh);
  RankedTensorType whole = use.getType(), own = use.getBlock(mesh, sharding);
  MLIRContext *context = mesh.getContext();
  int64_t elements = own.getNumElements(), inner = 1;
  TensorPlace place{elements, nn::getDrawKey(use.parameter.getSymName()),
                    int64_t(llvm::divideCeil(elements, block)),
                    UnitAttr::get(context)};
  for (int64_t dim = whole.getRank(); dim-- > 0;) {
    ArrayAttr axes = sharding.getDims()[dim];
    if (mesh.getBlocks(axes) > 1) {
      int64_t run = own.getDimSize(dim) * inner / block;
      place.run = run;
      place.begin = nn::BeginAttr::get(context, mesh.getBegin(axes, run),
                                       whole.getDimSize(dim) * inner / block);
      break;
    }
    inner *= own.getDimSize(dim);
  }
  return place;
}

SmallVector<TensorPlace> StepUnit::findPlaces(dist::MeshOp mesh,
                                              int64_t block) {
  return llvm::map_to_vector(members, [&](ParameterUse *member) {
    return findPlace(*member, mesh, block);
  });
}

/// That members of packs can be treated as one follows from how packs are made,
/// unless by hand.
static LogicalResult checkMember(nn::PackOp pack, ParameterUse &first,
                                 ParameterUse &use, dist::MeshOp mesh) {
  int64_t rank = pack.getRank();
  StringRef name = use.parameter.getSymName();
  bool isInBlocks = pack.getBlocks();
  if (isInBlocks ? !use.isInBlocks(mesh) : !use.isSplitOnce(mesh))
    return pack.emitOpError("has member @")
           << name << ", whose value, gradient and state are split differently";
  if (&use != &first && !endAlike(first, use, rank, mesh))
    return pack.emitOpError("has members @")
           << first.parameter.getSymName() << " and @" << name
           << ", which are reduced, counted or updated differently";
  for (StringAttr axis : pack.getDividingAxes())
    if (pack.isDivided() && !use.canDivide(axis, mesh))
      return pack.emitOpError("is divided over axis ")
             << axis << ", but not all ranks along it can update @" << name
             << " by rows";
  return success();
}

/// A rank is looked at for what it has: what is frozen there has nothing to be
/// updated by.
FailureOr<std::map<int64_t, SmallVector<StepUnit>>>
plait::findStepUnits(ModuleOp module, ParameterUses &uses, dist::MeshOp mesh) {
  using PackOfRank = std::map<int64_t, nn::PackOp>;
  llvm::DenseMap<Attribute, PackOfRank> packs; // by members
  for (auto pack : module.getOps<nn::PackOp>())
    for (Attribute member : pack.getMembers())
      packs[member][pack.getRank()] = pack;
  // By rank, then by parameter or pack.
  std::map<int64_t, llvm::MapVector<Operation *, StepUnit>> units;
  for (ParameterUse &use : uses.parameters) {
    PackOfRank own =
        packs.lookup(FlatSymbolRefAttr::get(use.parameter.getSymNameAttr()));
    for (auto [rank, gradient] : use.gradients)
      own.try_emplace(rank, nn::PackOp());
    for (auto [rank, pack] : own) {
      StepUnit alone{pack, {&use}};
      auto [entry, isNew] = units[rank].insert({alone.getOp(), alone});
      StepUnit &unit = entry->second;
      if (pack && failed(checkMember(pack, unit.get(), use, mesh)))
        return failure();
      if (!isNew)
        unit.members.push_back(&use);
    }
  }
  std::map<int64_t, SmallVector<StepUnit>> found;
  for (auto &[rank, own] : units)
    for (auto &[op, unit] : own)
      if (unit.get().gradients.count(rank))
        found[rank].push_back(std::move(unit));
  return found;
}
