//===- AssignOptimizers.cpp - Give parameters optimizers of their own -----===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The optimizer of a group is an attribute of its parameters. What it keeps and
// does follows from its row in Configuration/Optimizers.def, as that of the
// training's optimizer does.
//
//===----------------------------------------------------------------------===//

#include "FindInModel.h"

#include "plait/Configuration/Optimizers.h"
#include "plait/Transforms/Passes.h"

namespace plait {
#define GEN_PASS_DEF_ASSIGNOPTIMIZERSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
struct AssignOptimizersPass
    : plait::impl::AssignOptimizersPassBase<AssignOptimizersPass> {
  using AssignOptimizersPassBase::AssignOptimizersPassBase;

  /// Sets the optimizer of all parameters that one of the options names. Names
  /// have no equals sign.
  LogicalResult apply(StringRef option) {
    auto [pattern, name] = option.split('=');
    Result<const Optimizer *> optimizer = findOptimizer(name);
    if (!optimizer.ok())
      return getOperation().emitError("`optimizer-of` \"")
             << option
             << "\" is not NAME=OPTIMIZER: " << optimizer.status().message();
    auto found = findParameters(getOperation(), pattern, "`optimizer-of`");
    if (failed(found))
      return failure();
    for (nn::ParameterOp parameter : *found)
      parameter.setOptimizer(name);
    return success();
  }

  void runOnOperation() override {
    if (failed(findModel(getOperation(),
                         "in which optimizers are not assigned any more")))
      return signalPassFailure();
    for (const std::string &option : optimizers)
      if (failed(apply(option)))
        return signalPassFailure();
  }
};
} // namespace
