//===- FuseSums.cpp - What adds to a sum where it lies --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What several linears read, as those of query, key and value do, has the sum
// of as many matmuls for its gradient. A library adds to what is there while it
// stores, which a matmul that is bound by arithmetic hides; a kernel that reads
// the terms is bound by memory. One term lives at a time, and where a sum over
// ranks follows, there is no kernel at all.
//
//   add(a, matmul)  ->  fused_matmul add a
//
// What a tied table gets from the loss and from its rows is added to one
// gradient. A matmul adds to that while it stores, and a scatter touches only
// rows that a token names: so that neither makes a table of its own.
//
//   accumulate add(matmul, scatter)  ->  accumulate matmul, accumulate scatter
//
// This runs right before kernels are formed, when nothing merges ops any more:
// the matmul writes where `a` lies, which nobody else may read.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {
#define GEN_PASS_DEF_FUSESUMSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

/// Whether `value` may be made in the place of one of its terms: not where it
/// has to lie in a buffer that is not the function's own.
static bool liesAnywhere(Value value) {
  return llvm::none_of(value.getUsers(), [](Operation *user) {
    return isa<MemoryOpInterface>(user) || user->hasTrait<JoinsOperands>();
  });
}

/// Has the later of two matmuls that `add` adds up add to the earlier one.
static void fuseSum(Operation *add) {
  for (unsigned own : {0, 1}) {
    Value sum = add->getOperand(own), other = add->getOperand(1 - own);
    auto matmul = sum.getDefiningOp<ContractionOpInterface>();
    auto before = other.getDefiningOp<ContractionOpInterface>();
    if (!matmul || !matmul.contractsOnly() || !before ||
        !before->isBeforeInBlock(matmul) || !sum.hasOneUse() ||
        !other.hasOneUse() || !nn::isFusable(matmul))
      continue;
    OpBuilder builder(matmul);
    auto fused = nn::FusedMatmulOp::create(
        builder, matmul.getLoc(), sum.getType(), /*preactivation=*/Type(),
        matmul->getOperand(0), matmul->getOperand(1), matmul.getSpec(),
        /*bias=*/Value(), /*gelu=*/false, /*gelu_input=*/Value(),
        /*addend=*/other);
    fused->setDiscardableAttrs(matmul->getDiscardableAttrDictionary());
    add->getResult(0).replaceAllUsesWith(fused.getResult());
    add->erase();
    matmul->erase();
    return;
  }
}

/// Finds what `sum` adds up, in its order, and the ops that do, if all terms
/// can add to a gradient where it lies.
static bool findTerms(Value sum, SmallVectorImpl<Value> &terms,
                      SmallVectorImpl<Operation *> &adds) {
  Operation *op = sum.getDefiningOp();
  if (!op || !sum.hasOneUse())
    return false;
  if (op->hasTrait<AddsOperands>()) {
    adds.push_back(op);
    return llvm::all_of(op->getOperands(), [&](Value term) {
      return findTerms(term, terms, adds);
    });
  }
  terms.push_back(sum);
  auto contraction = dyn_cast<ContractionOpInterface>(op);
  return contraction ? contraction.contractsOnly() : getFacts(op).scatters;
}

/// Adds what a sum adds up to the gradient one by one, each before the next is
/// computed, which is written to the same place.
static void splitSum(SlotOpInterface accumulate) {
  Value sum = accumulate.getTensor();
  SmallVector<Value> terms;
  SmallVector<Operation *> adds;
  if (!findTerms(sum, terms, adds) || adds.empty())
    return;
  OpBuilder builder(accumulate.getOperation());
  for (Value term : terms) {
    builder.setInsertionPointAfterValue(term);
    IRMapping mapping;
    mapping.map(sum, term);
    builder.clone(*accumulate.getOperation(), mapping);
  }
  accumulate->erase();
  for (Operation *add : adds)
    add->erase();
}

namespace {
struct FuseSumsPass : plait::impl::FuseSumsPassBase<FuseSumsPass> {
  /// Gradients first: what is left of their sums lies nowhere else.
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      Block &block = function.getBody().front();
      for (auto accumulate : nn::findAccesses(function, nn::SlotAccess::Add))
        splitSum(accumulate);
      for (Operation &op : llvm::make_early_inc_range(block))
        if (op.hasTrait<AddsOperands>() && liesAnywhere(op.getResult(0)))
          fuseSum(&op);
    }
  }
};
} // namespace
