//===- Epilogue.cpp - Epilogues of GEMMs ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a GPU's library fuses into a GEMM (bias, GELU, GELU's gradient), done on
// processors behind it: one pass over C by blocks of a row, so that all
// intermediate numbers stay in f32 and in the cache. RowMath has the
// arithmetic.
//
//===----------------------------------------------------------------------===//

#include "Epilogue.h"

#include "RowMath.h"
#include "Team.h"

#include <algorithm>
#include <type_traits>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Rows that are worth a thread.
constexpr int64_t grain = 16;
/// Numbers that are computed with at once: they stay in the first-level cache.
constexpr int64_t blockSize = 512;

/// Loads and stores numbers of type T as floats. Rounding happens in store()
/// alone.
template <typename T> struct Memory {
  static void load(const T *source, float *target, int64_t count) {
    if constexpr (std::is_same_v<T, float>)
      std::copy_n(source, count, target);
    else
      widen(source, target, count);
  }
  static void store(const float *source, T *target, int64_t count) {
    if constexpr (std::is_same_v<T, float>)
      std::copy_n(source, count, target);
    else
      narrow(source, target, count);
  }
};

/// Takes at most blockSize numbers of one row of C, from `column` on, in f32
/// through the whole epilogue. GELU's input, which backward needs, is stored
/// before GELU overwrites it.
template <typename T>
void applyToBlock(const fb::GemmStepT &shape, const GemmOperands &operands,
                  int64_t row, int64_t column, int64_t count) {
  float values[blockSize], others[blockSize];
  int64_t place = row * shape.c_row + column;
  T *c = reinterpret_cast<T *>(operands.c) + place;
  // Null stays null.
  auto *input = reinterpret_cast<T *>(operands.geluInput);
  if (input)
    input += place;
  Memory<T>::load(c, values, count);
  if (shape.epilogue == fb::Epilogue::GeluGradient) {
    Memory<T>::load(input, others, count);
    multiplyByGeluSlope(values, others, count);
  }
  if (operands.bias) {
    Memory<T>::load(reinterpret_cast<const T *>(operands.bias) + column, others,
                    count);
    add(values, others, count);
  }
  if (shape.epilogue == fb::Epilogue::Gelu ||
      shape.epilogue == fb::Epilogue::BiasGelu) {
    if (input)
      Memory<T>::store(values, input, count);
    gelu(values, count);
  }
  Memory<T>::store(values, c, count);
}

template <typename T>
void applyToRows(unsigned threads, const fb::GemmStepT &shape,
                 const GemmOperands &operands) {
  parallelFor(threads, shape.m, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t column = 0; column < shape.n; column += blockSize)
        applyToBlock<T>(shape, operands, row, column,
                        std::min(blockSize, shape.n - column));
  });
}

} // namespace

/// The epilogue's tensors have C's type; the checker allows no batch with one.
void runtime::applyEpilogue(unsigned threads, const fb::GemmStepT &shape,
                            const GemmOperands &operands) {
  if (shape.epilogue == fb::Epilogue::None)
    return;
  if (shape.c_dtype == fb::DType::BF16)
    applyToRows<BFloat16>(threads, shape, operands);
  else
    applyToRows<float>(threads, shape, operands);
}
