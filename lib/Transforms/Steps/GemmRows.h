//===- GemmRows.h - Some rows of a GEMM -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_STEPS_GEMMROWS_H
#define PLAIT_LIB_TRANSFORMS_STEPS_GEMMROWS_H

#include "plait/Dialect/Plan/IR/PlanIR.h"

namespace plait {

/// Creates a GEMM that computes `rows` rows of those of `whole`, of each
/// product of a batch, from `first` on. Where it has a GELU's input, the rows
/// of that lie one behind the other.
plan::GemmOp createRows(mlir::OpBuilder &builder, plan::GemmOp whole,
                        int64_t first, int64_t rows);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_STEPS_GEMMROWS_H
