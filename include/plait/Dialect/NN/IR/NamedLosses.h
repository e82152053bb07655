//===- NamedLosses.h - Losses that are reported beside the loss -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A loss is often a sum of several: of heads, or with a z-loss. `@loss` returns
// each that is to be reported behind the loss and the number of targets, as a
// result with a name:
//
//   func.func @loss(…) -> (tensor<f32>, tensor<f32>,
//                          tensor<f32> {nn.loss = "z_loss"})
//
// It is a sum over the targets like the loss, and what a step reports is its
// mean. Nothing is trained for it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_NAMEDLOSSES_H
#define PLAIT_DIALECT_NN_IR_NAMEDLOSSES_H

#include "plait/Dialect/NN/IR/NN.h"

namespace plait::nn {

/// The attribute of a result of the loss function that names it.
inline constexpr llvm::StringLiteral kNamedLossAttr = "nn.loss";

/// The beginning of the symbols of accumulators for named losses.
inline constexpr llvm::StringLiteral kNamedLossPrefix = "loss.";

/// Returns the names of the losses that `loss` returns behind the number of
/// targets, in their order. The function has been verified.
llvm::SmallVector<llvm::StringRef>
getNamedLosses(mlir::FunctionOpInterface loss);

/// Returns the names of the losses that the accumulators of `module` stand for,
/// in the order in which they are declared: after phase `stage`.
llvm::SmallVector<llvm::StringRef> getNamedLosses(mlir::ModuleOp module);

/// Verifies names and types of the results of `loss` behind the second. Errors
/// name the result.
mlir::LogicalResult verifyNamedLosses(mlir::FunctionOpInterface loss);

} // namespace plait::nn

#endif // PLAIT_DIALECT_NN_IR_NAMEDLOSSES_H
