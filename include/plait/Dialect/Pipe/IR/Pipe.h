//===- Pipe.h - The pipe dialect ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Pipeline stages and schedules; the contracts are in PipeOps.td.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PIPE_IR_PIPE_H
#define PLAIT_DIALECT_PIPE_IR_PIPE_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "plait/Schedule/Schedule.h"

namespace plait::schedule {
/// Hashes an action, for attributes that hold some.
inline llvm::hash_code hash_value(const Action &action) {
  return llvm::hash_combine(action.kind, action.chunk, action.microbatch,
                            action.direction, action.peer);
}
} // namespace plait::schedule

#include "plait/Dialect/Pipe/IR/PipeDialect.h.inc"
#include "plait/Dialect/Pipe/IR/PipeEnums.h.inc"

namespace plait::pipe {

/// Whether a rank of the pipeline does `action` once a step, for all of its
/// virtual stages.
inline bool isOfRank(ActionKind action) {
  return getActionFacts(action).isOnceAStep();
}

} // namespace plait::pipe

#define GET_ATTRDEF_CLASSES
#include "plait/Dialect/Pipe/IR/PipeAttrs.h.inc"
#define GET_OP_CLASSES
#include "plait/Dialect/Pipe/IR/PipeOps.h.inc"

namespace plait::pipe {

/// The discardable attributes of the dialect; see PipeOps.td.
inline constexpr llvm::StringLiteral kStageAttr = "pipe.stage";
inline constexpr llvm::StringLiteral kPlacementAttr = "pipe.placement";
inline constexpr llvm::StringLiteral kFunctionAttr = "pipe.function";
inline constexpr llvm::StringLiteral kPortAttr = "pipe.port";

/// The schedule of `op` with the peers of messages, or the reason why its
/// actions are none of its placement. A verified op has one.
Result<schedule::Schedule> getSchedule(ScheduleOp op);

/// The first schedule of `module`; null: none. One that is there before the
/// schedule phase was given, and decides in place of the configuration.
ScheduleOp findSchedule(mlir::ModuleOp module);

/// Adds `schedule` to `module`, called `kind` for reports.
ScheduleOp addSchedule(mlir::ModuleOp module,
                       const schedule::Schedule &schedule,
                       llvm::StringRef kind);

} // namespace plait::pipe

#endif // PLAIT_DIALECT_PIPE_IR_PIPE_H
