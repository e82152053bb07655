//===- FuseSums.cpp - Matmuls that add to matmuls -------------------------===//
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

namespace {
struct FuseSumsPass : plait::impl::FuseSumsPassBase<FuseSumsPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (Operation &op :
           llvm::make_early_inc_range(function.getBody().front()))
        if (op.hasTrait<AddsOperands>() && liesAnywhere(op.getResult(0)))
          fuseSum(&op);
  }
};
} // namespace
