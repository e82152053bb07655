//===- FactorAxes.cpp - The axes that split factors ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two users: dist-assign-shardings, which splits the classes of the whole loss,
// and nn-differentiate, whose gradient ops appear among values that are sharded
// already and have to fit in with them. Both write shardings by
// applyFactorAxes(), so that what an op's factors imply for its types is said
// in one place; the verifier of ShardableOpInterface says it once more, from
// the types.
//
//===----------------------------------------------------------------------===//

#include "FactorAxes.h"

#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Transforms/Chunks.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace plait;
using namespace plait::dist;

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

/// An operand is never partial by the rule: who reads a partial sum has it
/// combined first, except where the op is linear (keptPartial()).
ShardingAttr plait::getSharding(FlatSymbolRefAttr mesh, const FactorRule &rule,
                                const FactorAxes &axes,
                                const FactorRule::DimFactors &dims,
                                bool isResult) {
  auto none = ArrayAttr::get(mesh.getContext(), {});
  SmallVector<ArrayAttr> split;
  for (int factor : dims)
    split.push_back(factor != FactorRule::kNone && axes[factor] ? axes[factor]
                                                                : none);
  // In the order of the factors, so that equal shardings are one attribute.
  llvm::SetVector<StringAttr> partial;
  auto reduction = Reduction::Sum;
  bool isOwned = true;
  for (auto [factor, along] : llvm::enumerate(axes)) {
    if (!isResult || !rule.isReducedIn(factor, dims) || !along || along.empty())
      continue;
    for (StringAttr axis : dist::getAxes(along))
      partial.insert(axis);
    isOwned &= rule.factors[factor].ownsRows;
    if (rule.factors[factor].kind == FactorKind::Max)
      reduction = Reduction::Max;
  }
  if (isOwned && !partial.empty())
    reduction = Reduction::Owned;
  return ShardingAttr::get(mesh.getContext(), mesh, split,
                           partial.getArrayRef(), reduction);
}

bool plait::movesElements(Operation *op) {
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  return shardable && shardable.isLinear() && getFacts(op).maps;
}

/// Equal blocks only: collectives move them as they are, without padding.
static ShardingAttr divide(MeshOp mesh, StringAttr axis, RankedTensorType type,
                           ShardingAttr sharding) {
  int64_t ranks = mesh.getAxisSize(axis);
  if (ranks <= 1 || sharding.findDim(axis) >= 0)
    return sharding;
  for (auto [dim, axes] : llvm::enumerate(sharding.getDims()))
    if (type.getDimSize(dim) % (mesh.getBlocks(axes) * ranks) == 0)
      return sharding.withDim(dim, addAxis(axes, axis));
  return sharding;
}

ShardingAttr plait::divideState(MeshOp mesh, RankedTensorType type,
                                ShardingAttr sharding) {
  SmallVector<StringAttr> axes = mesh.getStateAxes();
  llvm::erase_if(axes,
                 [&](StringAttr axis) { return sharding.findDim(axis) >= 0; });
  int64_t ranks = 1;
  for (StringAttr axis : axes)
    ranks *= mesh.getAxisSize(axis);
  for (auto [dim, own] : llvm::enumerate(sharding.getDims())) {
    if (type.getDimSize(dim) % (mesh.getBlocks(own) * ranks) != 0)
      continue;
    ArrayAttr all = own;
    for (StringAttr axis : axes)
      all = addAxis(all, axis);
    return sharding.withDim(dim, all);
  }
  for (StringAttr axis : axes)
    sharding = divide(mesh, axis, type, sharding);
  return sharding;
}

/// Whether one stage gathers it, whatever stages there will be.
static bool isReadOnce(MeshOp mesh, Value value) {
  llvm::SmallDenseSet<Attribute> layers;
  int64_t readers = 0;
  for (Operation *user : value.getUsers()) {
    Attribute layer = nn::getLayerAttr(user);
    readers += !layer || layers.insert(layer).second;
  }
  return readers <= 1 || mesh.getAxisSize(Axis::PP) <= 1;
}

ShardingAttr plait::divideChunks(MeshOp mesh, Value value, ShardingAttr stored,
                                 const Compression &compression) {
  for (const AxisFacts &facts : kAxes)
    if (mesh.getAxisSize(facts.axis) > 1 && facts.axis != Axis::DP &&
        (facts.splitsTokens() || facts.dividesState))
      return stored;
  return isReadOnce(mesh, value) ? divideRows(dist::plainType(value.getType()),
                                              stored, mesh, compression.block)
                                 : stored;
}

