//===- RowMath.cpp - Softmax and GELU of rows -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One source for all levels of x86-64: target_clones compiles each function for
// several and picks one at load time. Loops are written so that any compiler
// vectorises them: without branches, with sums in 16 independent parts, which
// is one register of AVX-512 and two of AVX2. As the parts do not depend on the
// level, neither does the order in which a sum is taken.
//
//===----------------------------------------------------------------------===//

#include "RowMath.h"

#include "plait/Support/DropoutMask.h"

#include <algorithm>
#include <bit>
#include <cmath>

using namespace plait;

#if defined(__x86_64__)
#define PLAIT_FOR_EACH_LEVEL                                                   \
  __attribute__((                                                              \
      target_clones("default", "arch=haswell", "arch=skylake-avx512")))
#else
#define PLAIT_FOR_EACH_LEVEL
#endif

namespace {

/// Floats of the widest register.
constexpr int64_t lanes = 16;

/// Cephes' expf: x = n log 2 + r, |r| <= log(2) / 2, exp x = 2^n P(r). Takes no
/// branch, and converts nothing to integers that these cannot hold.
[[gnu::always_inline]] inline float exponential(float x) {
  // Adding 1.5 * 2^23 leaves the integer next to x / log 2 in the low bits.
  constexpr float magic = 12582912.0f;
  float shifted = x * 1.44269504088896341f + magic;
  float n = shifted - magic;
  // log 2 in two parts, the first of which has few digits.
  float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  uint32_t exponent = std::bit_cast<uint32_t>(shifted) << 23;
  float power = std::bit_cast<float>(exponent + 0x3f800000u);
  return x < -87.0f ? 0.0f : p * power;
}

/// 2u of GELU's tanh form is x (linear + cubic x²).
constexpr float linear = 1.5957691216057308f, cubic = 0.044715f * linear;

/// σ(v) and its slope, by the power that does not overflow.
struct Sigmoid {
  float value, slope;
};
[[gnu::always_inline]] inline Sigmoid sigmoid(float v) {
  float power = exponential(-std::abs(v));
  float inverse = 1.0f / (1.0f + power);
  return {v < 0.0f ? power * inverse : inverse, power * inverse * inverse};
}

/// The parts in their order: the same on every machine.
[[gnu::always_inline]] inline float sumOf(const float (&parts)[lanes]) {
  float sum = 0;
  for (float part : parts)
    sum += part;
  return sum;
}

} // namespace

/// There is one element at least, from which all parts start.
PLAIT_FOR_EACH_LEVEL
float runtime::maximum(const float *row, int64_t count) {
  float parts[lanes];
  std::fill(parts, parts + lanes, row[0]);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      parts[lane] = std::max(parts[lane], row[i + lane]);
  for (; i < count; ++i)
    parts[0] = std::max(parts[0], row[i]);
  return *std::max_element(parts, parts + lanes);
}

/// One pass: what is stored is what is summed. With the row's maximum as shift
/// every power is at most 1, and the sum at least 1.
PLAIT_FOR_EACH_LEVEL
float runtime::exponentiate(float *row, int64_t count, float shift) {
  float parts[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane) {
      row[i + lane] = exponential(row[i + lane] - shift);
      parts[lane] += row[i + lane];
    }
  for (; i < count; ++i) {
    row[i] = exponential(row[i] - shift);
    parts[0] += row[i];
  }
  return sumOf(parts);
}

/// The products of a part are added by themselves, so that a fused multiply-add
/// of the levels that have one is a rounding less and never another order.
PLAIT_FOR_EACH_LEVEL
float runtime::dot(const float *a, const float *b, int64_t count) {
  float parts[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      parts[lane] += a[i + lane] * b[i + lane];
  for (; i < count; ++i)
    parts[0] += a[i] * b[i];
  return sumOf(parts);
}

/// The hash is extended by the index only, a mix of three multiplications: what
/// it has in common along a row is the caller's. Written as a choice so that it
/// vectorises.
PLAIT_FOR_EACH_LEVEL
void runtime::drop(float *row, int64_t count, uint32_t hash, uint32_t first,
                   uint64_t threshold, float scale) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t own = extendMaskHash(MaskWords(), hash, first + uint32_t(i));
    row[i] = own < threshold ? scale * row[i] : 0.0f;
  }
}

PLAIT_FOR_EACH_LEVEL
void runtime::multiply(float *row, const float *other, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    row[i] *= other[i];
}

PLAIT_FOR_EACH_LEVEL
void runtime::scale(float *row, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i)
    row[i] *= factor;
}

PLAIT_FOR_EACH_LEVEL
void runtime::weigh(float *row, const float *weights, int64_t count,
                    float shift) {
  for (int64_t i = 0; i < count; ++i)
    row[i] = weights[i] * (row[i] - shift);
}

PLAIT_FOR_EACH_LEVEL
void runtime::add(float *row, const float *other, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    row[i] += other[i];
}

/// Near 0, where one of a difference would be left, tanh is its series.
[[gnu::always_inline]] inline float hyperbolicTangent(float x) {
  float power = exponential(-2.0f * std::abs(x));
  float far = std::copysign((1.0f - power) / (1.0f + power), x);
  float s = x * x;
  float near =
      x +
      x * s *
          (-1.0f / 3 +
           s * (2.0f / 15 + s * (-17.0f / 315 +
                                 s * (62.0f / 2835 - s * 1382.0f / 155925))));
  return std::abs(x) < 0.35f ? near : far;
}

PLAIT_FOR_EACH_LEVEL
void runtime::softCap(float *row, int64_t count, float c, float *slopes) {
  float inverse = 1.0f / c;
  for (int64_t i = 0; i < count; ++i)
    row[i] = hyperbolicTangent(row[i] * inverse);
  if (slopes)
    for (int64_t i = 0; i < count; ++i)
      slopes[i] = 1.0f - row[i] * row[i];
  scale(row, count, c);
}

/// Computes it by the logistic function, which needs one exponential, and no
/// tanh.
PLAIT_FOR_EACH_LEVEL
void runtime::gelu(float *row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    float x = row[i];
    row[i] = x * sigmoid(x * (linear + cubic * x * x)).value;
  }
}

/// The slope is σ(v) + x σ'(v) v', with v = x (linear + cubic x²) and so v' =
/// linear + 3 cubic x².
PLAIT_FOR_EACH_LEVEL
void runtime::multiplyByGeluSlope(float *row, const float *x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    float square = x[i] * x[i];
    Sigmoid s = sigmoid(x[i] * (linear + cubic * square));
    row[i] *= s.value + x[i] * s.slope * (linear + 3.0f * cubic * square);
  }
}

PLAIT_FOR_EACH_LEVEL
void runtime::widen(const BFloat16 *source, float *target, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    target[i] = source[i];
}

/// Rounds to nearest even, in integers, as kernels do.
PLAIT_FOR_EACH_LEVEL
void runtime::narrow(const float *source, BFloat16 *target, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    target[i] = BFloat16(source[i]);
}
