//===- NumberRange.cpp - Ranges of values ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bounds are doubles, in which every f32 and i32 is exact, and are moved apart
// after each operation by more than generated code may round. So what is
// claimed of a range holds of vector code, of GPUs and of approximated
// functions alike; what is lost is width, and padding needs little: zero, a
// constant, finite. Numbers that stay exact stay so: 0 + 0 is 0 and nothing
// beside it.
//
// A bound may be infinite because nothing is known (`None`), or because the
// number may be (`Infinite`): that infinity times zero is no number matters in
// the second case alone.
//
//===----------------------------------------------------------------------===//

#include "plait/Interfaces/NumberRange.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cfloat>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace plait;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// The errors that generated code may have: an ulp of f32 for arithmetic, some
/// for functions, half of an ulp for bf16.
static constexpr double kRounding = 0x1p-22, kFunctionError = 0x1p-18,
                        kHalfRounding = 0x1p-8;

//===----------------------------------------------------------------------===//
// Ranges
//===----------------------------------------------------------------------===//

NumberRange NumberRange::any() { return {-kInfinity, kInfinity, NaN}; }
NumberRange NumberRange::finite() { return {-kInfinity, kInfinity, None}; }

NumberRange NumberRange::exactly(double value) {
  if (std::isnan(value))
    return any();
  return {value, value, std::isinf(value) ? Infinite : None};
}

/// Whether it is of one number; nothing is ever known to be NaN alone.
bool NumberRange::is(double value) const {
  return low == value && high == value && special != NaN;
}

bool NumberRange::contains(double value) const {
  if (std::isnan(value))
    return special == NaN;
  if (std::isinf(value) && special == None)
    return false;
  return low <= value && value <= high;
}

/// Specials are ordered: what may be NaN may be infinite, too.
NumberRange NumberRange::join(const NumberRange &other) const {
  return {std::min(low, other.low), std::max(high, other.high),
          std::max(special, other.special)};
}

/// Whether the number may be infinite on the side of `sign`.
static bool isInfinite(const NumberRange &range, double sign) {
  return range.special != NumberRange::None &&
         (sign > 0 ? range.high : -range.low) == kInfinity;
}

static bool isAnyInfinite(const NumberRange &range) {
  return isInfinite(range, 1) || isInfinite(range, -1);
}

/// The bounds moved apart by what rounding may do, except for a number that
/// `isExact` in the narrow type. Numbers beyond the largest become infinite;
/// those below the smallest normal one may be flushed to zero.
static NumberRange widen(NumberRange range, double error,
                         function_ref<bool(double)> isExact) {
  if (range.low == range.high && isExact(range.low))
    return range;
  if (std::isfinite(range.low))
    range.low -= std::abs(range.low) * error;
  if (std::isfinite(range.high))
    range.high += std::abs(range.high) * error;
  // GPUs and processors may be set to flush subnormals.
  if (range.low > 0 && range.low < FLT_MIN)
    range.low = 0;
  if (range.high < 0 && range.high > -FLT_MIN)
    range.high = 0;
  // What overflows in f32 is infinite, not a large number.
  for (double *bound : {&range.low, &range.high})
    if (std::isfinite(*bound) && std::abs(*bound) > FLT_MAX) {
      *bound = std::copysign(kInfinity, *bound);
      range.special = std::max(range.special, NumberRange::Infinite);
    }
  return range;
}

/// Whether f32 holds it without rounding or flushing.
static bool isFloat(double value) {
  return static_cast<double>(static_cast<float>(value)) == value &&
         (value == 0 || std::abs(value) >= FLT_MIN);
}

static NumberRange rounded(NumberRange range) {
  return widen(range, kRounding, isFloat);
}

