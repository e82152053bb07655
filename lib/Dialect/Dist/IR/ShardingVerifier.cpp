//===- ShardingVerifier.cpp - Shardings in types against factor rules -----===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Illegal shardings do not verify. For an op with sharded types:
//  (S1) all of its tensors carry a sharding over axes of the mesh, with one
//       entry per dimension.
//  (S2) no operand is partial: combining is dist.reshard's work. Operands of
//       a linear op may be, all over the same axes, and so is its result. One
//       without operands makes zeros: of any sum, a part. A sum over dimensions
//       takes a partial sum. What is owned elementwise ops take, all over the
//       same axes; ops by whose rows it is owned take it over the axes that
//       split these.
//  (S3) dimensions that run along one factor are split over the same axes.
//  (S4) a whole factor is not split, nor is a dimension without a factor.
//  (S5) no axis splits two factors.
//  (S6) a result is partial over exactly the axes that split the reduced
//       factors along which it does not run, with the reduction of those. It
//       is owned where an elementwise op takes what is, and may be where
//       nothing but rows that belong to one rank each is split.
//
// Part of the verification of every ShardableOpInterface, so that no pass can
// leave a sharding that its factor rule does not allow. Written against the
// rule and the types alone, not by calling what assigns shardings: the two have
// to agree. Types without shardings, before sharding and after partitioning,
// pass.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Dist/IR/Dist.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace plait;
using namespace plait::dist;

/// An attribute does not know its module: who has one in a type checks it.
LogicalResult dist::verifyAxes(Operation *op, ShardingAttr sharding) {
  MeshOp mesh = MeshOp::find(op);
  if (!mesh || mesh.getSymName() != sharding.getMesh().getValue())
    return op->emitOpError("has a sharding on ")
           << sharding.getMesh() << ", which is not the module's mesh";
  auto verify = [&](StringAttr axis) -> LogicalResult {
    if (mesh.hasAxis(axis.getValue()))
      return success();
    InFlightDiagnostic diag = op->emitOpError("has a sharding over axis ")
                              << axis << ", which the mesh does not have";
    diag.attachNote(mesh.getLoc()) << "the mesh";
    return diag;
  };
  for (ArrayAttr dim : sharding.getDims())
    for (StringAttr axis : dist::getAxes(dim))
      if (failed(verify(axis)))
        return failure();
  for (StringAttr axis : sharding.getPartial())
    if (failed(verify(axis)))
      return failure();
  return success();
}

namespace {
struct Checker {
  Operation *op;
  FactorRule rule;
  // What tensors that have been checked say of each factor; null: nothing yet.
  SmallVector<ArrayAttr> axesOfFactor;
  // The axes that operands are partial over, where the op may take such.
  ArrayRef<StringAttr> partialOperands = {};
  bool takesOwned = false; // elementwise, and they are owned

  LogicalResult checkPresence();
  LogicalResult checkOperandPartial(Value operand, unsigned index);
  LogicalResult checkDims(Value value, const FactorRule::DimFactors &factors,
                          const char *kind, int index);
  LogicalResult checkAxes();
  LogicalResult checkOwned();
  ArrayAttr getOwnerAxes() const;
  LogicalResult checkPartial(Value result, int index);
};
} // namespace

/// (S1)
LogicalResult Checker::checkPresence() {
  auto check = [&](Type type) -> LogicalResult {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor)
      return success();
    ShardingAttr sharding = ShardingAttr::of(tensor);
    if (!sharding)
      return op->emitOpError("mixes sharded and plain types: ") << type;
    if (static_cast<int64_t>(sharding.getDims().size()) != tensor.getRank())
      return op->emitOpError("has a sharding of ")
             << sharding.getDims().size() << " dimensions on a tensor of rank "
             << tensor.getRank();
    return verifyAxes(op, sharding);
  };
  for (Type type : op->getOperandTypes())
    if (failed(check(type)))
      return failure();
  for (Type type : op->getResultTypes())
    if (failed(check(type)))
      return failure();
  return success();
}

/// (S3) and (S4) for one tensor. The first tensor that runs along a factor says
/// what splits it, all others have to agree.
LogicalResult Checker::checkDims(Value value,
                                 const FactorRule::DimFactors &factors,
                                 const char *kind, int index) {
  ShardingAttr sharding = ShardingAttr::of(value);
  if (!sharding)
    return success();
  for (auto [dim, axes] : llvm::enumerate(sharding.getDims())) {
    int factor = factors[dim];
    // (S4)
    bool whole = factor == FactorRule::kNone ||
                 rule.factors[factor].kind == FactorKind::Whole;
    if (whole && !axes.empty())
      return op->emitOpError("splits dimension ")
             << dim << " of " << kind << " " << index << " over " << axes
             << ", which must stay whole";
    if (whole)
      continue;
    // (S3)
    ArrayAttr &expected = axesOfFactor[factor];
    if (!expected)
      expected = axes;
    if (expected != axes)
      return op->emitOpError("splits factor ")
             << rule.factors[factor].name << " over " << expected << ", but "
             << kind << " " << index << " over " << axes;
  }
  return success();
}

/// (S5)
LogicalResult Checker::checkAxes() {
  llvm::SetVector<Attribute> seen;
  for (ArrayAttr axes : axesOfFactor)
    if (axes)
      for (Attribute axis : dist::getAxes(axes))
        if (!seen.insert(axis))
          return op->emitOpError("splits two factors over ") << axis;
  return success();
}

