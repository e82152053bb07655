//===- StepUnits.h - What is updated as one ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_GRADIENTS_STEPUNITS_H
#define PLAIT_LIB_TRANSFORMS_GRADIENTS_STEPUNITS_H

#include "ParameterUses.h"

namespace plait {

/// The part that a rank has of a parameter that is compressed, see `nn.draw`.
struct TensorPlace {
  int64_t elements;
  uint32_t key;
  int64_t run;
  mlir::Attribute begin;
};

/// What is reduced, counted and updated as one: a pack, or what is in none.
struct StepUnit {
  nn::PackOp pack; // null: one parameter
  llvm::SmallVector<ParameterUse *> members;

  /// The same is done to all members.
  ParameterUse &get() { return *members.front(); }
  bool isDivided() { return pack && pack.isDivided(); }
  /// Whether micro-batches add its gradient to what replicas feed back, which
  /// so takes no memory of its own: ZeRO 2 and 3 where replicas compress. All
  /// else is added up as by ZeRO 1: a sum over other ranks would have what is
  /// fed back as often as there are of these.
  bool addsToError(dist::MeshOp mesh, int64_t rank,
                   const TrainingConfiguration &configuration);
  /// Finds where the chunks of `block` elements lie that a rank has of each
  /// member.
  llvm::SmallVector<TensorPlace> findPlaces(dist::MeshOp mesh, int64_t block);
  /// Whether a rank updates a part of what the whole copy is made of that
  /// stages compute with.
  bool dividesCopy();
  mlir::Operation *getOp() {
    return pack ? pack.getOperation() : get().parameter.getOperation();
  }
  mlir::Location getLoc() { return getOp()->getLoc(); }
  llvm::StringRef getSymbol() {
    return mlir::SymbolTable::getSymbolName(getOp());
  }
};

/// Finds what each rank of the pipeline updates, in the order of the
/// parameters. Fails with an error where the members of a pack cannot be
/// treated as one.
mlir::FailureOr<std::map<int64_t, llvm::SmallVector<StepUnit>>>
findStepUnits(mlir::ModuleOp module, ParameterUses &uses, dist::MeshOp mesh);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_GRADIENTS_STEPUNITS_H