/// With an extent below `parts` there is no multiple below but zero.
std::string plait::listNearest(int64_t extent, int64_t parts) {
  int64_t below = extent / parts * parts;
  std::string above = std::to_string(below + parts);
  return below ? std::to_string(below) + " and " + above : above;
}

/// The location is the source's, because the exchange is told of as a part of
/// what makes the value.
Value plait::reshard(OpBuilder &builder, Value value, ShardingAttr sharding) {
  if (ShardingAttr::of(value) == sharding)
    return value;
  Operation *source = value.getDefiningOp();
  auto op =
      ReshardOp::create(builder, source ? source->getLoc() : value.getLoc(),
                        withSharding(value.getType(), sharding), value);
  return op;
}

void plait::reshardForLayers(OpBuilder &builder, Value value,
                             ShardingAttr sharding) {
  llvm::SetVector<Operation *> users(value.user_begin(), value.user_end());
  auto inOrder = users.takeVector();
  llvm::sort(inOrder,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  llvm::DenseMap<Attribute, Value> resharded; // by layer
  for (Operation *user : inOrder) {
    Attribute layer = nn::getLayerAttr(user);
    Value known = layer ? resharded.lookup(layer) : Value();
    if (!known) {
      builder.setInsertionPoint(user);
      known = reshard(builder, value, sharding);
      nn::inheritLayer(known.getDefiningOp(), user);
      resharded[layer] = known;
    }
    user->replaceUsesOfWith(value, known);
  }
}

namespace {
/// The axes over which an op takes values uncombined, and leaves them so.
struct Kept {
  SmallVector<StringAttr> axes;
  Reduction reduction = Reduction::Sum;
  bool isRead = true; // operands may have it; else only the rest of the rule

  /// Whether `value` is left as it is.
  bool fits(Value value) const {
    ShardingAttr sharding = ShardingAttr::of(value);
    return sharding && sharding.isPartial() &&
           sharding.getPartial() == ArrayRef(axes) &&
           (sharding.isOwned() || reduction == Reduction::Sum);
  }
};
} // namespace

/// Whether `axis` splits a factor, or is not to be had as partial for another
/// reason: a rank has the diagonal of what is split over it twice.
static bool isUsed(const FactorAxes &axes, StringAttr axis) {
  return llvm::any_of(axes, [&](ArrayAttr own) {
    return own && llvm::is_contained(dist::getAxes(own), axis);
  });
}

/// Keeps rows that belong to one rank each as they are: what elementwise ops
/// make of them belongs there, too.
static Kept keepOwned(ShardableOpInterface op, const FactorAxes &axes) {
  Kept kept{{}, Reduction::Owned};
  for (Value operand : op->getOperands()) {
    ShardingAttr sharding = ShardingAttr::of(operand);
    if (!sharding.isOwned())
      continue;
    if (!kept.axes.empty() && sharding.getPartial() != ArrayRef(kept.axes))
      return {};
    kept.axes.assign(sharding.getPartial().begin(),
                     sharding.getPartial().end());
  }
  bool fits = llvm::none_of(
      kept.axes, [&](StringAttr axis) { return isUsed(axes, axis); });
  return fits ? kept : Kept();
}

/// Has a sum over dimensions be made before ranks combine what they have: where
/// experts are split there are several rows of a token.
static Kept keepSummed(ShardableOpInterface op, const FactorAxes &axes) {
  ShardingAttr sharding = ShardingAttr::of(op->getOperand(0));
  auto splitsExperts = [](StringAttr axis) {
    const AxisFacts *facts = findAxis(axis.getValue());
    return facts && facts->splitsExperts;
  };
  bool fits = sharding.isOwned() ||
              (sharding.getReduction() == Reduction::Sum &&
               llvm::any_of(sharding.getPartial(), splitsExperts));
  fits &= llvm::none_of(sharding.getPartial(),
                        [&](StringAttr axis) { return isUsed(axes, axis); });
  return fits ? Kept{llvm::to_vector(sharding.getPartial())} : Kept();
}

/// The axes over which a linear op may leave all of its operands partial sums.
static Kept keepLinear(ShardableOpInterface op) {
  if (!op.isLinear() || op->getNumOperands() == 0)
    return {};
  ArrayRef<StringAttr> kept = ShardingAttr::of(op->getOperand(0)).getPartial();
  bool alike = llvm::all_of(op->getOperands(), [&](Value operand) {
    return ShardingAttr::of(operand).getPartial() == kept;
  });
  return alike ? Kept{llvm::to_vector(kept)} : Kept();
}

/// Keeps rows over what splits their owners: they are taken as they are, and
/// the result follows from the rule.
static Kept keepRows(const FactorRule &rule, const FactorAxes &axes) {
  for (auto [factor, own] : llvm::zip_equal(rule.factors, axes))
    if (factor.ownsRows && own)
      return {dist::getAxes(own), Reduction::Owned, /*isRead=*/false};
  return {};
}

/// Finds what stays uncombined; asked before operands are resharded, which
/// takes their partial axes away.
static Kept findKept(ShardableOpInterface op, const FactorRule &rule,
                     const FactorAxes &axes) {
  Kept kept = keepRows(rule, axes);
  if (kept.axes.empty() && rule.isElementwise())
    kept = keepOwned(op, axes);
  if (kept.axes.empty() && getFacts(op).adds)
    kept = keepSummed(op, axes);
  return kept.axes.empty() ? keepLinear(op) : kept;
}

/// Returns `axes` without those that `sharding` is partial over.
static ArrayAttr dropPartial(ArrayAttr axes, ShardingAttr sharding) {
  SmallVector<StringAttr, 2> all = dist::getAxes(axes);
  ArrayAttr kept = ArrayAttr::get(axes.getContext(), {});
  for (StringAttr axis : all)
    if (!sharding.isPartialOver(axis))
      kept = dist::addAxis(kept, axis,
                           axis == all.back() ? dist::getRounds(axes) : 1);
  return kept;
}

void plait::readPartialSums(ShardableOpInterface op, FactorAxes &axes) {
  SmallVector<dist::ReshardOp> combined;
  for (Value operand : op->getOperands()) {
    auto moved = operand.getDefiningOp<dist::ReshardOp>();
    ShardingAttr from = moved ? ShardingAttr::of(moved.getInput()) : nullptr;
    if (!from || !moved->hasOneUse() || !from.isPartial() ||
        from.getReduction() != Reduction::Sum)
      return;
    combined.push_back(moved);
  }
  auto typeOf = [](dist::ReshardOp moved) {
    return moved.getInput().getType();
  };
  if (!op.isLinear() || combined.size() < 2 ||
      !llvm::all_equal(llvm::map_range(combined, typeOf)))
    return;
  ShardingAttr sharding = ShardingAttr::of(combined.front().getInput());
  for (ArrayAttr &own : axes)
    if (own)
      own = dropPartial(own, sharding);
  for (auto [index, moved] : llvm::enumerate(combined)) {
    op->setOperand(index, moved.getInput());
    moved->erase();
  }
}

void plait::applyFactorAxes(ShardableOpInterface op, const FactorRule &rule,
                            FlatSymbolRefAttr mesh, const FactorAxes &axes) {
  Kept kept = findKept(op, rule, axes);
  OpBuilder builder(op);
  for (auto [index, dims] : llvm::enumerate(rule.operands)) {
    Value operand = op->getOperand(index);
    ShardingAttr wanted = getSharding(mesh, rule, axes, dims, false);
    bool fits = kept.fits(operand);
    // What is whole can be had by row, and parts of sums once they are whole.
    bool isNarrowed = kept.isRead && kept.reduction == Reduction::Owned;
    if (isNarrowed && !fits)
      operand = reshard(builder, operand, wanted);
    if (isNarrowed || fits)
      wanted = wanted.withPartial(
          kept.axes,
          fits ? ShardingAttr::of(operand).getReduction() : Reduction::Owned);
    op->setOperand(index, reshard(builder, operand, wanted));
  }
  for (auto [result, dims] : llvm::zip_equal(op->getResults(), rule.results)) {
    ShardingAttr sharding = getSharding(mesh, rule, axes, dims, true);
    if (kept.isRead && !kept.axes.empty()) {
      llvm::SetVector<StringAttr> all(kept.axes.begin(), kept.axes.end());
      all.insert(sharding.getPartial().begin(), sharding.getPartial().end());
      sharding = sharding.withPartial(all.getArrayRef(), kept.reduction);
    }
    result.setType(withSharding(result.getType(), sharding));
  }
}

//===----------------------------------------------------------------------===//
// Ops among sharded values
//===----------------------------------------------------------------------===//

namespace {
/// Assigns axes to the classes of a few new ops.
struct Seeder {
  FactorClasses classes;
  llvm::DenseMap<int, ArrayAttr> axesOfClass;

  /// The first who seeds a class decides; callers come in the order of
  /// preference.
  void seed(Value value, ShardingAttr sharding) {
    for (auto [dim, axes] : llvm::enumerate(sharding.getDims()))
      if (!axes.empty())
        axesOfClass.try_emplace(classes.find(value, dim), axes);
  }

  /// What splits the factors of `op`: their classes' axes, but no axis twice,
  /// no whole factor, and no remainder where none is allowed.
  FactorAxes getAxes(ShardableOpInterface op, const FactorRule &rule) {
    FactorAxes result;
    llvm::SmallDenseSet<Attribute> used;
    for (int factor = 0, e = rule.factors.size(); factor < e; ++factor) {
      ArrayAttr axes = axesOfClass.lookup(classes.findFactor(op, rule, factor));
      bool free = axes && llvm::none_of(axes, [&](Attribute axis) {
                    return used.contains(axis);
                  });
      if (!free || rule.factors[factor].kind == FactorKind::Whole) {
        result.push_back({});
        continue;
      }
      used.insert(axes.begin(), axes.end());
      result.push_back(axes);
    }
    return result;
  }
};
} // namespace

static int64_t sizeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

/// Whether all ranks have the whole of it.
static bool isWhole(ShardingAttr sharding) {
  return sharding && !sharding.isPartial() &&
         llvm::all_of(sharding.getDims(),
                      [](ArrayAttr axes) { return axes.empty(); });
}

/// Leaves all that `ops` make whole, where no axis splits what they read and
/// none is asked for, as of the proof's one rank; false: some axis does.
static bool keepWhole(ArrayRef<Operation *> ops,
                      ArrayRef<std::pair<Value, ShardingAttr>> seeds,
                      FlatSymbolRefAttr mesh) {
  auto readsWhole = [&](Operation *op) {
    return !isa<ShardableOpInterface>(op) ||
           llvm::all_of(op->getOperands(), [&](Value operand) {
             return llvm::is_contained(ops, operand.getDefiningOp()) ||
                    isWhole(ShardingAttr::of(operand));
           });
  };
  if (!llvm::all_of(ops, readsWhole) ||
      !llvm::all_of(llvm::make_second_range(seeds), isWhole))
    return false;
  for (Operation *op : ops)
    if (isa<ShardableOpInterface>(op))
      for (Value result : op->getResults()) {
        auto type = cast<RankedTensorType>(result.getType());
        result.setType(withSharding(
            type, ShardingAttr::getReplicated(mesh, type.getRank())));
      }
  return true;
}

/// 0. Where nothing is split, nothing is asked for.
/// 1. Joins the dimensions of the new ops, and collects what they read from
///    outside.
/// 2. Gives classes the axes of the values from outside, then of the seeds.
/// 3. Decides the axes of all new ops, and only then writes types and reshards.
void plait::shardNewOps(ArrayRef<Operation *> ops,
                        ArrayRef<std::pair<Value, ShardingAttr>> seeds,
                        FlatSymbolRefAttr mesh) {
  // 0.
  if (keepWhole(ops, seeds, mesh))
    return;
  // 1.
  struct Ruled {
    ShardableOpInterface op;
    FactorRule rule; // asked for once: what it goes by does not change here
    FactorAxes axes;
  };
  SmallVector<Ruled, 4> plan;
  Seeder seeder;
  llvm::SetVector<Value> outside;
  for (Operation *op : ops)
    if (auto shardable = dyn_cast<ShardableOpInterface>(op)) {
      plan.push_back({shardable, shardable.getFactorRule(), {}});
      seeder.classes.add(shardable, plan.back().rule);
      for (Value operand : op->getOperands())
        if (!llvm::is_contained(ops, operand.getDefiningOp()))
          outside.insert(operand);
    }
  // 2.
  // Where operands are split differently the largest one keeps its place, and
  // smaller ones are moved to it.
  auto bySize = outside.takeVector();
  llvm::stable_sort(bySize,
                    [](Value a, Value b) { return sizeOf(a) > sizeOf(b); });
  for (Value value : bySize)
    if (ShardingAttr sharding = ShardingAttr::of(value))
      seeder.seed(value, sharding);
  for (auto [value, sharding] : seeds)
    seeder.seed(value, sharding);
  // 3.
  // Axes are fixed before the first reshard is inserted: it would hide an
  // operand from its class.
  for (auto &[op, rule, axes] : plan)
    axes = seeder.getAxes(op, rule);
  for (auto &[op, rule, axes] : plan)
    applyFactorAxes(op, rule, mesh, axes);
}
