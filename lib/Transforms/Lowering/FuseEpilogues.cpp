//===- FuseEpilogues.cpp - Biases and GELU in matmuls ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A library that multiplies can add a bias and take GELU, or multiply by its
// slope, while a number of the result is still in a register. Three rewrites,
// each of what the ones before it leave:
//
//   add(matmul, broadcast(bias))  ->  fused_matmul bias
//   gelu(matmul or that)          ->  fused_matmul [bias] gelu
//   gelu_grad(matmul, x)          ->  fused_matmul gelu_grad x
//
// What a matmul leaves in memory must be what the program asks for: the sum of
// a matmul that others read too stays, a sum that GELU is taken of becomes the
// second result. Partial sums need no rule: between them and a bias there is a
// collective.
//
// Matching is local and needs no cost: an epilogue saves reading and writing
// the result once, whatever its size. The pass runs while `nn.gelu` and its
// gradient are still named.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {
#define GEN_PASS_DEF_FUSEEPILOGUESPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

/// GELU's input lies like the result, and cuBLASLt wants its rows to be
/// multiples of so many elements.
static constexpr int64_t kRowMultiple = 8;

/// Counts the columns of a plain matmul.
static int64_t countColumns(ContractionOpInterface op) {
  int64_t columns = 1;
  for (char letter : nn::getPlainMatmul(op)->columns)
    columns *= op.getExtent(letter);
  return columns;
}

static bool hasAlignedRows(ContractionOpInterface op) {
  return countColumns(op) % kRowMultiple == 0;
}

/// The operands of an nn.fused_matmul that is to be.
struct Epilogue {
  Value bias = {};
  bool gelu = false;
  Value geluInput = {};
  bool keepsInput = false; // has a second result
};

/// Creates at the builder's place what computes `matmul` with an epilogue.
static nn::FusedMatmulOp create(OpBuilder &builder,
                                ContractionOpInterface matmul,
                                const Epilogue &epilogue) {
  Type type = matmul->getResult(0).getType();
  auto fused = nn::FusedMatmulOp::create(
      builder, matmul.getLoc(), type, epilogue.keepsInput ? type : Type(),
      matmul->getOperand(0), matmul->getOperand(1), matmul.getSpec(),
      epilogue.bias, epilogue.gelu, epilogue.geluInput, /*addend=*/Value());
  fused->setDiscardableAttrs(matmul->getDiscardableAttrDictionary());
  return fused;
}

/// The bias where `add` adds one to a matmul that nobody else reads.
static void fuseBias(nn::AddOp add) {
  // Addition commutes: the bias may stand on either side.
  for (auto [sum, other] : {std::pair(add.getLhs(), add.getRhs()),
                            std::pair(add.getRhs(), add.getLhs())}) {
    auto matmul = sum.getDefiningOp<nn::MatmulOp>();
    auto spread = other.getDefiningOp<nn::BroadcastOp>();
    if (!matmul || !spread || !matmul->hasOneUse() || !nn::isFusable(matmul))
      continue;
    // One number for each column, in the last dimensions.
    Value bias = spread.getInput();
    auto shape = cast<RankedTensorType>(bias.getType()).getShape();
    int64_t rank = add.getType().getRank();
    int64_t first = spread.getDims().empty() ? rank : spread.getDims().front();
    if (first + int64_t(shape.size()) != rank ||
        ShapedType::getNumElements(shape) != countColumns(matmul))
      continue;
    // Where the addition is and not the matmul: the bias may be made in
    // between.
    OpBuilder builder(add);
    add.replaceAllUsesWith(create(builder, matmul, {.bias = bias}).getResult());
    add.erase();
    matmul.erase();
    return;
  }
}

/// GELU of a matmul, with its bias or without.
static void fuseGelu(nn::GeluOp gelu) {
  Value input = gelu.getInput();
  auto matmul = input.getDefiningOp<ContractionOpInterface>();
  if (!matmul || !gelu.getApproximate() || !nn::isFusable(matmul) ||
      !hasAlignedRows(matmul))
    return;
  Epilogue epilogue = {.gelu = true, .keepsInput = !input.hasOneUse()};
  // By name: what this pass has made of it before decides what may be added.
  if (auto fused = dyn_cast<nn::FusedMatmulOp>(matmul.getOperation())) {
    if (fused.getGelu() || fused.getGeluInput() || fused.getAddend())
      return;
    epilogue.bias = fused.getBias();
  }
  // Where the matmul is, all of whose operands are there, so that other users
  // of the sum come behind.
  OpBuilder builder(matmul);
  nn::FusedMatmulOp fused = create(builder, matmul, epilogue);
  gelu.replaceAllUsesWith(fused.getResult());
  gelu.erase();
  if (epilogue.keepsInput)
    input.replaceAllUsesWith(fused.getPreactivation());
  matmul->erase();
}

/// The slope of GELU on a matmul that nobody else reads.
static void fuseGeluGradient(nn::GeluGradOp gradient) {
  auto matmul = gradient.getGradient().getDefiningOp<nn::MatmulOp>();
  if (!matmul || !gradient.getApproximate() || !matmul->hasOneUse() ||
      !nn::isFusable(matmul) || !hasAlignedRows(matmul))
    return;
  OpBuilder builder(gradient);
  gradient.replaceAllUsesWith(
      create(builder, matmul, {.geluInput = gradient.getInput()}).getResult());
  gradient.erase();
  matmul.erase();
}

/// Calls `rewrite`, which may erase its op, for all ops of a kind.
template <typename OpTy>
static void rewriteAll(func::FuncOp function, void (*rewrite)(OpTy)) {
  for (OpTy op :
       llvm::make_early_inc_range(function.getBody().front().getOps<OpTy>()))
    rewrite(op);
}

namespace {
struct FuseEpiloguesPass
    : plait::impl::FuseEpiloguesPassBase<FuseEpiloguesPass> {
  using FuseEpiloguesPassBase::FuseEpiloguesPassBase;

  void runOnOperation() override {
    EpilogueKind kind = getConfiguration(getOperation()).epilogues;
    if (kind == EpilogueKind::None)
      return;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      // In this order: GELU takes a matmul with the bias that it has got by
      // then.
      rewriteAll(function, fuseBias);
      if (kind == EpilogueKind::Bias)
        continue;
      rewriteAll(function, fuseGelu);
      rewriteAll(function, fuseGeluGradient);
    }
  }
};
} // namespace
