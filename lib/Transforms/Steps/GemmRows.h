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

/// Whether rows of `memory`, an operand of `stride` elements from row to row,
/// lie one behind the other, so that some of them are a run of its bytes.
bool hasDenseRows(plan::MemoryAttr memory, int64_t rows, int64_t stride,
                  mlir::Type type);

/// Whether that holds of all that rows of one product go through.
bool hasRows(plan::GemmOp gemm);

/// Creates a GEMM that computes `rows` rows of those of `whole`, of each
/// product of a batch, from `first` on. Where it has a GELU's input, the rows
/// of that lie one behind the other.
plan::GemmOp createRows(mlir::OpBuilder &builder, plan::GemmOp whole,
                        int64_t first, int64_t rows);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_STEPS_GEMMROWS_H
