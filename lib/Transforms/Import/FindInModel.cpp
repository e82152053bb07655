//===- FindInModel.cpp - What passes change in a model --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FindInModel.h"

#include "llvm/Support/GlobPattern.h"

using namespace mlir;
using namespace plait;

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

/// Gives the op to what the read belongs to: its layer.
void plait::stopGradient(SlotOpInterface read) {
  Operation *op = read;
  OpBuilder builder(op->getContext());
  builder.setInsertionPointAfter(op);
  Value tensor = read.getTensor();
  auto stop = nn::StopGradientOp::create(builder, op->getLoc(),
                                         tensor.getType(), tensor);
  stop->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  tensor.replaceAllUsesExcept(stop.getResult(), stop);
}
