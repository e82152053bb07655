//===- NumberRange.h - Ranges of values -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Abstract interpretation (Cousot and Cousot 1977) of arith and math ops over
// intervals of the extended reals. It says of emitted arithmetic what it makes
// of operands of which little is known: that tanh(0) is 0, that a sigmoid is
// finite, that 0 / 0 may be anything.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_INTERFACES_NUMBERRANGE_H
#define PLAIT_INTERFACES_NUMBERRANGE_H

#include "mlir/IR/Operation.h"

namespace plait {

/// A number, f32 or i32, lies between two bounds, both included. -0 is 0.
struct NumberRange {
  /// Which numbers that are not finite it may be as well: a bound that is
  /// infinite does not say that the number may be.
  enum Special { None, Infinite, NaN };

  double low, high;
  Special special = None;

  static NumberRange any();
  /// Any number but infinities and NaN.
  static NumberRange finite();
  static NumberRange exactly(double value);

  bool is(double value) const;
  bool isFinite() const { return special == None; }
  bool contains(double value) const;

  /// Returns what either may be.
  NumberRange join(const NumberRange &other) const;
  /// Returns what the sum of at least one of such numbers may be.
  NumberRange sum() const;
  NumberRange operator-() const;
  NumberRange operator*(const NumberRange &other) const;
  /// After rounding to bf16, or not.
  NumberRange maybeRounded() const;
};

/// Returns what the result of `op`, of arith or math, which has one, may be. An
/// op that is not known gives any number.
NumberRange evaluate(mlir::Operation *op, llvm::ArrayRef<NumberRange> operands);

} // namespace plait

#endif // PLAIT_INTERFACES_NUMBERRANGE_H
