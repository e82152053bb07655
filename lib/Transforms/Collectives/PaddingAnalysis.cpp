//===- PaddingAnalysis.cpp - Analysis of padding to mask ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A fixed point over one function. Each round derives from the arguments on
// what every value holds in the padding of each of its dimensions, and asks for
// masks where that is not good enough. A mask of a value is for all of its
// users, so that it can change what was derived before it was asked for: rounds
// are repeated until none is added.
//
// Ranges are known per value and dimension, not per element: an element that is
// padding along two dimensions is padding of each.
//
//===----------------------------------------------------------------------===//

#include "PaddingAnalysis.h"

#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;
using namespace plait;
using dist::ShardingAttr;

static constexpr double kLowest = -std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

SmallVector<Padding> plait::getPadding(dist::MeshOp mesh, Type type) {
  SmallVector<Padding> result;
  ShardingAttr sharding = ShardingAttr::of(type);
  if (!sharding)
    return result;
  for (auto [dim, axes] : llvm::enumerate(sharding.getDims())) {
    int64_t extent = cast<RankedTensorType>(type).getDimSize(dim);
    int64_t blocks = mesh.getBlocks(axes);
    if (extent % blocks)
      result.push_back({static_cast<int64_t>(dim),
                        mesh.getBegin(axes, llvm::divideCeil(extent, blocks)),
                        extent});
  }
  return result;
}

static bool hasFloats(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value));
}

/// The dimensions of `values` that run along `factor`, first to last.
static SmallVector<std::pair<unsigned, int64_t>>
findDims(ArrayRef<FactorRule::DimFactors> tensors, int factor) {
  SmallVector<std::pair<unsigned, int64_t>> found;
  for (auto [index, dims] : llvm::enumerate(tensors))
    for (auto [dim, along] : llvm::enumerate(dims))
      if (along == factor)
        found.push_back({index, dim});
  return found;
}

/// Whether values of `type` have padding. A model has many values of few types.
bool PaddingAnalysis::isUneven(Type type) {
  auto [known, isNew] = uneven.try_emplace(type, false);
  if (isNew)
    known->second = !getPadding(mesh, type).empty();
  return known->second;
}

