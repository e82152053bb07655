//===- KernelRows.h - Some rows of a kernel ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_STEPS_KERNELROWS_H
#define PLAIT_LIB_TRANSFORMS_STEPS_KERNELROWS_H

#include "plait/Dialect/Plan/IR/PlanIR.h"

namespace plait {

/// Whether every result of the kernel is computed row by row.
bool hasRows(plan::KernelOp kernel);

/// Creates a kernel that computes part `part` of `parts` equal ones of the rows
/// of `whole`: of the outermost dimension of its results that has more than one
/// index, and of the next where there are more parts than indices. Null, and
/// nothing is created, where some result is not computed row by row, or rows of
/// a part are no run of its bytes that begins where kernels' memory may.
plan::KernelOp createRows(mlir::OpBuilder &builder, plan::KernelOp whole,
                          int64_t part, int64_t parts);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_STEPS_KERNELROWS_H
