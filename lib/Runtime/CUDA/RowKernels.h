//===- RowKernels.h - Rows of experts among members -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shared between the host and the kernels of RowKernels.cu, which move the rows
// of a RowSelection (Plan.fbs). Their parameters are pointers, then int64
// numbers, of which the last ones are the extents:
//   members, index, rows, choices, experts, scatters, bytes
// `index` is this member's, a block has so many `rows` of so many `bytes`, and
// `scatters` is 0 or 1. A row that goes from member s to member t is, of block
// b and with number r in it: of a gather, row r of the input of s and row r of
// block s of the output; of a scatter, row r of block t of the input and row r
// of the output.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_ROWKERNELS_H
#define PLAIT_LIB_RUNTIME_CUDA_ROWKERNELS_H

#include <stdint.h>

namespace plait::runtime {

/// Fills with zeros the rows of the output that nobody sends:
///   char *out, const int *ids; extents
/// This kernel and those that copy have a warp for each row that they look at:
/// for all rows of the output, here.
#define PLAIT_CLEAR_ROWS "plait_clear_rows"
/// Copies the rows that go from `source`, whose input is `in`, to this member:
///   char *out, const char *in, const int *ids; source, extents
/// Looks at the rows of a block.
#define PLAIT_TAKE_ROWS "plait_take_rows"
/// Lists, for each member, which rows of a block go there, then, for each,
/// which come from there:
///   int *lists, int *counts, const int *ids; extents
/// lists[i][0 … counts[i]) are the numbers of the rows in their order, of
/// lists[2 · members][rows]. Takes 2 · members blocks of `listThreads` threads.
#define PLAIT_LIST_ROWS "plait_list_rows"
/// Copies, of what goes to each other member, `most` rows from number `first`
/// of its list on:
///   char *packed, const char *in, const int *lists, const int *counts; first,
///   most, extents
/// packed[members][most] has the rows, all of which are looked at.
#define PLAIT_PACK_ROWS "plait_pack_rows"
/// Copies what has come from each other member to where it belongs:
///   char *out, const char *packed, const int *lists, const int *counts; first,
///   most, extents
#define PLAIT_UNPACK_ROWS "plait_unpack_rows"

enum { listThreads = 512 };
enum { rowThreads = 256, threadsOfRow = 32 };

/// Blocks of `rowThreads` threads that look at so many rows.
inline int64_t rowBlocks(int64_t rows) {
  return (rows * threadsOfRow + rowThreads - 1) / rowThreads;
}

/// The kernels as PTX, with a closing NUL.
extern const char rowKernelsPtx[];

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_ROWKERNELS_H
