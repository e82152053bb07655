//===- WidenedGemm.h - bf16 GEMMs on any processor --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For processors without fast instructions for bf16: blocks of the operands are
// widened, which is exact, and multiplied by dnnl_sgemm. Sums stay in f32 until
// a block of C is complete, and are rounded once.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_WIDENEDGEMM_H
#define PLAIT_LIB_RUNTIME_CPU_WIDENEDGEMM_H

#include "GemmShape.h"
#include "plait/Support/BFloat16.h"
#include "plait/Support/Status.h"

#include <cstddef>
#include <vector>

namespace plait::runtime {

/// Used by one thread, which is the master of a team of `threads` (see Team.h).
class WidenedGemm {
public:
  explicit WidenedGemm(unsigned threads);

  /// C = A B or, with `add`, C += A B for every GEMM of the batch; A and B
  /// are bf16, C is of `shape.c_dtype`.
  Status run(const plan::fb::GemmStepT &shape, const BFloat16 *a,
             const BFloat16 *b, std::byte *c, bool add);

private:
  /// Rows and columns of a block: each of its numbers is widened once for so
  /// many multiplications, and three blocks stay in a second-level cache.
  static constexpr int64_t size = 512;

  struct Block {
    int64_t m, n, k;             // where it begins
    int64_t rows, columns, deep; // and its extents
  };
  struct Operands {
    const BFloat16 *a, *b;
    std::byte *c;
    bool add;
  };

  Status multiply(const plan::fb::GemmStepT &shape, const Operands &operands);
  Status multiplyBlock(const plan::fb::GemmStepT &shape,
                       const Operands &operands, const Block &block, float *c,
                       int64_t rowStride, bool add);
  bool widen(const BFloat16 *source, int64_t rows, int64_t rowStride,
             int64_t columns, int64_t columnStride, float *target);
  void round(const float *source, int64_t rows, int64_t columns,
             BFloat16 *target, int64_t rowStride, bool add);

  unsigned threads;
  std::vector<float> blockA, blockB, blockC;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_WIDENEDGEMM_H
