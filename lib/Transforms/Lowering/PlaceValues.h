//===- PlaceValues.h - Addresses of the values of a function ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_PLACEVALUES_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_PLACEVALUES_H

#include "PackMemory.h"
#include "Slots.h"
#include "plait/Transforms/Buffers.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

namespace plait {

/// What a function finds outside of its workspace.
struct Surroundings {
  const ParameterPacks &packs; // of the function's rank
  const FunctionSlots &slots;
};

/// What `function` keeps in its workspace, by the value that its bytes begin
/// with: a sum over ranks works in place where it can. A step is an op of the
/// body.
llvm::MapVector<mlir::Value, Lifetime>
findWorkspace(mlir::func::FuncOp function, const Surroundings &surroundings);

/// Gives every tensor of `function` a place (attribute `plan.places` on its
/// op, `plan.place` of an argument): what the function takes and returns in
/// slots, what it reads or stores in the buffers of parameters, constants and
/// metrics, and all else in its workspace, packed by lifetime. Sets
/// `plan.slot_bytes` and `plan.slot_names`. Gradients and accumulators are
/// overwritten by the first product or kernel that adds to them in the first
/// microbatch, and added to by all others; those in `begun`, which functions
/// that run earlier add to, are always added to.
void placeValues(mlir::func::FuncOp function, const Surroundings &surroundings,
                 const llvm::StringSet<> &begun);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_PLACEVALUES_H
