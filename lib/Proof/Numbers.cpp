//===- Numbers.cpp - Arithmetic with bounds of the error ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Running error analysis: of each operand the value in double and a bound of
// how far a kernel's f32 number is from it; of each op what it does to that
// bound, by its Lipschitz constant on the interval, plus its own rounding.
// Where the interval contains a pole or a jump there is no bound, and the
// element is not looked at.
// The value itself is computed in double without an account of its roundings,
// which are 2^29 times smaller than those of f32.
//
//===----------------------------------------------------------------------===//

#include "Numbers.h"

#include "plait/Dialect/NN/IR/NN.h"

#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Below this f32 has fewer digits.
///
/// Every rounded result may be off by this much besides, which covers such
/// numbers, whether they are kept or taken for zero.
static constexpr double kTiny = 0x1p-126;

/// How far the functions of kernels may be from the exact ones, relative to the
/// result (test/Unit/Compiler/Codegen/FunctionsTest.cpp measures half of it or
/// less), and the results below which they are absolute.
static constexpr double kExpError = 6e-7, kLogError = 6e-7, kCurveError = 2e-6,
                        kCurveFloor = 1e-3;

Number proof::roundOnce(double value, double error) {
  if (!(error < kUnknown.error))
    return kUnknown;
  bool isHeld = error == 0 && (std::isnan(value) || float(value) == value);
  if (isHeld || !std::isfinite(value))
    return {value, error};
  // What may pass the largest f32 becomes infinite, or does not.
  if (std::abs(value) + error > 1e38)
    return kUnknown;
  return {value, error + kUnit * std::abs(value) + kTiny};
}

/// |a'b' - ab| ≤ |a|·eb + |b|·ea + ea·eb.
static Number multiply(Number a, Number b) {
  double error = a.error * b.error;
  // An exact infinity has no error to pass on, and 0 · ∞ no number.
  if (a.error != 0)
    error += a.error * std::abs(b.value);
  if (b.error != 0)
    error += b.error * std::abs(a.value);
  return std::isnan(error) ? kUnknown : roundOnce(a.value * b.value, error);
}

/// A kernel may multiply by a rounded reciprocal: two roundings.
///
/// |a'/b' - a/b| ≤ (ea + |a/b|·eb) / (|b| - eb), as long as b cannot be zero.
static Number divide(Number a, Number b) {
  double value = a.value / b.value;
  if (a.isExact() && b.isExact())
    return roundOnce(value, std::isfinite(value) ? kUnit * std::abs(value) : 0);
  if (std::abs(b.value) <= b.error)
    return kUnknown;
  double error = (a.error + (b.error != 0 ? std::abs(value) * b.error : 0)) /
                 (std::abs(b.value) - b.error);
  return std::isnan(error) ? kUnknown
                           : roundOnce(value, error + kUnit * std::abs(value));
}

/// e^(a+e) - e^a = e^a·expm1(e). An exact minus infinity, as of a masked score,
/// gives exactly zero.
static Number exponentiate(Number a) {
  double value = std::exp(a.value);
  if (value == 0 && a.isExact())
    return {0, 0};
  return roundOnce(value, value * (std::expm1(a.error) + kExpError) + kTiny);
}

/// The slope is greatest at the lower end of the interval. Near 1 the result is
/// near 0, hence the function's own error is absolute there.
static Number takeLogarithm(Number a) {
  double value = std::log(a.value);
  if (a.isExact() && !(a.value > 0))
    return {value, 0}; // infinite, or no number
  if (a.value <= a.error)
    return kUnknown;
  return roundOnce(value, a.error / (a.value - a.error) +
                              kLogError * std::max(1.0, std::abs(value)));
}

/// tanh, erf and sigmoid, whose slope is nowhere above `slope`.
static Number bend(double value, Number a, double slope) {
  return roundOnce(value,
                   slope * a.error +
                       kCurveError * std::max(kCurveFloor, std::abs(value)));
}

