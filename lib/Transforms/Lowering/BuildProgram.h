//===- BuildProgram.h - The program of one rank -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_BUILDPROGRAM_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_BUILDPROGRAM_H

#include "Slots.h"
#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Schedule/Schedule.h"

namespace plait {

/// A schedule with transfers, and the functions that its actions call.
struct Calls {
  schedule::Schedule schedule;
  /// The functions by what they do (`pipe.function`).
  llvm::DenseMap<mlir::Attribute, mlir::func::FuncOp> functions;
  /// The slots of all functions of the module.
  llvm::DenseMap<mlir::Operation *, FunctionSlots> slots;
};

/// Appends the program of `rank` to `module`, whose functions have their
/// places.
void buildProgram(mlir::ModuleOp module, int64_t rank, const Calls &calls,
                  const ParameterPacks &packs);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_BUILDPROGRAM_H