NumberRange NumberRange::maybeRounded() const {
  return widen(*this, kHalfRounding, [](double value) {
    // Eight bits of significand.
    int exponent;
    double scaled = std::ldexp(std::frexp(value, &exponent), 8);
    return std::isinf(value) ||
           (isFloat(value) && std::trunc(scaled) == scaled);
  });
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

NumberRange NumberRange::operator-() const { return {-high, -low, special}; }

/// Infinity less infinity is no number; all else adds by bounds, which grow in
/// both operands.
static NumberRange add(const NumberRange &a, const NumberRange &b) {
  if ((isInfinite(a, 1) && isInfinite(b, -1)) ||
      (isInfinite(a, -1) && isInfinite(b, 1)))
    return NumberRange::any();
  NumberRange sum{a.low + b.low, a.high + b.high,
                  std::max(a.special, b.special)};
  // Of bounds that stand for "unknown" on opposite sides.
  if (std::isnan(sum.low))
    sum.low = -kInfinity;
  if (std::isnan(sum.high))
    sum.high = kInfinity;
  return rounded(sum);
}

/// Multiplies bounds: where an infinite one stands for numbers without a bound,
/// times zero is zero.
static double multiplyBounds(double a, double b) {
  return a == 0 || b == 0 ? 0 : a * b;
}

NumberRange NumberRange::operator*(const NumberRange &other) const {
  if ((isAnyInfinite(*this) && other.contains(0)) ||
      (isAnyInfinite(other) && contains(0)))
    return any();
  // A product is monotone in each operand, so that its extremes are at the
  // corners.
  auto [least, most] = std::minmax(
      {multiplyBounds(low, other.low), multiplyBounds(low, other.high),
       multiplyBounds(high, other.low), multiplyBounds(high, other.high)});
  return rounded({least, most, std::max(special, other.special)});
}

/// A divisor that may be zero gives anything.
static NumberRange divide(const NumberRange &a, const NumberRange &b) {
  if (b.contains(0) || (isAnyInfinite(a) && isAnyInfinite(b)))
    return NumberRange::any();
  // The divisor has one sign, so that the inverse falls between its ends.
  NumberRange inverse{1 / b.high, 1 / b.low,
                      b.special == NumberRange::NaN ? NumberRange::NaN
                                                    : NumberRange::None};
  // The division is rounded once, not the inverse.
  return a * inverse;
}

/// Sums any number of them: one of the same sign does not come closer to zero
/// than each of its terms, one of both signs may be anything finite, or
/// infinite where as many terms as a tensor may have overflow.
NumberRange NumberRange::sum() const {
  if (is(0))
    return *this;
  constexpr double mostTerms = 0x1p40; // 4 TiB in f32
  NumberRange twice = add(*this, *this), most = *this * exactly(mostTerms);
  return {low >= 0 ? low * (1 - kRounding) : -kInfinity,
          high <= 0 ? high * (1 - kRounding) : kInfinity,
          std::max(twice.special, most.special)};
}

/// The larger of a and b; NaN if one is.
static NumberRange maximum(const NumberRange &a, const NumberRange &b) {
  return {std::max(a.low, b.low), std::max(a.high, b.high),
          std::max(a.special, b.special)};
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// Generated code may approximate functions. Only zero is taken for exact.
static NumberRange approximate(NumberRange range) {
  return widen(range, kFunctionError, [](double value) { return value == 0; });
}

/// Never negative, and infinite where the upper end overflows; of minus
/// infinity it is zero.
static NumberRange exponential(const NumberRange &x) {
  NumberRange::Special special =
      x.special == NumberRange::NaN ? NumberRange::NaN
      : std::exp(x.high) > FLT_MAX  ? NumberRange::Infinite
                                    : NumberRange::None;
  return approximate({std::exp(x.low), std::exp(x.high), special});
}

/// No number below zero, minus infinity at zero.
static NumberRange logarithm(const NumberRange &x) {
  if (x.low < 0 || x.special == NumberRange::NaN)
    return NumberRange::any();
  NumberRange result{std::log(x.low), std::log(x.high),
                     x.low == 0 ? NumberRange::Infinite : x.special};
  return approximate(result);
}

static NumberRange squareRoot(const NumberRange &x) {
  if (x.low < 0 || x.special == NumberRange::NaN)
    return NumberRange::any();
  return approximate({std::sqrt(x.low), std::sqrt(x.high), x.special});
}

/// An odd function that grows to 1.
static NumberRange squash(const NumberRange &x) {
  if (x.special == NumberRange::NaN)
    return NumberRange::any();
  return approximate(
      {x.low >= 0 ? 0.0 : -1.0, x.high <= 0 ? 0.0 : 1.0, NumberRange::None});
}

//===----------------------------------------------------------------------===//
// Integers and conditions
//===----------------------------------------------------------------------===//

static NumberRange anyInteger(Type type) {
  if (type.isInteger(1))
    return {0, 1};
  return {std::numeric_limits<int32_t>::min(),
          std::numeric_limits<int32_t>::max()};
}

/// An integer that may have wrapped round is any.
static NumberRange wrapped(NumberRange range, Type type) {
  NumberRange all = anyInteger(type);
  return range.low < all.low || range.high > all.high ? all : range;
}

/// Conditions are numbers, 0 or 1, so that a select can ask of them what it
/// asks of any.
static NumberRange known(bool value) { return NumberRange::exactly(value); }
static constexpr NumberRange kUnknown{0, 1};

/// Never where the ranges do not meet, always where both are one number.
static NumberRange equal(const NumberRange &a, const NumberRange &b) {
  if (a.low > b.high || b.low > a.high)
    return known(false);
  return a.low == a.high && b.is(a.low) && a.is(a.low) ? known(true) : kUnknown;
}

static NumberRange less(const NumberRange &a, const NumberRange &b) {
  if (a.high < b.low)
    return known(true);
  return a.low >= b.high ? known(false) : kUnknown;
}

/// Negates a condition.
static NumberRange negate(const NumberRange &a) {
  return {1 - a.high, 1 - a.low};
}

/// Indices and ids are signed; the unsigned comparison of dropout's hash says
/// nothing.
static NumberRange compare(arith::CmpIOp op, const NumberRange &a,
                           const NumberRange &b) {
  switch (op.getPredicate()) {
  case arith::CmpIPredicate::eq:
    return equal(a, b);
  case arith::CmpIPredicate::ne:
    return negate(equal(a, b));
  case arith::CmpIPredicate::slt:
    return less(a, b);
  case arith::CmpIPredicate::sge:
    return negate(less(a, b));
  case arith::CmpIPredicate::sgt:
    return less(b, a);
  case arith::CmpIPredicate::sle:
    return negate(less(b, a));
  default: // unsigned ones
    return kUnknown;
  }
}

/// Ordered and unordered forms differ for NaN alone, which is answered first.
static NumberRange compare(arith::CmpFOp op, const NumberRange &a,
                           const NumberRange &b) {
  if (a.special == NumberRange::NaN || b.special == NumberRange::NaN)
    return kUnknown;
  switch (op.getPredicate()) {
  case arith::CmpFPredicate::OEQ:
  case arith::CmpFPredicate::UEQ:
    return equal(a, b);
  case arith::CmpFPredicate::ONE:
  case arith::CmpFPredicate::UNE:
    return negate(equal(a, b));
  case arith::CmpFPredicate::OLT:
  case arith::CmpFPredicate::ULT:
    return less(a, b);
  case arith::CmpFPredicate::OGE:
  case arith::CmpFPredicate::UGE:
    return negate(less(a, b));
  case arith::CmpFPredicate::OGT:
  case arith::CmpFPredicate::UGT:
    return less(b, a);
  case arith::CmpFPredicate::OLE:
  case arith::CmpFPredicate::ULE:
    return negate(less(b, a));
  default: // constants and tests for NaN
    return kUnknown;
  }
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

static NumberRange constant(arith::ConstantOp op) {
  Attribute value = op.getValue();
  if (auto number = dyn_cast<FloatAttr>(value))
    return NumberRange::exactly(number.getValueAsDouble());
  if (auto number = dyn_cast<IntegerAttr>(value))
    return NumberRange::exactly(number.getType().isInteger(1)
                                    ? number.getValue().getZExtValue()
                                    : number.getValue().getSExtValue());
  return NumberRange::any();
}

static NumberRange multiply(Operation *op, ArrayRef<NumberRange> x) {
  NumberRange product = x[0] * x[1];
  // A square is not negative.
  if (op->getOperand(0) == op->getOperand(1))
    product.low = std::max(product.low, 0.0);
  return product;
}

/// Evaluates what nn ops emit. Any other op gives any number, which is always
/// right: the price is a mask that was not needed.
static NumberRange evaluateFloat(Operation *op, ArrayRef<NumberRange> x) {
  return llvm::TypeSwitch<Operation *, NumberRange>(op)
      .Case([&](arith::NegFOp) { return -x[0]; })
      .Case([&](arith::AddFOp) { return add(x[0], x[1]); })
      .Case([&](arith::SubFOp) { return add(x[0], -x[1]); })
      .Case([&](arith::MulFOp) { return multiply(op, x); })
      .Case([&](arith::DivFOp) { return divide(x[0], x[1]); })
      .Case([&](math::FmaOp) { return add(x[0] * x[1], x[2]); })
      .Case([&](arith::MaximumFOp) { return maximum(x[0], x[1]); })
      .Case([&](arith::MinimumFOp) { return -maximum(-x[0], -x[1]); })
      .Case([&](math::AbsFOp) { return maximum(x[0], -x[0]); })
      .Case([&](math::ExpOp) { return exponential(x[0]); })
      .Case([&](math::LogOp) { return logarithm(x[0]); })
      .Case([&](math::SqrtOp) { return squareRoot(x[0]); })
      .Case<math::TanhOp, math::ErfOp>([&](auto) { return squash(x[0]); })
      .Default([](Operation *) { return NumberRange::any(); });
}

/// A condition that is known picks one side. This is what derives that a masked
/// element is zero.
static NumberRange choose(ArrayRef<NumberRange> x) {
  if (x[0].is(1))
    return x[1];
  return x[0].is(0) ? x[2] : x[1].join(x[2]);
}

NumberRange plait::evaluate(Operation *op, ArrayRef<NumberRange> x) {
  Type type = op->getResult(0).getType();
  if (auto compared = dyn_cast<arith::CmpFOp>(op))
    return compare(compared, x[0], x[1]);
  if (isa<arith::SelectOp>(op))
    return choose(x);
  if (auto number = dyn_cast<arith::ConstantOp>(op))
    return constant(number);
  if (isa<FloatType>(type))
    return evaluateFloat(op, x);
  if (!type.isInteger())
    return NumberRange::any();
  return llvm::TypeSwitch<Operation *, NumberRange>(op)
      .Case(
          [&](arith::CmpIOp compared) { return compare(compared, x[0], x[1]); })
      .Case([&](arith::AddIOp) {
        return wrapped({x[0].low + x[1].low, x[0].high + x[1].high}, type);
      })
      .Case([&](arith::SubIOp) {
        return wrapped({x[0].low - x[1].high, x[0].high - x[1].low}, type);
      })
      .Default([&](Operation *) { return anyInteger(type); });
}
