//===- GemmLayout.h - GEMMs as cuBLASLt sees them ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuBLASLt thinks in columns. A row-major C = A B is the column-major
// C^T = B^T A^T over the same bytes: the operands change places, and a matrix
// whose rows are contiguous needs no transposition. cuBLASLt also knows only
// one batch dimension; the others become several GEMMs.
//
// Sizes may cost much. Of bf16 operands, cuBLASLt's fast kernels take only
// those whose contiguous dimension is a multiple of 8 elements, however far
// apart rows lie: with 65,536 rows and the vocabulary of GPT-2, 50257, an H200
// computes the logits in 49 ms and the gradient of their input in 39, where
// sizes that are multiples take 7 (docs/GPU.md). Such a GEMM is cut in two: a
// multiple of 64, and the rest.
//
// Nothing here needs a GPU or its libraries.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_GEMMLAYOUT_H
#define PLAIT_LIB_RUNTIME_CUDA_GEMMLAYOUT_H

#include "plait/Plan/Plan_generated.h"

#include <cstdint>
#include <vector>

namespace plait::runtime {

/// A matrix in memory, column-major: `rows` and `columns` as stored, that is
/// before `transposed` applies. Strides are in elements.
struct GemmMatrix {
  bool transposed = false;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t leading = 0;     // from column to column
  int64_t batchStride = 0; // from GEMM to GEMM
  plan::fb::DType type = plan::fb::DType::F32;

  bool operator==(const GemmMatrix &) const = default;
};

/// C (+)= op(A) op(B), `batch` times, for each of `places`.
struct GemmLayout {
  /// The place where the first matrix of a batch begins, from the operand's
  /// address.
  struct Place {
    int64_t a, b, c;
    bool operator==(const Place &) const = default;
  };

  GemmMatrix a, b, c; // a is the step's B, b its A
  int64_t batch = 1;
  std::vector<Place> places;
  uint32_t alignment = 0; // bytes, of all matrices

  /// Whether it adds to what the GEMMs of the same step before it have left in
  /// C.
  bool adds = false;

  plan::fb::Epilogue epilogue = plan::fb::Epilogue::None;
  bool hasGeluInput = false;       // it lies like c
  uint32_t epilogueAlignment = 64; // bytes, of GELU's input and the bias

  bool operator==(const GemmLayout &) const = default;
};

/// Lists what computes `step`, in order: one, but for odd sizes. The step must
/// have passed the plan checker. Addresses that slots are bound to count as
/// multiples of 64.
std::vector<GemmLayout> layoutGemm(const plan::fb::GemmStep &step);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_GEMMLAYOUT_H
