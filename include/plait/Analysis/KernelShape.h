//===- KernelShape.h - Loop structure of fused kernels ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a kernel can compute, and with which loops. Fusion asks before it adds
// an op to a cluster, code generation when it emits the cluster: one rule, so
// that no backend refuses what fusion formed. What reductions a cluster holds
// decides its loops:
//
//   elements  parallel over vectors of all groups together: no reductions, and
//             threads enough for that
//   rows      parallel over all groups but the inner, which is swept once or
//             several times: reductions over the inner group end a sweep
//   columns   parallel over blocks of the inner group, with one loop over the
//             reduced groups inside: sums over rows
//   scatter   parallel over blocks of a table's rows, with one loop over the
//             positions inside, in order
//   row op    parallel over rows, of each of which one op has all to say
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_ANALYSIS_KERNELSHAPE_H
#define PLAIT_ANALYSIS_KERNELSHAPE_H

#include "plait/Analysis/IterationSpace.h"

#include <variant>

namespace plait {

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

/// Sums that one loop over the rows computes, and what depends on them.
struct ColumnPart {
  llvm::SmallVector<const Reduction *> reductions;
  llvm::SmallVector<unsigned> results;
};

struct ColumnShape {
  llvm::SmallVector<int64_t> reduced, kept; ///< Groups; `kept` not the inner.
  /// The parts, at least one; results that need no sum are in the first.
  llvm::SmallVector<ColumnPart> parts;
};

struct ScatterShape {
  mlir::Operation *op;
};

/// Returns the argument of `cluster` that it adds scattered rows to: the kernel
/// adds to what lies at the result, touches no other row of it and reads the
/// argument nowhere else, so that the result has to lie where the argument
/// does. Null: there is none.
mlir::BlockArgument findScatterAddend(plan::ClusterOp cluster);

/// The rows of the whole table that `op`, which scatters, adds to; a rank may
/// have a part of them.
int64_t countTableRows(mlir::Operation *op);

/// Whether the positions of each row that `op` adds to are at hand, behind its
/// ids (SortedTokens).
bool isSorted(mlir::Operation *op);

struct RowOpShape {
  mlir::Operation *op;
};

struct ElementShape {};

using KernelShape =
    std::variant<ElementShape, RowShape, ColumnShape, RowOpShape, ScatterShape>;

/// The limits that a machine has for a space. Whether a cluster has a kernel
/// does not depend on it.
struct ShapeLimits {
  /// Whether vectors of elements can be parallel indices; else rows are.
  bool elements = false;
  /// Long one-dimensional tensors are cut into blocks of this many elements;
  /// 0: never.
  int64_t block = 0;
  /// The column sums that one loop holds in registers.
  size_t columnSums = SIZE_MAX;
};

/// Whether the op of the operand's role addresses the operand's memory in its
/// own way, so that no op of the same cluster can make it.
bool readsMemory(mlir::OpOperand &operand);

/// The space of a cluster that kernels can compute; on failure an error at the
/// op that none does.
llvm::FailureOr<IterationSpace> analyzeCluster(plan::ClusterOp cluster);

/// Fails with an error at the op that does not fit. `space` must outlive the
/// shape.
llvm::FailureOr<KernelShape> chooseShape(plan::ClusterOp cluster,
                                         const IterationSpace &space,
                                         const ShapeLimits &limits);

/// Whether there is a kernel for the cluster, on all machines. Reports nothing.
bool hasKernel(plan::ClusterOp cluster);

/// A result of a cluster, and an operand in whose place its kernel may write
/// it.
struct Overwrite {
  unsigned result, operand;
};

/// All such pairs, on all machines. Of one type, both have every element of the
/// space, the kernel reads an element of the operand only where it computes the
/// same element of the result, and it writes no result before the last sweep.
llvm::SmallVector<Overwrite> findOverwrites(plan::ClusterOp cluster);

} // namespace plait

#endif // PLAIT_ANALYSIS_KERNELSHAPE_H
