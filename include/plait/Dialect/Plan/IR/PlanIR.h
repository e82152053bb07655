//===- PlanIR.h - The plan dialect ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a rank executes; the contracts are in PlanOps.td. The plan *file* is
// another thing: see include/plait/Plan.
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
#include "plait/Dialect/Pipe/IR/Pipe.h"

#include "plait/Dialect/Plan/IR/PlanDialect.h.inc"
#include "plait/Dialect/Plan/IR/PlanEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "plait/Dialect/Plan/IR/PlanAttrs.h.inc"
#define GET_OP_CLASSES
#include "plait/Dialect/Plan/IR/PlanOps.h.inc"

namespace plait::plan {

/// The attribute with the places of an op's results: an array of PlaceAttr.
inline constexpr llvm::StringLiteral kPlacesAttr = "plan.places";

/// What every offset in an arena is a multiple of, in bytes: a cache line, and
/// the widest vector.
inline constexpr int64_t kAlignment = 64;

} // namespace plait::plan

#endif // PLAIT_DIALECT_PLAN_IR_PLANIR_H
