//===- FloatInputs.h - What a model takes beside tokens ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model may take numbers beside tokens and targets, or in their place:
// patches of an image, soft targets, a time step. `@loss` has them as arguments
// behind all others, each with a name:
//
//   func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>,
//                   %patches: tensor<2x8x48xf32> {nn.features = "patches"},
//                   %time: tensor<2xf32> {nn.context = "time"}) -> …
//
// Features are numbers of each position, which ranks along the axis "cp" divide
// as they do tokens; context is of each sequence. They have no gradient. Other
// dimensions than batch and sequence are on every rank as a whole.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_FLOATINPUTS_H
#define PLAIT_DIALECT_NN_IR_FLOATINPUTS_H

#include "plait/Dialect/NN/IR/NN.h"

namespace plait::nn {

/// The attributes of an argument of the loss function that name it.
inline constexpr llvm::StringLiteral kFeaturesAttr = "nn.features";
inline constexpr llvm::StringLiteral kContextAttr = "nn.context";

/// Returns the float inputs of the loss function, in order.
llvm::SmallVector<mlir::BlockArgument>
getFloatInputs(mlir::FunctionOpInterface loss);

/// Whether the argument of the loss function, a float input, is of positions
/// and not of sequences.
bool isOfPositions(mlir::BlockArgument argument);

/// Returns how many of the first dimensions of an argument of the loss function
/// are batch and sequence.
int64_t countTokenDims(mlir::BlockArgument argument);

/// (L6). Errors name the argument.
mlir::LogicalResult verifyFloatInputs(mlir::FunctionOpInterface loss);

/// Says what a float input is, once the functions of a module are those of
/// stages.
struct FloatInput {
  llvm::StringRef name;
  bool isOfPositions;
  llvm::ArrayRef<int64_t> shape; // without batch and sequence
};

/// Writes what float inputs `loss` has to the description of its module.
void describeFloatInputs(mlir::FunctionOpInterface loss);

/// Reads it again. Fails where it has been changed to something else.
mlir::FailureOr<llvm::SmallVector<FloatInput>>
readFloatInputs(mlir::Operation *module);

} // namespace plait::nn

#endif // PLAIT_DIALECT_NN_IR_FLOATINPUTS_H
