//===- WeighTargets.cpp - Multiply losses of targets by weights -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The loss is divided by a sum of weights then, over all ranks and
// microbatches: a mean of each microbatch would count targets more where there
// are few.
//
//===----------------------------------------------------------------------===//

#include "FindInModel.h"

#include "plait/Dialect/NN/IR/CrossEntropy.h"
#include "plait/Dialect/NN/IR/Inputs.h"
#include "plait/Plan/FloatInputs.h"
#include "plait/Transforms/Passes.h"

namespace plait {
#define GEN_PASS_DEF_WEIGHTARGETSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

static constexpr StringRef kWeights = plan::kTargetWeights;

/// Checks that the loss is divided by what can become a sum of weights.
static LogicalResult checkCount(func::FuncOp loss) {
  Operation *end = loss.front().getTerminator();
  Value count = end->getNumOperands() < 2 ? Value() : end->getOperand(1);
  auto entropy = count ? count.getDefiningOp<nn::SoftmaxCrossEntropyOp>()
                       : nn::SoftmaxCrossEntropyOp();
  if (entropy && entropy.getCount() == count)
    return success();
  return loss.emitError("@loss does not return as its number of targets what "
                        "an nn.softmax_cross_entropy counts, in the place of "
                        "which `target-weights` would put a sum of weights");
}

/// Looks for what weights would have no meaning for: they are of each position
/// of the targets that `loss` takes.
static LogicalResult checkModel(func::FuncOp loss) {
  if (loss.getOps<nn::SoftmaxCrossEntropyOp>().empty())
    return loss.emitError("@loss has no nn.softmax_cross_entropy whose targets "
                          "`target-weights` would weigh");
  Type positions =
      loss.getNumArguments() > 1 ? loss.getArgument(1).getType() : Type();
  for (auto entropy : loss.getOps<nn::SoftmaxCrossEntropyOp>())
    if (entropy.getTargets().getType() != positions)
      return entropy.emitOpError("has targets of type ")
             << entropy.getTargets().getType()
             << ", of which `target-weights` has no weights, but of those "
                "of @loss";
  for (BlockArgument input : nn::getFloatInputs(loss))
    if (nn::getInputName(input) == kWeights)
      return loss.emitError("@loss has a float input \"")
             << kWeights << "\" already";
  return checkCount(loss);
}

static void weigh(nn::SoftmaxCrossEntropyOp entropy, Value weights) {
  OpBuilder builder(entropy);
  nn::NNBuilder nn(builder, entropy.getLoc());
  auto [losses, valid] = nn::buildCrossEntropies(nn, entropy);
  Value counted = nn.mul(valid, weights);
  Value loss = nn.sumAll(nn.mul(losses, counted));
  Value count = nn.sumAll(counted);
  entropy.replaceAllUsesWith(ValueRange{loss, count});
  entropy.erase();
}

namespace {
struct WeighTargetsPass : plait::impl::WeighTargetsPassBase<WeighTargetsPass> {
  void runOnOperation() override {
    auto loss =
        findModel(getOperation(), "in which targets are not weighed any more");
    if (failed(loss) || failed(checkModel(*loss)))
      return signalPassFailure();
    auto targets = cast<RankedTensorType>(loss->getArgument(1).getType());
    Value weights = nn::appendInput(
        *loss, nn::InputKind::Features,
        targets.clone(Float32Type::get(&getContext())), kWeights);
    for (auto entropy :
         llvm::make_early_inc_range(loss->getOps<nn::SoftmaxCrossEntropyOp>()))
      weigh(entropy, weights);
  }
};
} // namespace
