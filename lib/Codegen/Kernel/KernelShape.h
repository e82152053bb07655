//===- KernelShape.h - Which loops a kernel has -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What reductions a cluster holds decides its loops:
//
//   rows      parallel over all groups but the inner, which is swept once or
//             several times: reductions over the inner group end a sweep
//   columns   parallel over blocks of the inner group, with one loop over the
//             reduced groups inside: sums over rows
//   scatter   parallel over blocks of a table's rows, with one loop over the
//             positions inside, in order
//
// Checked here, so that emission cannot fail.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_KERNEL_KERNELSHAPE_H
#define PLAIT_LIB_CODEGEN_KERNEL_KERNELSHAPE_H

#include "Emitter.h"

namespace plait::codegen {

/// Everything that one pass over the inner group computes.
struct Sweep {
  llvm::SmallVector<const Reduction *> reductions;
  llvm::SmallVector<unsigned> stores;
};

struct RowShape {
  /// The inner group in blocks of this many, each a parallel index; 0: whole.
  int64_t block = 0;
  /// Reductions to one number over all rows, in order; with any, the kernel
  /// has one parallel index.
  llvm::SmallVector<const Reduction *> totals;
  /// The first sweep in which a value can be computed.
  llvm::DenseMap<mlir::Value, unsigned> stage;

  bool isTotal(const Reduction &reduction) const {
    return llvm::is_contained(totals, &reduction);
  }
};

struct ColumnShape {
  llvm::SmallVector<int64_t> reduced, kept; ///< Groups; `kept` not the inner.
};

/// The op that scatters, or null.
mlir::Operation *findScatter(plan::ClusterOp cluster);
/// Whether the cluster needs a kernel over columns; rows otherwise.
bool needsColumns(const IterationSpace &space);

/// These fail with an error at the op that does not fit.
llvm::FailureOr<RowShape> analyzeRows(plan::ClusterOp cluster,
                                      const IterationSpace &space);
llvm::FailureOr<ColumnShape> analyzeColumns(plan::ClusterOp cluster,
                                            const IterationSpace &space);
llvm::LogicalResult checkScatter(plan::ClusterOp cluster,
                                 const IterationSpace &space,
                                 mlir::Operation *scatter);

void emitRows(Emitter &emitter, const RowShape &shape, KernelInfo &info);
void emitColumns(Emitter &emitter, const ColumnShape &shape, KernelInfo &info);
void emitScatter(Emitter &emitter, mlir::Operation *scatter, KernelInfo &info);

/// Fewer elements than this are not worth a thread.
inline constexpr int64_t kGrainElements = 16384;

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_KERNEL_KERNELSHAPE_H
