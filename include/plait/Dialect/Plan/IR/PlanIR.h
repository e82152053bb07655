//===- PlanIR.h - The plan dialect ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a rank executes; the contracts are in PlanOps.td and PlanStepOps.td. The
// plan *file* is another thing: see include/plait/Plan.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PLAN_IR_PLANIR_H
#define PLAIT_DIALECT_PLAN_IR_PLANIR_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Support/MemoryPlaces.h"

#include "plait/Dialect/Plan/IR/PlanDialect.h.inc"
#include "plait/Dialect/Plan/IR/PlanEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "plait/Dialect/Plan/IR/PlanAttrs.h.inc"

namespace plait::plan {

/// One tensor of a step.
struct StepUse {
  llvm::StringRef what; ///< For messages: "A", "input".
  MemoryAttr memory;
  bool writes = false; ///< Else it is only read; to accumulate is to write.
};

/// The message of a step to other ranks.
struct StepMessage {
  llvm::StringRef axis; ///< Of the mesh; empty: nothing.
  double bytes = 0;     ///< Of each rank.
};

} // namespace plait::plan

#include "plait/Dialect/Plan/IR/PlanInterfaces.h.inc"
#define GET_OP_CLASSES
#include "plait/Dialect/Plan/IR/PlanOps.h.inc"

namespace plait::plan {

/// Attributes of value form: see docs/Phases.md. Slots end with the workspace.
inline constexpr llvm::StringLiteral kPlacesAttr = "plan.places";
inline constexpr llvm::StringLiteral kSlotBytesAttr = "plan.slot_bytes";
inline constexpr llvm::StringLiteral kSlotNamesAttr = "plan.slot_names";
inline constexpr llvm::StringLiteral kPlaceAttr = "plan.place";
inline constexpr llvm::StringLiteral kAccumulateAttr = "plan.accumulate";

/// The alignment of every offset in an arena, in bytes: a cache line, and the
/// widest vector.
inline constexpr int64_t kAlignment = 64;

/// Counts the elements from the first one of a strided box to its last.
inline int64_t countSpan(llvm::ArrayRef<int64_t> sizes,
                         llvm::ArrayRef<int64_t> strides) {
  int64_t last = 0;
  for (auto [size, stride] : llvm::zip_equal(sizes, strides))
    last += (size - 1) * stride;
  return last + 1;
}

/// Tells where `value` lies: what moves take from a place or bring there,
/// there, and all else in the arena.
MemoryPlace getMemoryPlace(mlir::Value value);

/// The steps of a function, in order.
inline auto getSteps(FunctionOp function) {
  return function.getBody().getOps<StepOpInterface>();
}

} // namespace plait::plan

#endif // PLAIT_DIALECT_PLAN_IR_PLANIR_H
