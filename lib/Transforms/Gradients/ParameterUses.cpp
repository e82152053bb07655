//===- ParameterUses.cpp - Uses of parameters by rank ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collects what all functions of a module do with each parameter, which
// PackParameters.cpp and BuildOptimizer.cpp decide by. Changes nothing.
//
//===----------------------------------------------------------------------===//

#include "ParameterUses.h"

#include "../Sharding/FactorAxes.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Transforms/StageFunctions.h"

using namespace mlir;
using namespace plait;
using dist::MeshOp;
using dist::ShardingAttr;
using nn::Slot;

//===----------------------------------------------------------------------===//
// One parameter
//===----------------------------------------------------------------------===//

/// The master value beside a compute copy is sharded as the gradient is: only
/// the update reads it.
ShardingAttr ParameterUse::getSharding(Slot slot) {
  bool isMaster = slot == Slot::Value && hasCopy;
  return nn::getSharding(parameter, isMaster ? Slot::Gradient : slot);
}

/// The axes that split each of `rank` dimensions; null splits none.
static SmallVector<SmallVector<StringAttr>>
getSplits(MeshOp mesh, ShardingAttr sharding, int64_t rank) {
  SmallVector<SmallVector<StringAttr>> splits(rank);
  if (sharding)
    for (auto [split, axes] : llvm::zip_equal(splits, sharding.getDims()))
      for (StringAttr axis : dist::getAxes(axes))
        if (mesh.getAxisSize(axis) > 1)
          split.push_back(axis);
  return splits;
}

/// Whether state, value and every rank's gradient are split alike, and
/// gradients are sums.
bool ParameterUse::isSplitOnce(MeshOp mesh) {
  int64_t dims = getType().getRank();
  auto splits = getSplits(mesh, getState(), dims);
  if (getSplits(mesh, nn::getSharding(parameter), dims) != splits)
    return false;
  return llvm::all_of(gradients, [&](const auto &gradient) {
    ShardingAttr sharding = gradient.second;
    return getSplits(mesh, sharding, dims) == splits &&
           sharding.getReduction() == dist::Reduction::Sum;
  });
}

bool ParameterUse::isInBlocks(MeshOp mesh) {
  int64_t dims = getType().getRank();
  auto whole = getSplits(
      mesh, nn::getSharding(parameter, Slot::getState(kErrorState.data())),
      dims);
  return isTrained() && getSplits(mesh, getState(), dims) != whole &&
         llvm::all_of(gradients, [&](const auto &gradient) {
           return getSplits(mesh, gradient.second, dims) == whole &&
                  gradient.second.getReduction() == dist::Reduction::Sum;
         });
}

ShardingAttr ParameterUse::getPacked(MeshOp mesh) {
  return isInBlocks(mesh)
             ? nn::getSharding(parameter, Slot::getState(kErrorState.data()))
             : getState();
}

/// Axes of one rank leave nothing to reduce.
SmallVector<StringAttr> ParameterUse::getReducedAxes(MeshOp mesh,
                                                     int64_t rank) {
  auto axes = llvm::to_vector(gradients.at(rank).getPartial());
  llvm::erase_if(axes,
                 [&](StringAttr axis) { return mesh.getAxisSize(axis) <= 1; });
  // What is scattered first leaves a part of the bytes to the others.
  SmallVector<StringAttr> ordered = mesh.getStateAxes();
  llvm::erase_if(ordered, [&](StringAttr axis) {
    return !llvm::is_contained(axes, axis);
  });
  for (StringAttr axis : axes)
    if (!llvm::is_contained(ordered, axis))
      ordered.push_back(axis);
  return ordered;
}

SmallVector<StringAttr> ParameterUse::getSplitAxes(MeshOp mesh) {
  SmallVector<StringAttr> all;
  for (ArrayRef<StringAttr> axes :
       getSplits(mesh, getState(), getType().getRank()))
    llvm::append_range(all, axes);
  // A set: which dimension an axis splits makes no difference to sums over it.
  llvm::sort(all, [](StringAttr a, StringAttr b) {
    return a.getValue() < b.getValue();
  });
  return all;
}

