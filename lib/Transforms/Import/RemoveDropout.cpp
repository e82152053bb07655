//===- RemoveDropout.cpp - Leave out the dropout of a model ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops say themselves how to do without. The keys that they draw from go with
// their last user, so that the plan has no such input.
//
//===----------------------------------------------------------------------===//

#include "FindInModel.h"

#include "plait/Dialect/NN/IR/Inputs.h"
#include "plait/Transforms/Passes.h"

namespace plait {
#define GEN_PASS_DEF_REMOVEDROPOUTPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
struct RemoveDropoutPass
    : plait::impl::RemoveDropoutPassBase<RemoveDropoutPass> {
  void runOnOperation() override {
    auto loss =
        findModel(getOperation(), "from which dropout is not removed any more");
    if (failed(loss))
      return signalPassFailure();
    loss->walk([](DropoutOpInterface op) { op.removeDropout(); });
    // Other uses than dropout's keep it.
    BlockArgument keys = nn::findInput(*loss, nn::InputKind::Keys);
    if (keys && keys.use_empty() &&
        failed(loss->eraseArgument(keys.getArgNumber())))
      signalPassFailure();
  }
};
} // namespace