/// The root is correctly rounded, so only the operand's error counts, by the
/// slope at the lower end. An interval that lies below 0 gives NaN for certain,
/// one that contains 0 nothing that is known.
static Number takeRoot(Number a) {
  double value = std::sqrt(a.value);
  if (a.isExact())
    return roundOnce(value, 0);
  if (a.value <= a.error)
    return a.value + a.error < 0
               ? Number{value, 0}
               : Number{std::isnan(value) ? 0 : value, kUnknown.error};
  return roundOnce(value, a.error / (2 * std::sqrt(a.value - a.error)));
}

/// 1 if a is 0, else 0; either if the error allows both.
static Number compareWithZero(Number a) {
  bool isOpen = a.error > 0 && std::abs(a.value) <= a.error;
  return isOpen ? kUnknown : Number{a.value == 0 ? 1.0 : 0.0, 0};
}

/// 1 if a is above b, else 0; either if the errors allow both.
static Number compareOrder(Number a, Number b) {
  double error = a.error + b.error;
  bool isOpen = error > 0 && !(std::abs(a.value - b.value) > error);
  return isOpen ? kUnknown : Number{a.value > b.value ? 1.0 : 0.0, 0};
}

/// A whole number that i32 has, or the f32 next to one that it has.
static Number convert(nn::ConvertOp op, Number a) {
  if (getElementTypeOrSelf(op.getInput()).isInteger())
    return roundOnce(a.value, a.error);
  auto clamp = [](double value) {
    return std::trunc(std::clamp(value, -0x1p31, 0x1.fffffep30));
  };
  double low = clamp(a.value - a.error), high = clamp(a.value + a.error);
  // No comparison holds of what is no number.
  return low == high ? Number{low, 0} : kUnknown;
}

/// Cancellation needs no case of its own: errors are absolute.
static Number subtract(Number a, Number b) {
  return roundOnce(a.value - b.value, a.error + b.error);
}

/// A minimum moves no further than the operand that moves most, and rounds
/// nothing. NaN wins over numbers.
static Number takeSmaller(Number a, Number b) {
  bool isNan = std::isnan(a.value) || std::isnan(b.value);
  return {isNan ? std::nan("") : std::min(a.value, b.value),
          std::max(a.error, b.error)};
}

/// The nearest integer, of two the even one; unknown where the error allows
/// several.
static Number takeNearest(Number a) {
  if (!(std::abs(a.value) < 0x1p22))
    return a.isExact() ? a : kUnknown;
  double low = std::nearbyint(a.value - a.error),
         high = std::nearbyint(a.value + a.error);
  return low == high ? Number{low, 0} : kUnknown;
}

/// The lowest `bits` bits of each, those of the first operand lowest.
static Number packBits(ArrayRef<Number> x, int64_t bits) {
  uint32_t word = 0;
  for (auto [index, own] : llvm::enumerate(x)) {
    Number code = takeNearest(own);
    if (!code.isKnown() || !(std::abs(code.value) < 0x1p22))
      return kUnknown;
    auto digits =
        static_cast<uint32_t>(int64_t(code.value)) % (uint32_t(1) << bits);
    word += digits << (index * bits);
  }
  return {double(int32_t(word)), 0};
}

