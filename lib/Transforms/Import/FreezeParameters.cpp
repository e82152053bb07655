//===- FreezeParameters.cpp - Keep parameters as they are loaded ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What has no gradient is frozen: it is read and saved, and has neither
// gradient nor optimizer state. So a stop_gradient behind each read says all.
//
//===----------------------------------------------------------------------===//

#include "FindInModel.h"

#include "plait/Transforms/Passes.h"

#include "llvm/ADT/StringSet.h"

namespace plait {
#define GEN_PASS_DEF_FREEZEPARAMETERSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
struct FreezeParametersPass
    : plait::impl::FreezeParametersPassBase<FreezeParametersPass> {
  using FreezeParametersPassBase::FreezeParametersPassBase;

  void runOnOperation() override {
    auto loss = findModel(getOperation(),
                          "in which parameters are not frozen any more");
    if (failed(loss))
      return signalPassFailure();
    llvm::StringSet<> frozen;
    for (const std::string &pattern : parameters) {
      auto found = findParameters(getOperation(), pattern, "`freeze`");
      if (failed(found))
        return signalPassFailure();
      for (nn::ParameterOp parameter : *found)
        frozen.insert(parameter.getSymName());
    }
    for (SlotOpInterface read : nn::findAccesses(*loss, nn::SlotAccess::Read))
      if (frozen.contains(read.getSymbol()))
        stopGradient(read);
  }
};
} // namespace
