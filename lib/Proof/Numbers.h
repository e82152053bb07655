//===- Numbers.h - Arithmetic with bounds of the error ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Elementwise ops on numbers and their errors (Elements.h).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_NUMBERS_H
#define PLAIT_LIB_PROOF_NUMBERS_H

#include "Elements.h"

#include <optional>

namespace plait::proof {

/// The unit roundoff of f32, and of bf16.
inline constexpr double kUnit = 0x1p-24, kHalfUnit = 0x1p-8;

inline constexpr Number kUnknown{0, std::numeric_limits<double>::infinity()};

/// `value`, computed by one op in f32 from operands that contribute `error`.
/// What f32 holds exactly is not rounded.
Number roundOnce(double value, double error);

/// What an elementwise op makes of its operands' elements at the same place;
/// nothing: it has no rule.
std::optional<Number> evaluateElement(mlir::Operation *op,
                                      llvm::ArrayRef<Number> operands);

/// The sum of `terms`, added up in any order.
Number addUp(llvm::ArrayRef<Number> terms);

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_NUMBERS_H
