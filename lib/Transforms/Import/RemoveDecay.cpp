//===- RemoveDecay.cpp - Take weight decay off parameters -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The decay that a model asks for is a flag of its parameters, which the update
// reads. Each pattern adds to those before.
//
//===----------------------------------------------------------------------===//

#include "FindInModel.h"

#include "plait/Transforms/Passes.h"

namespace plait {
#define GEN_PASS_DEF_REMOVEDECAYPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
struct RemoveDecayPass : plait::impl::RemoveDecayPassBase<RemoveDecayPass> {
  using RemoveDecayPassBase::RemoveDecayPassBase;

  void runOnOperation() override {
    if (failed(findModel(getOperation(),
                         "in which weight decay is not taken off any more")))
      return signalPassFailure();
    for (const std::string &pattern : parameters) {
      auto found = findParameters(getOperation(), pattern, "`no-decay`");
      if (failed(found))
        return signalPassFailure();
      for (nn::ParameterOp parameter : *found)
        parameter.setDecay(false);
    }
  }
};
} // namespace
