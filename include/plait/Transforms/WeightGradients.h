//===- WeightGradients.h - Delayed gradients of weights ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The previous stage of a pipeline waits for the gradients of its outputs, but
// only the end of the step for those of weights (Qi et al., "Zero Bubble
// Pipeline Parallelism", 2024). What is delayed has to be kept, so that
// delaying is worth it for matmuls, and for what costs nothing more to
// keep: a sum over the batch (the gradient of a bias or of a norm), which reads
// much and takes little time, is not delayed.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_WEIGHTGRADIENTS_H
#define PLAIT_TRANSFORMS_WEIGHTGRADIENTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {

/// Returns the ops of a backward function that can be delayed, in its order:
/// the matmuls that lead to accumulated gradients and to no other matmul or
/// attention, all that becomes of them, and what only they read where keeping
/// its operands, or what these are made of element by element, takes no more
/// bytes than keeping it. Parameters and constants, which every function reads
/// for itself, are not counted.
llvm::SmallVector<mlir::Operation *>
findWeightGradients(mlir::func::FuncOp backward);

} // namespace plait

#endif // PLAIT_TRANSFORMS_WEIGHTGRADIENTS_H
