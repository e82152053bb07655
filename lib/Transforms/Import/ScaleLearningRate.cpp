//===- ScaleLearningRate.cpp - Give parameters rates of their own ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A factor is an attribute of the parameter, which the update reads. So it is
// in the plan, and a run multiplies it by whatever the schedule says.
//
//===----------------------------------------------------------------------===//

#include "FindInModel.h"

#include "plait/Transforms/Passes.h"

namespace plait {
#define GEN_PASS_DEF_SCALELEARNINGRATEPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
struct ScaleLearningRatePass
    : plait::impl::ScaleLearningRatePassBase<ScaleLearningRatePass> {
  using ScaleLearningRatePassBase::ScaleLearningRatePassBase;

  /// Sets the factor of all parameters that one of the options names. Names
  /// have no equals sign.
  LogicalResult apply(StringRef option) {
    auto [pattern, text] = option.split('=');
    double factor;
    constexpr double most = 1e6;
    if (text.getAsDouble(factor) || !(factor >= 0 && factor <= most))
      return getOperation().emitError("`lr-factor` \"")
             << option
             << "\" is not NAME=FACTOR with a factor of 0 to 1,000,000, such "
                "as "
                "*.wte.weight=0.1";
    auto found = findParameters(getOperation(), pattern, "`lr-factor`");
    if (failed(found))
      return failure();
    FloatAttr rate = factor == 1
                         ? FloatAttr()
                         : Builder(&getContext()).getF64FloatAttr(factor);
    for (nn::ParameterOp parameter : *found)
      parameter.setRateAttr(rate);
    return success();
  }

  void runOnOperation() override {
    if (failed(findModel(getOperation(),
                         "in which learning rates are not set any more")))
      return signalPassFailure();
    for (const std::string &option : factors)
      if (failed(apply(option)))
        return signalPassFailure();
  }
};
} // namespace
