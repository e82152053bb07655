//===- FloatGemm.h - f32 GEMMs by dnnl_sgemm --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// dnnl_sgemm packs the operands of large GEMMs; those of small ones it reads
// where they lie. Then it matters how far rows lie apart: a multiple of some
// KiB puts them into a few sets of the first cache, where they displace each
// other, and the GEMM takes up to four times as long (AVX2, Zen 3: 20-45
// GFLOP/s instead of 70-85). Widths of models are such multiples. Operands like
// that are copied first, block by block, into rows that lie better.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_FLOATGEMM_H
#define PLAIT_LIB_RUNTIME_CPU_FLOATGEMM_H

#include "GemmShape.h"
#include "plait/Support/Status.h"

#include <dnnl.h>
#include <vector>

namespace plait::runtime {

/// Used by one thread, which is the master of a team of `threads` (see Team.h).
class FloatGemm {
public:
  /// Copies nothing unless `readsInPlace`.
  explicit FloatGemm(unsigned threads,
                     bool readsInPlace = machineReadsInPlace())
      : threads(threads), readsInPlace(readsInPlace) {}

  /// Whether oneDNN uses its code for AVX2 here. That for AVX-512 was not
  /// measured with copies.
  static bool machineReadsInPlace();

  /// Whether operands of `shape`, which are f32, are better copied.
  bool copies(const plan::fb::GemmStepT &shape) const;

  /// Makes room for the copies that run() takes for `shape`: up to 6 MiB a
  /// thread, once for all shapes.
  void prepare(const plan::fb::GemmStepT &shape);

  /// C = A B or, with `add`, C += A B: a single GEMM, or a batch of which
  /// operands are copied.
  Status run(const plan::fb::GemmStepT &shape, const float *a, const float *b,
             float *c, bool add);

private:
  /// How the GEMMs are cut: each task is a block of C. An operand that is not
  /// copied is not cut.
  struct Cut {
    bool copyA, copyB;
    int64_t gemms;
    int64_t height, width; // of a block
    int64_t rows, columns; // blocks of one C

    int64_t tasks() const { return gemms * rows * columns; }
  };
  struct Operands {
    const float *a, *b;
    float *c;
    bool add;
  };
  struct alignas(4 * kLineFloats) Line {
    float floats[kLineFloats];
  };

  Cut cut(const plan::fb::GemmStepT &shape) const;
  static dnnl_status_t multiplyBlock(const plan::fb::GemmStepT &shape,
                                     const Cut &cut, const Operands &operands,
                                     int64_t task, float *room);

  unsigned threads;
  bool readsInPlace;
  std::vector<std::vector<Line>> rooms; // a thread's
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_FLOATGEMM_H
