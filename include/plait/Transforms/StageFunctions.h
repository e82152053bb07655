//===- StageFunctions.h - The functions of a pipeline stage -----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a stage does is cut into phases: "forward", "backward" (both together
// are "joint" before they are split), "reduce" and "optimizer". Each is one
// function of the module, which attributes mark and whose name follows from
// phase and stage.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_STAGEFUNCTIONS_H
#define PLAIT_TRANSFORMS_STAGEFUNCTIONS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Transforms/Names.h"

#include <optional>
#include <string>

namespace plait {

/// "forward_0".
inline std::string getFunctionName(llvm::StringRef phase, int64_t stage) {
  return (phase + "_" + llvm::Twine(stage)).str();
}

/// The stage that an op or a function belongs to, if it says so.
inline std::optional<int64_t> getStage(mlir::Operation *op) {
  auto stage = op->getAttrOfType<mlir::IntegerAttr>(pipe::kStageAttr);
  return stage ? std::optional(stage.getInt()) : std::nullopt;
}

/// Whether `function` does `phase` of a stage.
inline bool doesPhase(mlir::func::FuncOp function, llvm::StringRef phase) {
  auto own = function->getAttrOfType<mlir::StringAttr>(pipe::kPhaseAttr);
  return own && own.getValue() == phase;
}

/// Whether an op of a joint function belongs to the backward phase.
inline bool isBackward(mlir::Operation *op) {
  return op->hasAttr(nn::kBackwardAttr);
}

/// Makes `function`, which belongs to a stage, do `phase` of it: marks it and
/// gives it the name.
inline void setPhase(mlir::func::FuncOp function, llvm::StringRef phase) {
  mlir::Builder builder(function.getContext());
  function->setAttr(pipe::kPhaseAttr, builder.getStringAttr(phase));
  function.setName(getFunctionName(phase, *getStage(function)));
}

/// A function without arguments, results or ops where `builder` stands, which
/// does `phase` of `stage`.
inline mlir::func::FuncOp createStageFunction(mlir::OpBuilder &builder,
                                              mlir::Location loc,
                                              llvm::StringRef phase,
                                              int64_t stage) {
  auto function =
      mlir::func::FuncOp::create(builder, loc, getFunctionName(phase, stage),
                                 builder.getFunctionType({}, {}));
  function->setAttr(pipe::kStageAttr, builder.getI64IntegerAttr(stage));
  function->setAttr(pipe::kPhaseAttr, builder.getStringAttr(phase));
  function.addEntryBlock();
  return function;
}

} // namespace plait

#endif // PLAIT_TRANSFORMS_STAGEFUNCTIONS_H
