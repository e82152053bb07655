//===- StageGradients.h - What stages owe each other ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each stage is differentiated by itself. What its gradients mean for the other
// stages is known when all have been.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_GRADIENTS_STAGEGRADIENTS_H
#define PLAIT_LIB_TRANSFORMS_GRADIENTS_STAGEGRADIENTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>

namespace plait {

/// Functions that compute forward and backward, by stage.
using JointFunctions = std::map<int64_t, mlir::func::FuncOp>;

/// Takes away what no parameter's gradient needs: an output that reaches no
/// parameter has a gradient only as long as nobody looks. The next stage need
/// not compute it then.
void dropUnusedGradients(mlir::func::FuncOp joint, mlir::func::FuncOp next);

/// Has a stage that reads a parameter but gives it no gradient add zero where
/// another stage gives one: all that hold it reduce and update it.
void accumulateZeros(const JointFunctions &joints);

/// Takes its state from what is not trained: there is none to divide.
void dropUnusedState(mlir::ModuleOp module);

/// Refuses a loss that trains nothing, which is a mistake in the model.
mlir::LogicalResult checkTrains(const JointFunctions &joints);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_GRADIENTS_STAGEGRADIENTS_H
