//===- Measure.h - The work of lowered functions ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_PROFILE_MEASURE_H
#define PLAIT_LIB_PLANNER_PROFILE_MEASURE_H

#include "plait/Planner/Work.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {

/// Counts the elements of a tensor; 0 of other types.
double countElements(mlir::Type type);

/// Lists what `forward` and `backward` do, for the batch that their types have:
/// "per sequence" means per batch here. Elements of the type `activation` count
/// as those of the model's precision. Parameters are left empty.
planner::Block measureBlock(mlir::func::FuncOp forward,
                            mlir::func::FuncOp backward, mlir::Type activation);

} // namespace plait

#endif // PLAIT_LIB_PLANNER_PROFILE_MEASURE_H
