//===- PlaceValues.h - Addresses of the values of a function ----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_PLACEVALUES_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_PLACEVALUES_H

#include "PackMemory.h"
#include "Slots.h"
#include "plait/Analysis/KernelShape.h"
#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace plait {

/// Facts of a function that stay as they are while its ops move, each noted
/// when it is first asked for: before a function is placed, its ops are moved
/// twice by what the workspace would take.
struct Unmoved {
  /// Addresses that a caller, a parameter or a sum prescribes; null: none does.
  llvm::DenseMap<mlir::Value, plan::PlaceAttr> fixed;
  /// Results of findOverwrites(), once for clusters of one structure.
  llvm::StringMap<llvm::SmallVector<Overwrite>> overwrites;
  llvm::DenseMap<mlir::Operation *, llvm::ArrayRef<Overwrite>> ofCluster;
};

/// The things that a function finds outside of its workspace.
struct Surroundings {
  const ParameterPacks &packs; // of the function's rank
  const FunctionSlots &slots;
  Unmoved &unmoved;
};

/// The values that a function keeps in its workspace. A step is an op of the
/// body.
struct Workspace {
  /// The lifetimes by the value that the bytes begin with.
  llvm::MapVector<mlir::Value, Lifetime> lifetimes;
  /// The arguments in slots that nobody needs after the step given here.
  llvm::MapVector<mlir::BlockArgument, Lifetime> released;
  /// The values that lie where another one was: sums over ranks and kernels
  /// work in place where they can.
  llvm::DenseMap<mlir::Value, mlir::Value> inPlaceOf;

  mlir::Value findRoot(mlir::Value value) const {
    while (mlir::Value other = inPlaceOf.lookup(value))
      value = other;
    return value;
  }
};
Workspace findWorkspace(mlir::func::FuncOp function,
                        const Surroundings &surroundings);

/// Gives every tensor of `function` a place (attribute `plan.places` on its
/// op, `plan.place` of an argument): what the function takes and returns in
/// slots, what it reads or stores in the buffers of parameters, constants and
/// metrics, and all else in its workspace, packed by lifetime. Sets
/// `plan.slot_bytes` and `plan.slot_names`. Gradients and accumulators are
/// overwritten by the first matmul or kernel that adds to them in the first
/// microbatch, and added to by all others; those in `begun`, which functions
/// that run earlier add to, are always added to.
void placeValues(mlir::func::FuncOp function, const Surroundings &surroundings,
                 const llvm::StringSet<> &begun);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_PLACEVALUES_H
