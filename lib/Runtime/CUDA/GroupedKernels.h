//===- GroupedKernels.h - Rows with matrices of their own -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shared between the host and the kernels of GroupedKernels.cu, which are the
// grouped GEMMs of Plan.fbs. Their parameters are pointers, then int64 numbers.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_GROUPEDKERNELS_H
#define PLAIT_LIB_RUNTIME_CUDA_GROUPEDKERNELS_H

#include <stdint.h>

#ifdef __CUDACC__
#define PLAIT_HOST_AND_DEVICE __host__ __device__
#else
#define PLAIT_HOST_AND_DEVICE
#endif

namespace plait::runtime {

/// Orders rows by expert:
///   int *order, int *begins, const int *ids; rows, first, limit, experts
/// order[0 … rows) are the numbers of the rows, expert by expert, those of none
/// last; expert e's begin at begins[e], those of none at begins[experts]. Takes
/// experts + 1 blocks.
#define PLAIT_GROUP_ROWS "plait_group_rows"
enum { groupThreads = 1024 };

/// A tile of a result has so many rows and columns, and is added up in steps of
/// so many terms.
enum {
  groupedTileRows = 64,
  groupedTileColumns = 128,
  groupedTileDepth = 32,
  groupedThreads = 128
};

/// Rows:
///   C *c, const A *a, const A *b, const int *order, const int *begins; rows,
///   repeat, experts, k, n, add
/// Takes groupedRowBlocks() blocks. One with matrices [n][k] is called
/// …_transposed.
#define PLAIT_GROUPED_ROWS "plait_grouped_rows"
/// Matrices, of each expert the sum over its rows of left^T right:
///   C *c, const A *left, const A *right, const int *order, const int *begins;
///   rows, leftRepeat, rightRepeat, experts, leftColumns, rightColumns, add
/// Row r is row r / repeat of an operand. Takes groupedMatrixBlocks() blocks.
#define PLAIT_GROUPED_MATRICES "plait_grouped_matrices"
/// Endings of the names of kernels for operands and results in f32, and of
/// those for bf16 operands with results in bf16 and in f32.
#define PLAIT_GROUPED_F32 "_f32"
#define PLAIT_GROUPED_BF16 "_bf16"
#define PLAIT_GROUPED_WIDE "_bf16_f32"
#define PLAIT_GROUPED_TRANSPOSED "_transposed"

PLAIT_HOST_AND_DEVICE inline int64_t groupedTiles(int64_t extent,
                                                  int64_t tile) {
  return (extent + tile - 1) / tile;
}

/// However rows are spread over experts, their tiles are no more than one for
/// each `groupedTileRows` of all rows and one more a group.
inline int64_t groupedRowBlocks(int64_t rows, int64_t experts, int64_t n) {
  return (rows / groupedTileRows + experts + 1) *
         groupedTiles(n, groupedTileColumns);
}

inline int64_t groupedMatrixBlocks(int64_t experts, int64_t leftColumns,
                                   int64_t rightColumns) {
  return experts * groupedTiles(leftColumns, groupedTileRows) *
         groupedTiles(rightColumns, groupedTileColumns);
}

/// The kernels as PTX, with a closing NUL.
extern const char groupedKernelsPtx[];

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_GROUPEDKERNELS_H