/// Looks at all tensors of the op: where one dimension along the factor is
/// split unevenly, an op may have to deal with padding even if another tensor
/// is whole.
bool PaddingAnalysis::isPadded(const FactorRule &rule, Operation *op,
                               int factor) {
  auto isPaddedIn = [&](ValueRange values, const auto &tensors) {
    return llvm::any_of(findDims(tensors, factor), [&](auto place) {
      auto [index, dim] = place;
      ShardingAttr sharding = ShardingAttr::of(values[index]);
      return sharding && rule.factors[factor].size %
                             mesh.getBlocks(sharding.getDims()[dim]);
    });
  };
  return isPaddedIn(op->getOperands(), rule.operands) ||
         isPaddedIn(op->getResults(), rule.results);
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

SmallVector<Padding> PaddingAnalysis::getCleared(Value value) const {
  SmallVector<Padding> result;
  if (cleared.empty())
    return result;
  for (const Padding &padding : getPadding(mesh, value.getType()))
    // What was cleared for one user may have become zero by what others had
    // cleared before it.
    if (cleared.contains({value, padding.dim}) &&
        !ranges.at({value, padding.dim}).is(0))
      result.push_back(padding);
  return result;
}

SmallVector<Padding> PaddingAnalysis::getLowered(OpOperand &use) const {
  SmallVector<Padding> result;
  auto dims = lowered.find(&use);
  if (dims != lowered.end())
    for (const Padding &padding : getPadding(mesh, use.get().getType()))
      if (llvm::is_contained(dims->second, padding.dim))
        result.push_back(padding);
  return result;
}

void PaddingAnalysis::define(Value value, int64_t dim, NumberRange range) {
  ranges[{value, dim}] = range;
}

/// Integers have no arithmetic that padding could spoil, and zero already is
/// zero.
void PaddingAnalysis::clear(Value value, int64_t dim) {
  if (hasFloats(value) && !ranges.at({value, dim}).is(0))
    changed |= cleared.insert({value, dim}).second;
}

/// Collects what derivePadding wants to know.
SmallVector<NumberRange> PaddingAnalysis::getRangesAlong(Operation *op,
                                                         const FactorRule &rule,
                                                         int factor) {
  // In the order of precedence: a mask of this use, a mask of the value, what
  // the value holds. An operand without the factor takes part in the arithmetic
  // with its own, unpadded elements.
  SmallVector<NumberRange> result;
  for (OpOperand &operand : op->getOpOperands()) {
    Value value = operand.get();
    const auto &dims = rule.operands[operand.getOperandNumber()];
    int64_t dim = llvm::find(dims, factor) - dims.begin();
    if (dim == static_cast<int64_t>(dims.size()))
      result.push_back(getUnpadded(value.getType()));
    else if (llvm::is_contained(lowered.lookup(&operand), dim))
      result.push_back(NumberRange::exactly(kLowest));
    else if (cleared.contains({value, dim}))
      result.push_back(NumberRange::exactly(0));
    else
      result.push_back(ranges.at({value, dim}));
  }
  return result;
}

/// Sees to it that padding along a factor which `op` reduces does not count,
/// with as few masks as it takes: zero times a finite number is zero.
LogicalResult PaddingAnalysis::maskReduced(ShardableOpInterface op,
                                           const FactorRule &rule, int factor) {
  bool isSum = rule.factors[factor].kind == FactorKind::Sum;
  double neutral = isSum ? 0 : kLowest;
  auto isNeutral = [&] {
    return llvm::all_of(
        derivePadding(op, factor, getRangesAlong(op, rule, factor)),
        [&](const NumberRange &range) { return range.is(neutral); });
  };
  // Those of which least is known come first.
  for (bool finite : {false, true})
    for (auto [index, dim] : findDims(rule.operands, factor)) {
      if (isNeutral())
        return success();
      OpOperand &operand = op->getOpOperand(index);
      if (!hasFloats(operand.get()) ||
          ranges.at({operand.get(), dim}).isFinite() != finite)
        continue;
      if (isSum)
        clear(operand.get(), dim);
      else // for this use alone: others would rather have zeros
        lowered[&operand].push_back(dim);
    }
  if (isNeutral())
    return success();
  return op->emitOpError("cannot partition ")
         << op->getName() << ": it reduces the padding of factor "
         << rule.factors[factor].name << ", of " << rule.factors[factor].size
         << " elements, and no mask of its operands makes that neutral";
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// Finds of each padded factor first the masks that a reduction needs, then
/// what the results hold: getRangesAlong() knows of a mask as soon as it is
/// asked for. A factor has the extent of its dimensions, so that where all
/// blocks are even no factor is padded.
LogicalResult PaddingAnalysis::visit(ShardableOpInterface op) {
  auto isPaddedType = [&](Type type) { return isUneven(type); };
  if (llvm::none_of(op->getOperandTypes(), isPaddedType) &&
      llvm::none_of(op->getResultTypes(), isPaddedType))
    return success();
  FactorRule rule = op.getFactorRule();
  for (auto [index, factor] : llvm::enumerate(rule.factors)) {
    if (!isPadded(rule, op, index))
      continue;
    bool reduced =
        factor.kind == FactorKind::Sum || factor.kind == FactorKind::Max;
    if (reduced && failed(maskReduced(op, rule, index)))
      return failure();
    if (findDims(rule.results, index).empty())
      continue;
    SmallVector<NumberRange> results =
        derivePadding(op, index, getRangesAlong(op, rule, index));
    for (auto [result, dim] : findDims(rule.results, index))
      define(op->getResult(result), dim, results[result]);
  }
  return success();
}

/// An op that only moves numbers takes and gives zeros.
void PaddingAnalysis::visitMove(Operation *op) {
  for (Value operand : op->getOperands())
    for (const Padding &padding : getPadding(mesh, operand.getType()))
      clear(operand, padding.dim);
  for (Value result : op->getResults())
    for (const Padding &padding : getPadding(mesh, result.getType()))
      define(result, padding.dim,
             hasFloats(result) ? NumberRange::exactly(0) : NumberRange::any());
}

LogicalResult PaddingAnalysis::runOnce() {
  // Asked for anew each round, unlike `cleared`: a value that is cleared may
  // need no mask of its use.
  lowered.clear();
  Block &body = function.getBody().front();
  for (BlockArgument argument : body.getArguments())
    // Whoever passes the value in has cleared it: a return and a store count as
    // moves.
    for (const Padding &padding : getPadding(mesh, argument.getType()))
      define(argument, padding.dim,
             hasFloats(argument) ? NumberRange::exactly(0)
                                 : NumberRange::any());
  for (Operation &op : body)
    if (auto shardable = dyn_cast<ShardableOpInterface>(op)) {
      if (failed(visit(shardable)))
        return failure();
    } else {
      visitMove(&op);
    }
  return success();
}

/// Cleared padding is so for all users, those before the one that asked for it
/// too: what they give is derived again.
LogicalResult PaddingAnalysis::run() {
  // Ends: what is cleared stays so, and there are only so many dimensions of
  // values.
  do {
    changed = false;
    if (failed(runOnce()))
      return failure();
  } while (changed);
  return success();
}
