//===- RowPitch.h - Pitch of rows in memory ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A tensor's last dimension lies in a row of memory. Rows of an odd number of
// elements, as the logits of 50257 words, begin at addresses that matrix
// libraries and vector loads want nothing of: on GPUs matmuls of such operands
// take narrow loads, or another kind of kernel. Where nobody but matmuls and
// kernels sees a tensor, its rows may lie further apart: their *pitch*. What is
// between them belongs to no element and is never used. Shapes, parameters and
// files know nothing of it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PLAN_IR_ROWPITCH_H
#define PLAIT_DIALECT_PLAN_IR_ROWPITCH_H

#include "mlir/IR/Operation.h"

namespace plait::plan {

/// The pitches of rows. On an op: those of its results, an i64 array; on an
/// argument of a function: its own, an i64; on a `plan.kernel`: those of its
/// inputs, an i64 array. In elements; absent or 0: rows follow on each other.
inline constexpr llvm::StringLiteral kPitchAttr = "plan.pitch";

/// Elements from row to row of a tensor in memory: a value of a function, or an
/// argument of a cluster, which lies as the cluster's operand does. At least
/// the extent of the last dimension; 1 for a scalar.
int64_t getRowPitch(mlir::Value value);

/// The tokens that are sorted behind those of a microbatch (SortedTokens), as
/// kernels want them that add to rows of a table. On an argument of a function:
/// an i64; on a `plan.kernel`: those of its inputs, an i64 array; on the buffer
/// of all microbatches: an i64. Absent or 0: nothing is sorted.
inline constexpr llvm::StringLiteral kSortedAttr = "plan.sorted";

/// Returns that number of a value of a function, or of an argument of a
/// cluster.
int64_t getSortedEntries(mlir::Value value);

/// Whether `entries` is one for a tensor of `type`, or 0: tokens are 32 bits.
bool isSortedEntries(int64_t entries, mlir::Type type);

/// The bytes that it takes, those after the last row included, and what is
/// sorted behind it.
int64_t getStoredBytes(mlir::Value value);

/// Whether `pitch` is one for a tensor of `type`, or 0: rows do not overlap,
/// nor lie further apart than a line of any cache, 128 elements.
bool isRowPitch(int64_t pitch, mlir::Type type);

/// Fails unless what a `plan.kernel` says of its inputs, which have these
/// types, is right: pitches of rows, and what is sorted behind tokens.
mlir::LogicalResult verifyLayouts(mlir::Operation *kernel,
                                  mlir::TypeRange inputs);

/// The pitch that rows of `extent` elements of `bytes` bytes are best at:
/// multiples of 16 bytes, the most that one load moves; of long rows, of 128, a
/// line of a GPU's cache. Short rows are left as they are.
int64_t choosePitch(int64_t extent, int64_t bytes);

} // namespace plait::plan

#endif // PLAIT_DIALECT_PLAN_IR_ROWPITCH_H
