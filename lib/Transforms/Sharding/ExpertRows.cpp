//===- ExpertRows.cpp - Ops on rows of split experts ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From the ops that multiply rows with matrices of experts on: what follows
// takes their results as they are, if it makes zeros of the zeros that a rank
// has for rows of other ranks. A sum over dimensions ends it. What is only
// repeated for such ops, as the weights of rows are, is repeated there.
//
// No op is known by name: which factor rows belong by is said by the rule.
//
//===----------------------------------------------------------------------===//

#include "ExpertRows.h"

#include "plait/Interfaces/Padding.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace plait;

/// Finds the operand and dimension that `factor` runs along; results do not.
static std::pair<Value, int64_t>
findMatrices(ShardableOpInterface op, const FactorRule &rule, int factor) {
  for (auto [operand, dims] : llvm::zip_equal(op->getOperands(), rule.operands))
    for (auto [dim, own] : llvm::enumerate(dims))
      if (own == factor)
        return {operand, dim};
  return {};
}

/// Finds by what rows belong: integers, the only ones that such an op takes.
static Value findIds(Operation *op) {
  for (Value operand : op->getOperands())
    if (getElementTypeOrSelf(operand).isInteger())
      return operand;
  return {};
}

LogicalResult ExpertRows::addOwner(ShardableOpInterface op,
                                   const FactorRule &rule, int factor,
                                   int64_t ranks) {
  int64_t experts = rule.factors[factor].size;
  if (experts < ranks)
    return op.emitError() << axis.getValue() << "=" << ranks
                          << " is more than the " << experts << " experts of "
                          << op->getName();
  auto [value, dim] = findMatrices(op, rule, factor);
  if (!value)
    return success();
  ops.insert(op);
  matrices[value] = dim;
  owners[op->getResult(0)] = findIds(op);
  return success();
}

/// Whether zeros of other ranks' rows stay zeros, whatever else the op takes.
static bool keepsZeros(ShardableOpInterface op,
                       function_ref<bool(Value)> isOwned) {
  auto ranges = llvm::map_to_vector(op->getOperands(), [&](Value operand) {
    return isOwned(operand) ? NumberRange::exactly(0)
                            : getUnpadded(operand.getType());
  });
  // Along whichever factor: what lies in padding of an element is derived from
  // what does in that of the same one of the operands.
  return derivePadding(op, /*factor=*/0, ranges).front().is(0);
}

void ExpertRows::addUser(ShardableOpInterface op) {
  Value ids;
  for (Value operand : op->getOperands())
    if (Value own = owners.lookup(operand)) {
      if (ids && ids != own)
        return;
      ids = own;
    }
  if (!ids)
    return;
  if (getFacts(op).adds) {
    ops.insert(op);
    return;
  }
  if (!op.getFactorRule().isElementwise() ||
      !keepsZeros(op, [&](Value value) { return owners.count(value) > 0; }))
    return;
  ops.insert(op);
  owners[op->getResult(0)] = ids;
}

/// Adds what is repeated for ops on rows alone.
void ExpertRows::addSource(Operation *op) {
  if (getFacts(op).repeats && !op->use_empty() &&
      llvm::all_of(op->getUsers(),
                   [&](Operation *user) { return ops.contains(user); }))
    ops.insert(op);
}

/// 1. Forwards, from the matrices on.
/// 2. Backwards.
LogicalResult ExpertRows::find(func::FuncOp function, dist::MeshOp mesh) {
  for (const AxisFacts &facts : kAxes)
    if (facts.splitsExperts && mesh.getAxisSize(facts.axis) > 1)
      axis = StringAttr::get(function.getContext(), StringRef(facts.name));
  if (!axis)
    return success();
  int64_t ranks = mesh.getAxisSize(axis);
  Block &body = function.getBody().front();
  // 1.
  for (Operation &op : body) {
    auto shardable = dyn_cast<ShardableOpInterface>(op);
    if (!shardable)
      continue;
    FactorRule rule = shardable.getFactorRule();
    const Factor *owner = llvm::find_if(
        rule.factors, [](const Factor &factor) { return factor.ownsRows; });
    if (owner == rule.factors.end())
      addUser(shardable);
    else if (failed(addOwner(shardable, rule, owner - rule.factors.begin(),
                             ranks)))
      return failure();
  }
  if (ops.empty())
    return function.emitError()
           << axis.getValue() << "=" << ranks << " splits experts, and the "
           << "model has none; expected " << axis.getValue() << "=1";
  // 2.
  for (Operation &op : llvm::reverse(body))
    addSource(&op);
  return success();
}

bool ExpertRows::keeps(Value result) const {
  return contains(result.getDefiningOp()) &&
         llvm::any_of(result.getUsers(),
                      [&](Operation *user) { return contains(user); });
}

ArrayAttr ExpertRows::place(ArrayAttr axes, bool hasExperts) const {
  SmallVector<Attribute> own;
  if (hasExperts)
    own.push_back(axis);
  for (Attribute other : axes)
    if (other != axis)
      own.push_back(other);
  return ArrayAttr::get(axes.getContext(), own);
}

void ExpertRows::bring(ShardableOpInterface op, FlatSymbolRefAttr mesh,
                       const FactorAxes &axes) {
  FactorRule rule = op.getFactorRule();
  OpBuilder builder(op);
  for (auto [operand, dims] :
       llvm::zip_equal(op->getOpOperands(), rule.operands)) {
    Value value = operand.get();
    auto wanted = getSharding(mesh, rule, axes, dims, /*isResult=*/false);
    // What is partial is left to the op, which may take it as it is.
    if (dist::ShardingAttr::of(value).isPartial())
      continue;
    Value &known = brought[{value, wanted}];
    if (!known)
      known = reshard(builder, value, wanted);
    operand.set(known);
  }
}
