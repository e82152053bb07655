//===- VerifyModel.cpp - Refuse a loss function that is none --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {
#define GEN_PASS_DEF_VERIFYMODELPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
struct VerifyModelPass : plait::impl::VerifyModelPassBase<VerifyModelPass> {
  void runOnOperation() override {
    auto loss = getOperation().lookupSymbol<func::FuncOp>(nn::kLossFunction);
    if (!loss || loss.isExternal() || loss.getNumResults() != 2) {
      getOperation().emitError("has no function @")
          << nn::kLossFunction << " of a loss and a number of targets";
      return signalPassFailure();
    }
    auto model = getOperation()->getAttrOfType<DictionaryAttr>(nn::kModelAttr);
    auto vocab = model ? model.getAs<IntegerAttr>("vocab") : IntegerAttr();
    if (failed(nn::verifyLoss(loss, vocab ? vocab.getInt() : 0)))
      signalPassFailure();
  }
};
} // namespace
