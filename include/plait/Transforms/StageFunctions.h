//===- StageFunctions.h - The functions of pipeline stages ------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Access to what the attributes of the pipe dialect say about functions: which
// action of which virtual stage a function does, what its arguments and results
// are, and which rank of the pipeline has it. The module's placement of virtual
// stages on ranks is asked for here and nowhere else.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_STAGEFUNCTIONS_H
#define PLAIT_TRANSFORMS_STAGEFUNCTIONS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"

#include <optional>
#include <string>

namespace plait {

/// The virtual stage that an op of the loss belongs to, if it says so.
inline std::optional<int64_t> getStage(mlir::Operation *op) {
  auto stage = op->getAttrOfType<mlir::IntegerAttr>(pipe::kStageAttr);
  return stage ? std::optional(stage.getInt()) : std::nullopt;
}

/// Whether an op of a joint function belongs to the backward pass.
inline bool isBackward(mlir::Operation *op) {
  return op->hasAttr(nn::kBackwardAttr);
}

/// Returns where the module's virtual stages lie; see PipeDialect.
pipe::PlacementAttr getPlacement(mlir::ModuleOp module);

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// "backward_input_3".
std::string getFunctionName(pipe::ActionKind action, int64_t index);

/// Returns what `function` does for whom; null: it is no stage's.
inline pipe::FunctionAttr getStageFunction(mlir::func::FuncOp function) {
  return function->getAttrOfType<pipe::FunctionAttr>(pipe::kFunctionAttr);
}

inline bool doesAction(mlir::func::FuncOp function, pipe::ActionKind action) {
  pipe::FunctionAttr own = getStageFunction(function);
  return own && own.getAction() == action;
}

/// The rank of the pipeline whose function it is, if it is a stage's.
std::optional<int64_t> getRank(mlir::func::FuncOp function);

/// Makes `function`, which belongs to a stage, do `action` of it: marks it and
/// gives it the name.
void setAction(mlir::func::FuncOp function, pipe::ActionKind action);

/// A function without arguments, results or ops where `builder` stands.
mlir::func::FuncOp createStageFunction(mlir::OpBuilder &builder,
                                       mlir::Location loc,
                                       pipe::ActionKind action, int64_t index);

//===----------------------------------------------------------------------===//
// Actions of a schedule
//===----------------------------------------------------------------------===//

/// `order` with all that the ranks of `module` do: with transfers
/// (schedule::insertTransfers), and first in a step a gather where there is a
/// function for it.
schedule::Schedule completeSchedule(mlir::ModuleOp module,
                                    const schedule::Schedule &order);

/// Returns what the function does that `action` of `rank`, no transfer, calls.
/// Work that happens once a step is a function of the rank, all else one of a
/// virtual stage.
pipe::FunctionAttr getCallee(mlir::MLIRContext *context,
                             const schedule::Problem &problem, int64_t rank,
                             const schedule::Action &action);

/// The virtual stage that a message is named after, at both ends: its sender.
int64_t getSender(const schedule::Problem &problem, int64_t rank,
                  const schedule::Action &transfer);

//===----------------------------------------------------------------------===//
// Ports
//===----------------------------------------------------------------------===//

/// Null where there is none.
inline pipe::PortAttr getPort(mlir::func::FuncOp function, unsigned argument) {
  return function.getArgAttrOfType<pipe::PortAttr>(argument, pipe::kPortAttr);
}
inline pipe::PortAttr getResultPort(mlir::func::FuncOp function,
                                    unsigned result) {
  return function.getResultAttrOfType<pipe::PortAttr>(result, pipe::kPortAttr);
}

/// Gives all arguments, or all results, their ports, and the function the types
/// of its block and of what it returns.
void setPorts(mlir::func::FuncOp function,
              llvm::ArrayRef<pipe::PortAttr> arguments,
              llvm::ArrayRef<pipe::PortAttr> results);

/// The ports of all arguments, or of all results; every one has one.
llvm::SmallVector<pipe::PortAttr> getPorts(mlir::func::FuncOp function);
llvm::SmallVector<pipe::PortAttr> getResultPorts(mlir::func::FuncOp function);

/// The number of the result that is `port`, if there is one.
std::optional<unsigned> findResult(mlir::func::FuncOp function,
                                   pipe::PortKind kind, int64_t index);

} // namespace plait

#endif // PLAIT_TRANSFORMS_STAGEFUNCTIONS_H