/// Whether the ranks along `axis` can share the update: every rank of the
/// pipeline reduces the gradient over it, and nobody reads the master value.
bool ParameterUse::canDivide(StringRef axis, MeshOp mesh) {
  auto isReduced = [&](const auto &gradient) {
    return llvm::is_contained(getReducedAxes(mesh, gradient.first), axis);
  };
  return isTrained() && !valueIsRead && !isMatrix() &&
         llvm::all_of(gradients, isReduced);
}

/// Groups compare with their first member alone, so that this has to be
/// transitive. A parameter whose gradient several ranks of the pipeline reduce
/// is like no other. For frozen ones the end of a step does nothing: they need
/// only agree in whether there is a copy.
bool plait::endAlike(ParameterUse &a, ParameterUse &b, int64_t rank,
                     MeshOp mesh) {
  bool isTrained = a.gradients.count(rank);
  if (b.gradients.count(rank) != isTrained || a.hasCopy != b.hasCopy ||
      a.valueIsRead != b.valueIsRead)
    return false;
  if (!isTrained)
    return true;
  // Where other programs take part, what is reduced together must not depend on
  // what else a rank has.
  return a.gradients.size() == 1 && b.gradients.size() == 1 &&
         a.optimizer == b.optimizer &&
         a.parameter.getDecay() == b.parameter.getDecay() &&
         a.parameter.getRateFactor() == b.parameter.getRateFactor() &&
         a.parameter.getBalance() == b.parameter.getBalance() &&
         a.isMatrix() == b.isMatrix() &&
         a.getReducedAxes(mesh, rank) == b.getReducedAxes(mesh, rank) &&
         a.getSplitAxes(mesh) == b.getSplitAxes(mesh);
}

//===----------------------------------------------------------------------===//
// Sums over ranks
//===----------------------------------------------------------------------===//

Type plait::getReducedType(ModuleOp module) {
  MLIRContext *context = module.getContext();
  if (getConfiguration(module).reducePrecision == Precision::BF16)
    return BFloat16Type::get(context);
  return Float32Type::get(context);
}

/// Where nothing is summed nothing is rounded: that is left to the end of the
/// step.
Value plait::sumGradient(OpBuilder &builder, Value gradient,
                         ShardingAttr sharding) {
  auto type = cast<RankedTensorType>(gradient.getType());
  auto module = gradient.getParentRegion()->getParentOfType<ModuleOp>();
  bool sums = llvm::any_of(
      ShardingAttr::of(gradient).getPartial(),
      [&](StringAttr axis) { return !sharding.isPartialOver(axis); });
  Type reduced = getReducedType(module);
  if (!sums || type.getElementType() == reduced)
    return reshard(builder, gradient, sharding);
  Location loc = gradient.getLoc();
  Value rounded =
      nn::CastOp::create(builder, loc, type.clone(reduced), gradient);
  Value sum = reshard(builder, rounded, sharding);
  return nn::CastOp::create(builder, loc, dist::withSharding(type, sharding),
                            sum);
}

