//===- GemmShape.h - Layout of GEMMs done by blocks -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the kinds of GEMMs that are done block by block (FloatGemm.h,
// WidenedGemm.h, GroupedGemm.h) ask of a step and of their copies of operands.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_GEMMSHAPE_H
#define PLAIT_LIB_RUNTIME_CPU_GEMMSHAPE_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <algorithm>
#include <cstdint>
#include <dnnl_types.h>

namespace plait::runtime {

/// oneDNN's C interface reports by a number, its C++ one by exceptions.
inline Status checkDnnl(dnnl_status_t status) {
  if (status == dnnl_success)
    return Status::success();
  return fail("oneDNN failed with status ", status);
}

/// Floats of a line of the cache.
inline constexpr int64_t kLineFloats = 16;

/// The GEMMs of the batch.
inline int64_t countGemms(const plan::fb::GemmStepT &shape) {
  int64_t gemms = 1;
  for (int64_t count : shape.batch)
    gemms *= count;
  return gemms;
}

/// The places where operands of one GEMM of the batch begin, in elements.
struct GemmOffsets {
  int64_t a = 0, b = 0, c = 0;
};

/// Returns the offsets of number `gemm`: the last dimension of the batch counts
/// fastest. Strides of 0 repeat an operand.
inline GemmOffsets offsetsOf(const plan::fb::GemmStepT &shape, int64_t gemm) {
  GemmOffsets offsets;
  for (size_t dim = shape.batch.size(); dim-- > 0;) {
    int64_t index = gemm % shape.batch[dim];
    gemm /= shape.batch[dim];
    offsets.a += index * shape.a_batch[dim];
    offsets.b += index * shape.b_batch[dim];
    offsets.c += index * shape.c_batch[dim];
  }
  return offsets;
}

/// The least stride for rows of `width` floats with which they begin in all
/// sets of a cache alike, however many rows there are: an odd number of lines.
/// A power of two of lines would put them all in a few sets, which hold no more
/// than some of them at a time.
inline constexpr int64_t spreadRows(int64_t width) {
  return ((width + kLineFloats - 1) / kLineFloats | 1) * kLineFloats;
}

/// Whether rows that lie `stride` floats apart, and that oneDNN reads where
/// they lie, are better copied for `uses` rows or columns of the other operand.
/// By measurement (AVX2; GPT-2's and Llama's widths, 8 to 1024 uses): rows that
/// all begin in one of the first cache's 64 sets pay for their copy from 32
/// uses on, those that begin in twice as many sets from twice as many uses on.
inline constexpr bool isWorthCopying(int64_t stride, int64_t uses) {
  if (stride % kLineFloats)
    return false;
  int64_t lines = stride / kLineFloats;
  return std::min<int64_t>(lines & -lines, 64) * uses >= 2048;
}

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_GEMMSHAPE_H
