//===- ModelEdits.cpp - What is changed in a model ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The passes that are asked for, and what they share.
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/ModelEdits.h"

#include "plait/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/Support/GlobPattern.h"

using namespace mlir;
using namespace plait;

void plait::buildModelEdits(OpPassManager &manager, const ModelEdits &edits) {
  if (edits.removesDropout)
    manager.addPass(createRemoveDropoutPass());
  if (edits.insertsDocumentMask)
    manager.addPass(createInsertDocumentMaskPass());
  if (edits.weighsTargets)
    manager.addPass(createWeighTargetsPass());
  if (!edits.withoutDecay.empty())
    manager.addPass(createRemoveDecayPass({SmallVector<std::string>(
        edits.withoutDecay.begin(), edits.withoutDecay.end())}));
  if (!edits.frozen.empty())
    manager.addPass(createFreezeParametersPass(
        {SmallVector<std::string>(edits.frozen.begin(), edits.frozen.end())}));
  if (!edits.rateFactors.empty())
    manager.addPass(createScaleLearningRatePass({SmallVector<std::string>(
        edits.rateFactors.begin(), edits.rateFactors.end())}));
  if (!edits.optimizers.empty())
    manager.addPass(createAssignOptimizersPass({SmallVector<std::string>(
        edits.optimizers.begin(), edits.optimizers.end())}));
  // Behind the rates: a balance takes the place of one.
  if (!edits.balance.empty())
    manager.addPass(createInsertBalancePass({SmallVector<std::string>(
        edits.balance.begin(), edits.balance.end())}));
}

FailureOr<func::FuncOp> plait::findModel(ModuleOp module, const Twine &what) {
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  if (loss && getPhase(module) == Phase::Import)
    return loss;
  return module.emitError("the input is IR after phase ")
         << stringifyPhase(getPhase(module)) << ", " << what;
}

/// Nothing that matches is an error: a name with a typing mistake would
/// otherwise have no effect and say nothing.
FailureOr<SmallVector<nn::ParameterOp>>
plait::findParameters(ModuleOp module, StringRef pattern, StringRef what) {
  llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(pattern);
  if (!glob)
    return module.emitError(what)
           << " \"" << pattern << "\": " << llvm::toString(glob.takeError());
  SmallVector<nn::ParameterOp> found;
  for (auto parameter : module.getOps<nn::ParameterOp>())
    if (glob->match(parameter.getSymName()))
      found.push_back(parameter);
  if (found.empty())
    return module.emitError("no parameter is called \"") << pattern << "\"";
  return found;
}
