//===- RowMath.h - Softmax and GELU of rows ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loops that the compiler turns into vector code, once for each level of
// x86-64; the machine's is chosen when the program is loaded. Sums are kept in
// 16 parts that do not depend on the level.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_ROWMATH_H
#define PLAIT_LIB_RUNTIME_CPU_ROWMATH_H

#include "plait/Support/BFloat16.h"

#include <cstdint>

namespace plait::runtime {

/// The largest of `count` numbers, at least one.
float maximum(const float *row, int64_t count);

/// row[i] = exp(row[i] - shift); returns the sum. The exponential is off by at
/// most 1e-7 of itself (Cephes' polynomial), and 0 below exp(-87).
float exponentiate(float *row, int64_t count, float shift);

/// The sum of a[i] b[i].
float dot(const float *a, const float *b, int64_t count);

/// row[i] becomes 0 where dropout drops the element of index `first` + i, whose
/// hash up to its row is `hash`, and scale · row[i] elsewhere: see
/// DropoutMask.h.
void drop(float *row, int64_t count, uint32_t hash, uint32_t first,
          uint64_t threshold, float scale);

/// row[i] *= other[i].
void multiply(float *row, const float *other, int64_t count);

/// row[i] *= factor.
void scale(float *row, int64_t count, float factor);

/// row[i] = weight[i] * (row[i] - shift).
void weigh(float *row, const float *weights, int64_t count, float shift);

/// row[i] += other[i].
void add(float *row, const float *other, int64_t count);

/// row[i] = c tanh(row[i] / c), off by at most 2e-7 of itself; slopes[i], where
/// they are asked for, what that is multiplied by as row[i] grows: 1 - tanh².
void softCap(float *row, int64_t count, float c, float *slopes);

/// row[i] = gelu(row[i]), in the tanh form: row[i] σ(2u), u = sqrt(2/π) (x +
/// 0.044715 x³), since (1 + tanh u) / 2 = σ(2u). σ is off by at most 2e-7.
void gelu(float *row, int64_t count);

/// row[i] *= gelu'(x[i]).
void multiplyByGeluSlope(float *row, const float *x, int64_t count);

void widen(const BFloat16 *source, float *target, int64_t count);
void narrow(const float *source, BFloat16 *target, int64_t count);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_ROWMATH_H
