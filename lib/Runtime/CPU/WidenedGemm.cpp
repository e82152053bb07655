//===- WidenedGemm.cpp - bf16 GEMMs on any processor ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// GEMMs of bf16 on processors that have no fast instructions for them, block by
// block: widen a block of A and of B to f32 (exact), multiply by dnnl_sgemm,
// and add up along k in f32. C is rounded once, when all of k is in it. Blocks
// of 512 × 512 floats; WidenedGemm.h says why.
//
//===----------------------------------------------------------------------===//

#include "WidenedGemm.h"

#include "RowMath.h"
#include "Team.h"

#include <algorithm>
#include <dnnl.h>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

/// Rows of a block that are worth a thread.
static constexpr int64_t kGrain = 32;

/// 3 MiB, allocated when the plan is loaded (docs/Rationale.md, "Two ways to
/// multiply").
WidenedGemm::WidenedGemm(unsigned threads)
    : threads(threads), blockA(size * spreadRows(size)),
      blockB(size * spreadRows(size)), blockC(size * size) {}

/// Copies a matrix of which one stride is 1 without turning it; whether its
/// rows lie contiguous. The copy is contiguous along whichever dimension the
/// source is: turning it is left to dnnl_sgemm, which is told so. Its rows are
/// spread, as dnnl_sgemm may read them where they lie (FloatGemm.h).
bool WidenedGemm::widen(const BFloat16 *source, int64_t rows, int64_t rowStride,
                        int64_t columns, int64_t columnStride, float *target) {
  bool plain = columnStride == 1;
  if (!plain) {
    std::swap(rows, columns);
    rowStride = columnStride;
  }
  parallelFor(threads, rows, kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      runtime::widen(source + row * rowStride,
                     target + row * spreadRows(columns), columns);
  });
  return plain;
}

/// Widens, adds to and rounds once more, with `add`, what was in C, as a GEMM
/// of bf16 with accumulation does.
void WidenedGemm::round(const float *source, int64_t rows, int64_t columns,
                        BFloat16 *target, int64_t rowStride, bool add) {
  parallelFor(threads, rows, kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float *from = source + row * columns;
      BFloat16 *to = target + row * rowStride;
      if (!add)
        narrow(from, to, columns);
      for (int64_t column = 0; add && column < columns; ++column)
        to[column] = BFloat16(to[column] + from[column]);
    }
  });
}

/// c is f32: a block of C itself or blockC.
Status WidenedGemm::multiplyBlock(const fb::GemmStepT &shape,
                                  const Operands &operands, const Block &block,
                                  float *c, int64_t rowStride, bool add) {
  bool plainA =
      widen(operands.a + block.m * shape.a_row + block.k * shape.a_col,
            block.rows, shape.a_row, block.deep, shape.a_col, blockA.data());
  bool plainB =
      widen(operands.b + block.k * shape.b_row + block.n * shape.b_col,
            block.deep, shape.b_row, block.columns, shape.b_col, blockB.data());
  return checkDnnl(
      dnnl_sgemm(plainA ? 'N' : 'T', plainB ? 'N' : 'T', block.rows,
                 block.columns, block.deep, 1.0f, blockA.data(),
                 spreadRows(plainA ? block.deep : block.rows), blockB.data(),
                 spreadRows(plainB ? block.columns : block.deep),
                 add ? 1.0f : 0.0f, c, rowStride));
}

/// One GEMM of the batch.
/// 1. For each block of C: all blocks along k, the first of which overwrites
///    unless C is f32 and added to.
/// 2. Where C is bf16, the sum is rounded into it.
Status WidenedGemm::multiply(const fb::GemmStepT &shape,
                             const Operands &operands) {
  bool narrow = shape.c_dtype == fb::DType::BF16;
  for (int64_t n = 0; n < shape.n; n += size)
    for (int64_t m = 0; m < shape.m; m += size) {
      int64_t rows = std::min(size, shape.m - m);
      int64_t columns = std::min(size, shape.n - n);
      int64_t place = m * shape.c_row + n;
      float *target = narrow ? blockC.data()
                             : reinterpret_cast<float *>(operands.c) + place;
      for (int64_t k = 0; k < shape.k; k += size) {
        // 1. Along k.
        Block block = {m, n, k, rows, columns, std::min(size, shape.k - k)};
        bool add = k > 0 || (operands.add && !narrow);
        // Of a single row the stride is never used, but must not be shorter.
        PLAIT_RETURN_IF_ERROR(multiplyBlock(
            shape, operands, block, target,
            narrow ? columns : std::max(shape.c_row, columns), add));
      }
      // 2. Rounded once.
      if (narrow)
        round(target, rows, columns,
              reinterpret_cast<BFloat16 *>(operands.c) + place, shape.c_row,
              operands.add);
    }
  return Status::success();
}

/// Offsets are in elements, c is bytes.
Status WidenedGemm::run(const fb::GemmStepT &shape, const BFloat16 *a,
                        const BFloat16 *b, std::byte *c, bool add) {
  int64_t unit = shape.c_dtype == fb::DType::BF16 ? 2 : 4;
  for (int64_t gemm = 0, gemms = countGemms(shape); gemm < gemms; ++gemm) {
    GemmOffsets at = offsetsOf(shape, gemm);
    PLAIT_RETURN_IF_ERROR(
        multiply(shape, {a + at.a, b + at.b, c + at.c * unit, add}));
  }
  return Status::success();
}
