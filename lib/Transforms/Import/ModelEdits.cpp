//===- ModelEdits.cpp - What is changed in a model ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The order of passes does not depend on the one in which they are asked for.
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/ModelEdits.h"

#include "plait/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace plait;

void plait::buildModelEdits(OpPassManager &manager, const ModelEdits &edits) {
  if (!edits.dropout)
    manager.addPass(createRemoveDropoutPass());
  if (edits.documentMask)
    manager.addPass(createInsertDocumentMaskPass());
  if (edits.targetWeights)
    manager.addPass(createWeighTargetsPass());
  // Adapters are parameters: they come in front of what names these.
  if (edits.loraRank)
    manager.addPass(createAddAdaptersPass(
        {edits.loraRank, edits.loraAlpha,
         SmallVector<std::string>(edits.loraTargets.begin(),
                                  edits.loraTargets.end())}));
  if (!edits.noDecay.empty())
    manager.addPass(createRemoveDecayPass({SmallVector<std::string>(
        edits.noDecay.begin(), edits.noDecay.end())}));
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