std::optional<Number> proof::evaluateElement(Operation *op,
                                             ArrayRef<Number> x) {
  using Result = std::optional<Number>;
  Number one{1, 0};
  for (Number operand : x)
    if (!operand.isKnown())
      return kUnknown;
  return TypeSwitch<Operation *, Result>(op)
      .Case([&](nn::NegOp) { return Number{-x[0].value, x[0].error}; })
      .Case([&](nn::ExpOp) { return exponentiate(x[0]); })
      .Case([&](nn::LogOp) { return takeLogarithm(x[0]); })
      .Case([&](nn::TanhOp) { return bend(std::tanh(x[0].value), x[0], 1); })
      .Case([&](nn::SinOp) { return bend(std::sin(x[0].value), x[0], 1); })
      .Case([&](nn::CosOp) { return bend(std::cos(x[0].value), x[0], 1); })
      .Case([&](nn::ErfOp) { return bend(std::erf(x[0].value), x[0], 1.13); })
      .Case([&](nn::SqrtOp) { return takeRoot(x[0]); })
      .Case([&](nn::RsqrtOp) { return divide(one, takeRoot(x[0])); })
      .Case([&](nn::SigmoidOp) {
        return bend(1 / (1 + std::exp(-x[0].value)), x[0], 0.25);
      })
      .Case([&](nn::IsZeroOp) { return compareWithZero(x[0]); })
      .Case([&](nn::EqualOp) {
        return compareWithZero(
            {x[0].value - x[1].value, x[0].error + x[1].error});
      })
      .Case([&](nn::GreaterOp) { return compareOrder(x[0], x[1]); })
      .Case([&](nn::ConvertOp own) { return convert(own, x[0]); })
      // Kernels compute in f32: a cast within one rounds nothing. What is
      // stored as bf16 is rounded in Elements::evaluate().
      .Case<nn::StopGradientOp, nn::CastOp>([&](auto) { return x[0]; })
      // A rank has one part, and nothing changes.
      .Case<nn::PartsOp, nn::UniteOp>([&](auto) { return x[0]; })
      .Case([&](nn::AddOp) {
        return roundOnce(x[0].value + x[1].value, x[0].error + x[1].error);
      })
      .Case([&](nn::SubOp) { return subtract(x[0], x[1]); })
      .Case([&](nn::MulOp) { return multiply(x[0], x[1]); })
      .Case([&](nn::DivOp) { return divide(x[0], x[1]); })
      .Case([&](nn::MinOp) { return takeSmaller(x[0], x[1]); })
      .Case([&](nn::RoundOp) { return takeNearest(x[0]); })
      .Case([&](nn::PackBitsOp pack) { return packBits(x, pack.getBits()); })
      .Case([&](nn::ScaleOp scale) {
        return multiply(x[0], {scale.getAmount().convertToDouble(), 0});
      })
      .Case([&](nn::ShiftOp shift) {
        return roundOnce(x[0].value + shift.getAmount().convertToDouble(),
                         x[0].error);
      })
      .Case([&](nn::FillOp fill) {
        return Number{fill.getAmount().convertToDouble(), 0};
      })
      .Case([&](nn::ValidOp valid) {
        return Number{
            x[0].value != static_cast<int32_t>(valid.getIgnore()) ? 1.0 : 0.0,
            0};
      })
      .Default([](Operation *) { return Result(); });
}

/// The exponent of the last binary digit that is not 0.
///
/// Of a number that is finite and not 0.
static int findLastDigit(double value) {
  int exponent;
  double mantissa = std::frexp(value, &exponent);
  auto digits = static_cast<uint64_t>(std::abs(mantissa) * 0x1p53);
  return exponent - 53 + llvm::countr_zero(digits);
}

/// 1. If all terms are exact multiples of one power of two, and their
///    magnitudes add up to at most 2^24 of it, each partial sum in any order is
///    held exactly: no error at all, so one term too many shows. What is drawn
///    is mostly so.
/// 2. Else the terms' errors add up, and the roundings are bounded by their
///    likely sum and not by the certain one, which would hide mistakes in long
///    sums.
Number proof::addUp(ArrayRef<Number> terms) {
  double value = 0, error = 0, size = 0;
  int last = 1 << 20;
  for (Number term : terms) {
    if (!term.isKnown())
      return kUnknown;
    value += term.value;
    error += term.error;
    size += std::abs(term.value);
    if (term.value != 0 && std::isfinite(term.value))
      last = std::min(last, findLastDigit(term.value));
  }
  if (!std::isfinite(value))
    return {value, error};
  // 1. Exact.
  // No partial sum needs more than 24 digits.
  if (error == 0 && (size == 0 || size <= std::ldexp(0x1p24, last)))
    return {value, 0};
  if (size + error > 1e38)
    return kUnknown;
  // 2. Rounded.
  // Roundings of either sign: √n of them in place of n, with a chance below
  // 2·exp(-4²/2) per sum of passing 4 (Higham and Mary 2019, theorem 2.4), and
  // the partial sums are mostly smaller than the whole.
  double spread = 4 * std::sqrt(double(terms.size())) * kUnit * size;
  return {value, error + spread + kTiny};
}
