//===- AssignMatrices.cpp - Which parameters are matrices -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A weight is a matrix by what is done with it: it is contracted with
// activations, over the same dimensions wherever it is read, and what comes out
// are not the logits. So embeddings, the head (tied or not), norms, biases and
// stacks of weights with a batch dimension are none. What a group updates as
// matrices has to be some; a training's optimizer leaves the rest to another.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Transforms/Passes.h"

namespace plait {
#define GEN_PASS_DEF_ASSIGNMATRICESPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

using Columns = SmallVector<int64_t>;

/// Whether `value` is what classes are chosen by, perhaps after a bias has been
/// added or each element has been changed by itself.
static bool isLogits(Value value) {
  SmallVector<Value> left{value};
  llvm::DenseSet<Value> seen;
  while (!left.empty()) {
    Value own = left.pop_back_val();
    if (!seen.insert(own).second)
      continue;
    for (Operation *user : own.getUsers()) {
      auto selection = dyn_cast<SelectionOpInterface>(user);
      if (selection && selection.getSelection().from == own &&
          selection.getSelection().isOfRow())
        return true;
      bool isElementwise =
          user->hasTrait<AddsOperands>() ||
          (user->getNumOperands() == 1 && user->getNumResults() == 1 &&
           user->getResult(0).getType() == own.getType());
      if (isElementwise)
        left.push_back(user->getResult(0));
    }
  }
  return false;
}

/// The dimensions of the weight that `use` sums over; none where the weight is
/// no matrix there.
static Columns findColumns(OpOperand &use) {
  auto spec = dyn_cast<ContractionOpInterface>(use.getOwner());
  if (!spec || !spec.contractsOnly() ||
      spec->getOperand(0) == spec->getOperand(1) ||
      isLogits(spec->getResult(0)))
    return {};
  bool isLeft = use.getOperandNumber() == 0;
  StringRef own = isLeft ? spec.getLhsLetters() : spec.getRhsLetters();
  StringRef other = isLeft ? spec.getRhsLetters() : spec.getLhsLetters();
  Columns columns;
  for (auto [dim, letter] : llvm::enumerate(own)) {
    bool isSummed = !spec.getResultLetters().contains(letter);
    if (!isSummed && other.contains(letter))
      return {};
    if (isSummed)
      columns.push_back(dim);
  }
  // Side by side, and at one end: then both sides lie in memory as one.
  bool isOneRun =
      !columns.empty() && columns.size() < own.size() &&
      columns.back() - columns.front() + 1 == int64_t(columns.size()) &&
      (columns.front() == 0 || columns.back() + 1 == int64_t(own.size()));
  return isOneRun ? columns : Columns();
}

namespace {
struct AssignMatricesPass
    : plait::impl::AssignMatricesPassBase<AssignMatricesPass> {
  /// Fails where what ranks exchange is defined for another optimizer than that
  /// of a group, as it may be for another than the training's.
  LogicalResult checkExchanges(nn::ParameterOp parameter) {
    TrainingConfiguration configuration = getConfiguration(getOperation());
    if (!parameter.getOptimizer() || !checkExecutable(configuration).ok())
      return success();
    configuration.optimizer = *parameter.getOptimizer();
    Status status = checkExecutable(configuration);
    return status.ok() ? success()
                       : parameter.emitError("the optimizer of \"")
                             << parameter.getSymName()
                             << "\": " << status.message();
  }

  /// Finds the columns of what functions read as a matrix each time; none of
  /// what they read otherwise. What is frozen is not there: nothing updates it.
  llvm::DenseMap<Attribute, Columns> findMatrices() {
    llvm::DenseMap<Attribute, Columns> found;
    for (auto read : nn::findAccesses(getOperation(), nn::SlotAccess::Read))
      for (OpOperand &use : read.getTensor().getUses()) {
        if (use.getOwner()->hasTrait<StopsGradient>())
          continue;
        Columns columns = findColumns(use);
        auto [known, isNew] =
            found.try_emplace(read.getSymbolAttr().getAttr(), columns);
        if (!isNew && known->second != columns)
          known->second.clear();
      }
    return found;
  }

  LogicalResult assign(nn::ParameterOp parameter, const Columns &columns) {
    if (!columns.empty())
      parameter.setMatrix(columns);
    else if (parameter.getOptimizer())
      return parameter.emitError("optimizer ")
             << *parameter.getOptimizer() << " updates matrices, and \""
             << parameter.getSymName() << "\" is none";
    return success();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    Result<const Optimizer *> main =
        findOptimizer(getConfiguration(module).optimizer);
    if (!main.ok())
      return;
    llvm::DenseMap<Attribute, Columns> found = findMatrices();
    for (auto parameter : module.getOps<nn::ParameterOp>()) {
      if (failed(checkExchanges(parameter)))
        return signalPassFailure();
      const Optimizer &own = parameter.getOptimizer()
                                 ? nn::findOptimizer(parameter, **main)
                                 : **main;
      auto columns = found.find(parameter.getSymNameAttr());
      if (own.updatesMatrices() && columns != found.end() &&
          failed(assign(parameter, columns->second)))
        return signalPassFailure();
    }
  }
};
} // namespace
