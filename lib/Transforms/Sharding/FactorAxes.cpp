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
  for (auto [factor, along] : llvm::enumerate(axes)) {
    if (!isResult || !rule.isReducedIn(factor, dims) || !along || along.empty())
      continue;
    for (StringAttr axis : dist::getAxes(along))
      partial.insert(axis);
    if (rule.factors[factor].kind == FactorKind::Max)
      reduction = Reduction::Max;
  }
  return ShardingAttr::get(mesh.getContext(), mesh, split,
                           partial.getArrayRef(), reduction);
}

bool plait::movesElements(Operation *op) {
  auto fusable = dyn_cast<FusableOpInterface>(op);
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  return fusable && fusable.getFusionRole() == FusionRole::Reindex &&
         shardable && shardable.isLinear();
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

/// What a linear op may leave uncombined: the axes over which all of its
/// operands are partial sums.
static ArrayRef<StringAttr> keptPartial(ShardableOpInterface op) {
  if (!op.isLinear() || op->getNumOperands() == 0)
    return {};
  ArrayRef<StringAttr> kept = ShardingAttr::of(op->getOperand(0)).getPartial();
  bool alike = llvm::all_of(op->getOperands(), [&](Value operand) {
    return ShardingAttr::of(operand).getPartial() == kept;
  });
  return alike ? kept : ArrayRef<StringAttr>();
}

void plait::applyFactorAxes(ShardableOpInterface op, FlatSymbolRefAttr mesh,
                            const FactorAxes &axes) {
  // Asked before operands are resharded, which takes their partial axes away.
  FactorRule rule = op.getFactorRule();
  SmallVector<StringAttr> kept(keptPartial(op));
  OpBuilder builder(op);
  for (auto [index, dims] : llvm::enumerate(rule.operands)) {
    ShardingAttr wanted = getSharding(mesh, rule, axes, dims, false);
    if (!kept.empty())
      wanted = wanted.withPartial(kept);
    op->setOperand(index, reshard(builder, op->getOperand(index), wanted));
  }
  for (auto [result, dims] : llvm::zip_equal(op->getResults(), rule.results)) {
    ShardingAttr sharding = getSharding(mesh, rule, axes, dims, true);
    if (!kept.empty())
      sharding = sharding.withPartial(kept);
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
  FactorAxes getAxes(ShardableOpInterface op) {
    FactorRule rule = op.getFactorRule();
    FactorAxes result;
    llvm::DenseSet<Attribute> used;
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

/// 1. Joins the dimensions of the new ops, and collects what they read from
///    outside.
/// 2. Gives classes the axes of the values from outside, then of the seeds.
/// 3. Decides the axes of all new ops, and only then writes types and reshards.
void plait::shardNewOps(ArrayRef<Operation *> ops,
                        ArrayRef<std::pair<Value, ShardingAttr>> seeds,
                        FlatSymbolRefAttr mesh) {
  // 1.
  Seeder seeder;
  llvm::SetVector<Value> outside;
  for (Operation *op : ops)
    if (auto shardable = dyn_cast<ShardableOpInterface>(op)) {
      seeder.classes.add(shardable);
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
  SmallVector<std::pair<ShardableOpInterface, FactorAxes>> plan;
  for (Operation *op : ops)
    if (auto shardable = dyn_cast<ShardableOpInterface>(op))
      plan.push_back({shardable, seeder.getAxes(shardable)});
  for (auto &[op, axes] : plan)
    applyFactorAxes(op, mesh, axes);
}
