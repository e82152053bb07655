//===- TakeOutLayers.h - A model with fewer layers --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_TAKEOUTLAYERS_H
#define PLAIT_PLANNER_TAKEOUTLAYERS_H

#include "mlir/IR/BuiltinOps.h"

namespace plait {

/// Takes layers out of an imported model, so that what comes into each is
/// handed on, and erases the parameters that were theirs alone. `indices`
/// counts the layers in the order of the forward pass, from 0, and ascends.
/// False, and the module is of no use, where a layer hands on values of other
/// types than it gets.
bool takeOutLayers(mlir::ModuleOp module, llvm::ArrayRef<int64_t> indices);

} // namespace plait

#endif // PLAIT_PLANNER_TAKEOUTLAYERS_H