Value plait::moveGradient(OpBuilder &builder, Value primal, Value gradient,
                          ShardingAttr sharding) {
  Operation *source = primal.getDefiningOp();
  bool isRead = source && nn::getSlotAccess(source) == nn::SlotAccess::Read;
  return isRead ? sumGradient(builder, gradient, sharding)
                : reshard(builder, gradient, sharding);
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

/// Functions of one rank add to one buffer: it is partial over the axes over
/// which all of them leave it so.
static void join(Accumulated &accumulated, int64_t rank,
                 ShardingAttr sharding) {
  auto [known, isNew] = accumulated.try_emplace(rank, sharding);
  if (isNew)
    return;
  SmallVector<StringAttr> axes(known->second.getPartial());
  llvm::erase_if(
      axes, [&](StringAttr axis) { return !sharding.isPartialOver(axis); });
  known->second = known->second.withoutPartial().withPartial(axes);
}

/// A gradient that is a count says by its sign whether there are more or fewer
/// tokens than the mean, which rounded sums do not.
static LogicalResult checkBalance(ParameterUse &use) {
  auto module = use.parameter->getParentOfType<ModuleOp>();
  TrainingConfiguration configuration = getConfiguration(module);
  bool rounds = !getReducedType(module).isF32();
  if (!use.parameter.getBalance() || !use.isTrained() ||
      (!rounds && !configuration.compress.isOn()))
    return success();
  return use.parameter.emitOpError(
             "has a balance, for which tokens are counted, "
             "and ")
         << (rounds ? "`reduce-precision` rounds" : "`compress` compresses")
         << " the counts";
}

/// nn-assign-matrices says so first, of the model; this is for what somebody
/// has edited since.
static LogicalResult checkMatrix(ParameterUse &use) {
  if (!use.isTrained() || use.isMatrix() || !use.optimizer->updatesMatrices())
    return success();
  return use.parameter.emitOpError("has no matrix, and optimizer ")
         << use.optimizer->name << " updates matrices alone";
}

/// 1. Lists the parameters in the order of the module.
/// 2. Collects from all functions who reads and who adds to them. What is added
/// to need not be a parameter: accumulators are noted too.
/// 3. Completes the uses, once all functions have been seen.
FailureOr<ParameterUses> ParameterUses::find(ModuleOp module) {
  // 1.
  ParameterUses uses;
  llvm::DenseMap<Attribute, size_t> indices;
  const Optimizer &main = **findOptimizer(getConfiguration(module).optimizer);
  for (auto parameter : module.getOps<nn::ParameterOp>()) {
    indices[FlatSymbolRefAttr::get(parameter.getSymNameAttr())] =
        uses.parameters.size();
    uses.parameters.push_back(
        {parameter, &nn::findOptimizer(parameter, main), {}, {}});
  }
  auto findUse = [&](FlatSymbolRefAttr symbol) {
    auto it = indices.find(symbol);
    return it == indices.end() ? nullptr : &uses.parameters[it->second];
  };
  // 2. A function of no stage may read but not add: there would be no rank
  // that reduces the sum.
  for (auto function : module.getOps<func::FuncOp>()) {
    std::optional<int64_t> rank = getRank(function);
    for (auto read : nn::findAccesses(function, nn::SlotAccess::Read)) {
      ParameterUse *use = findUse(read.getSymbolAttr());
      if (!use)
        continue;
      if (rank)
        use->ranks.insert(*rank);
      use->hasCopy |= read.getSlot() == Slot::Compute;
      use->valueIsRead |= read.getSlot() == Slot::Value;
    }
    for (auto add : nn::findAccesses(function, nn::SlotAccess::Add)) {
      if (!rank)
        return add->emitOpError("accumulates in @")
               << function.getSymName() << ", which belongs to no stage";
      ShardingAttr sharding = ShardingAttr::of(add.getTensor());
      if (!sharding)
        return add->emitOpError("adds ")
               << add.getTensor().getType() << ", which has no sharding";
      join(uses.accumulated[add.getSymbolAttr()], *rank, sharding);
      if (ParameterUse *use = findUse(add.getSymbolAttr()))
        use->ranks.insert(*rank);
    }
  }
  // 3.
  for (ParameterUse &use : uses.parameters) {
    auto symbol = FlatSymbolRefAttr::get(use.parameter.getSymNameAttr());
    use.gradients = uses.accumulated.lookup(symbol);
    // Of no interest without a copy.
    use.valueIsRead &= use.hasCopy;
    if (use.isTrained() && !use.parameter.getShardingAttr())
      return use.parameter.emitOpError("has a gradient but no sharding");
    if (failed(checkBalance(use)) || failed(checkMatrix(use)))
      return failure();
  }
  return uses;
}
