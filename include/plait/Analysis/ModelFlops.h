//===- ModelFlops.h - FLOPs of a model, for utilisation ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The floating-point operations that a model needs, whatever is executed:
// the numerator of model FLOP utilisation (Korthikanti et al. 2022, appendix
// A). Planner, plan and run take it from here.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_ANALYSIS_MODELFLOPS_H
#define PLAIT_ANALYSIS_MODELFLOPS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace plait {

/// Counts the FLOPs of one forward and backward pass of `loss`, the
/// unpartitioned model before differentiation, over its whole batch: its
/// matmuls and attention over all keys once, and as often again for each of two
/// operands that need a gradient; nothing for elementwise work. `count` tells
/// how many operations each one stands for.
double countModelFlops(
    mlir::func::FuncOp loss,
    llvm::function_ref<int64_t(mlir::Operation *)> count = [](auto *) {
      return int64_t(1);
    });

} // namespace plait

#endif // PLAIT_ANALYSIS_MODELFLOPS_H
