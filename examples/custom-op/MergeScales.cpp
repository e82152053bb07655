//===- MergeScales.cpp - A pass to copy -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "My.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;
using plait::nn::ScaleOp;

namespace {

/// Makes one scaling of two in a row, by the product of their amounts.
struct MergeScales : PassWrapper<MergeScales, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MergeScales)

  StringRef getArgument() const override { return "my-merge-scales"; }
  StringRef getDescription() const override {
    return "Scale by a product instead of twice";
  }

  // Ops are visited in their order, so that of three in a row all become one.
  void runOnOperation() override {
    getOperation().walk([](ScaleOp outer) {
      auto inner = outer.getInput().getDefiningOp<ScaleOp>();
      if (!inner)
        return;
      float product = inner.getAmount().convertToFloat() *
                      outer.getAmount().convertToFloat();
      outer.setAmount(APFloat(product));
      outer.getInputMutable().assign(inner.getInput());
      if (inner->use_empty())
        inner->erase();
    });
  }
};

} // namespace

void my::registerPasses() { PassRegistration<MergeScales>(); }
