//===- OnlineSums.h - Softmax of long rows in one sweep ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A loss over a vocabulary needs the maximum of a row, then the sum of the
// exponentials of what is left, then the gradient: three sweeps over rows that
// no cache holds. Two are enough (Milakov and Gimelshein 2018): a sum relative
// to the largest number so far is brought to a larger one by a factor. What one
// element of each row adds up to is no sweep, but a load.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_KERNEL_ONLINESUMS_H
#define PLAIT_LIB_CODEGEN_KERNEL_ONLINESUMS_H

#include "Emitter.h"
#include "plait/Analysis/KernelShape.h"

namespace plait::codegen {

/// `sum` adds up exp(x - top), `top` is the maximum of x.
struct OnlineSum {
  const Reduction *top, *sum;
  llvm::SmallVector<const Reduction *> picks; ///< Of one x - top in each row.
};

/// The sweep in which every value of a row becomes known.
struct RowStages {
  llvm::DenseMap<mlir::Value, unsigned> of;
  llvm::SmallVector<OnlineSum> online;

  /// Whether no sweep adds the reduction up by itself.
  bool isFoundOtherwise(const Reduction *reduction) const;
};

/// Returns the stages of `shape`, or if rows are long fewer.
RowStages assignRowStages(plan::ClusterOp cluster, const IterationSpace &space,
                          const RowShape &shape, bool isLong);

/// The sum of exponentials relative to the larger of `top` and `x`, if `sum` is
/// that of others relative to `top`.
mlir::Value addOnline(mlir::ImplicitLocOpBuilder &builder, mlir::Value sum,
                      mlir::Value top, mlir::Value x);

/// A sum relative to `from` as one relative to `top`, which is no less.
mlir::Value rescale(mlir::ImplicitLocOpBuilder &builder, mlir::Value sum,
                    mlir::Value from, mlir::Value top);

/// Has the loops stand at the element of a row that `pick` keeps, and returns
/// whether the rank has it, an i1; if not they stand at the first.
mlir::Value placeAtPicked(Emitter &emitter, mlir::Operation *pick);

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_KERNEL_ONLINESUMS_H
