//===- Scalars.h - Bounds of what the trainer sets --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What plans rely on of enum Scalar in lib/Plan/Plan.fbs, whoever runs them.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_SCALARS_H
#define PLAIT_PLAN_SCALARS_H

#include <cstdint>
#include <string_view>

namespace plait::plan {

/// Epsilon, at least. AdamW updates the padding of parameters with the rest and
/// divides by epsilon there: 0 / epsilon is 0. In f32 it is a normal number,
/// which no processor flushes to zero, and so is its inverse.
constexpr double kLeastEpsilon = 1e-30;

/// The name of the number of the step among the options of a plan's optimizer,
/// if the plan reads it: the trainer sets it and nobody else does.
constexpr std::string_view kStepOption = "step";

/// It begins again at 0 there: f32 has all numbers below.
constexpr uint64_t kMostStepNumber = uint64_t(1) << 24;

} // namespace plait::plan

#endif // PLAIT_PLAN_SCALARS_H
