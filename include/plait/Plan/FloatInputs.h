//===- FloatInputs.h - Rows of a batch with numbers -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A row that a program or a file gives is what a sample has, in words of 32
// bits: sequence + 1 tokens as int32, and then the float32 of each float input
// of the plan, in their order: of features [sequence, shape…], of context
// [shape…].
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_FLOATINPUTS_H
#define PLAIT_PLAN_FLOATINPUTS_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <string>
#include <string_view>
#include <vector>

namespace plait::plan {

/// The most float inputs of a plan.
inline constexpr size_t kMostFloatInputs = 16;

/// The name of a float input that has a weight of each target
/// (nn-weigh-targets).
inline constexpr std::string_view kTargetWeights = "target_weights";

/// A float input and where its numbers are in a row.
struct FloatPart {
  std::string name;
  uint64_t begin;   // words behind the tokens
  uint64_t numbers; // of a sequence
  uint64_t ofEach;  // of a position, or of the sequence if it has none
};

/// Returns the parts of a row behind its tokens. `plan` has passed checkPlan.
std::vector<FloatPart> getFloatParts(const fb::Plan &plan);

/// Returns the words of a row.
uint64_t countRowWords(const fb::Plan &plan);

/// Returns the columns of an input whose positions no ranks divide; 0: the plan
/// has no such float input.
uint64_t countColumns(const fb::Plan &plan, const fb::Input &input);

/// Fails where names or shapes are none.
Status checkFloatInputs(const fb::Plan &plan);

} // namespace plait::plan

#endif // PLAIT_PLAN_FLOATINPUTS_H
