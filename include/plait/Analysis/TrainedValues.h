//===- TrainedValues.h - What needs a gradient ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_ANALYSIS_TRAINEDVALUES_H
#define PLAIT_ANALYSIS_TRAINEDVALUES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

namespace plait {

/// Finds the values of `loss`, a model before differentiation, that depend on a
/// parameter which is trained: each needs a gradient where the loss depends on
/// it. Behind nn.stop_gradient nothing is trained.
llvm::DenseSet<mlir::Value> findTrainedValues(mlir::func::FuncOp loss);

} // namespace plait

#endif // PLAIT_ANALYSIS_TRAINEDVALUES_H
