//===- Inputs.h - What the arguments of the loss function are ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `@loss` takes tokens and targets first. An argument behind them has an
// attribute that says what it is:
//
//   func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>,
//                   %keys: tensor<2xi32> {nn.keys},
//                   %starts: tensor<2x8xi32> {nn.starts},
//                   %patches: tensor<2x8x48xf32> {nn.features = "patches"},
//                   %time: tensor<2xf32> {nn.context = "time"}) -> …
//
// Keys are a random number of each sequence, for dropout. Starts are, of each
// position, the one at which its document begins, for attention. Features and
// context are float inputs, which have names: numbers of each position, which
// ranks along the axis "cp" divide as they do tokens, or of each sequence. They
// have no gradient. Other dimensions than batch and sequence are on every rank
// as a whole.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_INPUTS_H
#define PLAIT_DIALECT_NN_IR_INPUTS_H

#include "plait/Dialect/NN/IR/NN.h"

namespace plait::nn {

enum class InputKind { Tokens, Targets, Keys, Starts, Features, Context };

/// Facts of a kind of input.
struct InputFacts {
  InputKind kind;
  /// The name of the kind, as a port of a stage has it.
  llvm::StringLiteral word;
  /// The attribute of the argument; empty: the argument's place says it.
  llvm::StringLiteral attribute;
  /// Whether it is f32 and there may be several, whose names are the values of
  /// the attribute. Others are i32.
  bool isNamed;
  /// The number of first dimensions that are batch and sequence.
  int64_t tokenDims;
};

/// All kinds, in the order of InputKind.
llvm::ArrayRef<InputFacts> getInputFacts();

/// Returns what an argument of the loss function is: nothing where it has no
/// attribute of a kind, or several.
const InputFacts *findInputFacts(mlir::BlockArgument argument);

/// Returns the first argument of `kind`; null: there is none.
mlir::BlockArgument findInput(mlir::FunctionOpInterface loss, InputKind kind);

/// Appends an argument of `kind` to the loss function, which has a body;
/// `name` is that of a float input.
mlir::BlockArgument appendInput(mlir::FunctionOpInterface loss, InputKind kind,
                                mlir::Type type, llvm::StringRef name = {});

/// Returns the name of a float input.
llvm::StringRef getInputName(mlir::BlockArgument input);

/// Returns the float inputs of the loss function, in order.
llvm::SmallVector<mlir::BlockArgument>
getFloatInputs(mlir::FunctionOpInterface loss);

/// Returns how many of the first dimensions of an argument of the loss function
/// are batch and sequence.
int64_t countTokenDims(mlir::BlockArgument argument);

/// Appends the attributes that an argument may have.
void listInputAttributes(mlir::InFlightDiagnostic &error);

/// (L4) as far as types go, and (L6). Errors name the argument.
mlir::LogicalResult verifyInputs(mlir::FunctionOpInterface loss);

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

#endif // PLAIT_DIALECT_NN_IR_INPUTS_H