/// Returns what splits the factor of which each row has one element; null:
/// there is no such factor.
ArrayAttr Checker::getOwnerAxes() const {
  for (auto [factor, axes] : llvm::zip_equal(rule.factors, axesOfFactor))
    if (factor.ownsRows)
      return axes;
  return {};
}

/// (S2), but for what belongs to one rank by row, which is checked once all
/// factors are known.
LogicalResult Checker::checkOperandPartial(Value operand, unsigned index) {
  ShardingAttr sharding = ShardingAttr::of(operand);
  ArrayRef<StringAttr> partial =
      sharding ? sharding.getPartial() : ArrayRef<StringAttr>();
  bool isOwned = sharding && sharding.isOwned();
  bool hasOwners = llvm::any_of(
      rule.factors, [](const Factor &factor) { return factor.ownsRows; });
  if (isOwned && hasOwners)
    return success();
  bool linear = cast<ShardableOpInterface>(op).isLinear();
  bool sums = getFacts(op).adds && sharding &&
              sharding.getReduction() != Reduction::Max;
  bool mayBe = linear || sums || isOwned;
  if (index == 0) {
    takesOwned = isOwned && rule.isElementwise();
    mayBe = linear || sums || takesOwned;
    if (mayBe)
      partialOperands = partial;
  }
  // What is owned is a sum, too, but not the other way round.
  if (mayBe ? partial == partialOperands && (isOwned || !takesOwned)
            : partial.empty())
    return success();
  return op->emitOpError("uses operand ")
         << index << " as if it were whole, but it is " << operand.getType();
}

/// (S2)
LogicalResult Checker::checkOwned() {
  ArrayAttr owners = getOwnerAxes();
  if (!owners)
    return success();
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    ShardingAttr sharding = ShardingAttr::of(operand);
    if (!sharding || !sharding.isOwned() ||
        llvm::equal(sharding.getPartial(), dist::getAxes(owners)))
      continue;
    return op->emitOpError("uses operand ")
           << index << ", which is " << operand.getType() << ", for rows over "
           << owners;
  }
  return success();
}

/// (S6)
LogicalResult Checker::checkPartial(Value result, int index) {
  ShardingAttr sharding = ShardingAttr::of(result);
  bool isZero =
      op->getNumOperands() == 0 && cast<ShardableOpInterface>(op).isLinear();
  if (!sharding || isZero)
    return success();
  llvm::SetVector<Attribute> expected(partialOperands.begin(),
                                      partialOperands.end());
  auto reduction = takesOwned ? Reduction::Owned : Reduction::Sum;
  bool mayBeOwned = expected.empty();
  for (auto [factor, axes] : llvm::enumerate(axesOfFactor)) {
    if (!rule.isReducedIn(factor, rule.results[index]) || !axes || axes.empty())
      continue;
    for (Attribute axis : dist::getAxes(axes))
      expected.insert(axis);
    mayBeOwned &= rule.factors[factor].ownsRows;
    if (rule.factors[factor].kind == FactorKind::Max)
      reduction = Reduction::Max;
  }
  // Compared as sets: in which order sums over several axes are made is left to
  // whoever makes them.
  llvm::SetVector<Attribute> actual(sharding.getPartial().begin(),
                                    sharding.getPartial().end());
  bool same = expected.size() == actual.size() &&
              llvm::all_of(expected, [&](Attribute axis) {
                return actual.contains(axis);
              });
  if (mayBeOwned && sharding.isOwned())
    reduction = Reduction::Owned;
  if (!same || (!actual.empty() && sharding.getReduction() != reduction))
    return op->emitOpError("gives result ")
           << index << " as " << result.getType()
           << ", but the split makes it partial over "
           << ArrayAttr::get(op->getContext(), expected.getArrayRef());
  return success();
}

/// 1. (S1), without which there is nothing to compare.
/// 2. Operands, then results, which fills in what splits each factor.
/// 3. (S5), and what results are partial over, for which all factors have to be
///    known.
LogicalResult plait::detail::verifyShardings(Operation *op) {
  auto isSharded = [](Type type) { return bool(ShardingAttr::of(type)); };
  if (llvm::none_of(op->getOperandTypes(), isSharded) &&
      llvm::none_of(op->getResultTypes(), isSharded))
    return success();
  Checker checker{op, cast<ShardableOpInterface>(op).getFactorRule(), {}, {}};
  checker.axesOfFactor.resize(checker.rule.factors.size());
  // 1.
  if (failed(checker.checkPresence()))
    return failure();
  // 2.
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    if (failed(checker.checkOperandPartial(operand, index)) ||
        failed(checker.checkDims(operand, checker.rule.operands[index],
                                 "operand", index)))
      return failure();
  }
  for (auto [index, result] : llvm::enumerate(op->getResults()))
    if (failed(checker.checkDims(result, checker.rule.results[index], "result",
                                 index)))
      return failure();
  // 3.
  if (failed(checker.checkAxes()) || failed(checker.checkOwned()))
    return failure();
  for (auto [index, result] : llvm::enumerate(op->getResults()))
    if (failed(checker.checkPartial(result, index)))
      return failure();
  return success();
}
