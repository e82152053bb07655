//===- Defaults.h - Defaults of optional fields of plans --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// FlatBuffers gives a null pointer for a field that a file does not have. What
// such a field means is said in Plan.fbs and, for code, here.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_DEFAULTS_H
#define PLAIT_PLAN_DEFAULTS_H

#include "plait/Plan/Plan_generated.h"

#include <cstdint>
#include <string_view>

namespace plait::plan {

/// Absent vectors of a table are empty ones.
template <typename T> uint32_t length(const flatbuffers::Vector<T> *vector) {
  return vector ? vector->size() : 0;
}

/// Returns what executes the plan: "cpu" or "cuda", else checkStructure fails.
/// Points into the plan, as do the two below.
inline std::string_view backendOf(const fb::Plan &plan) {
  return plan.backend() ? plan.backend()->string_view() : "cpu";
}

/// Returns what the plan computes in: "fp32" or "bf16", else checkStructure
/// fails.
inline std::string_view precisionOf(const fb::Plan &plan) {
  return plan.precision() ? plan.precision()->string_view() : "fp32";
}

/// Returns what gradients are rounded to before ranks add them up: likewise.
inline std::string_view reducePrecisionOf(const fb::Plan &plan) {
  return plan.reduce_precision() ? plan.reduce_precision()->string_view()
                                 : "fp32";
}

/// Returns what ranks of dp send of gradients: "none" is all of them.
inline std::string_view compressOf(const fb::Plan &plan) {
  return plan.compress() ? plan.compress()->string_view() : "none";
}

/// Whether the plan's ranks are GPUs.
inline bool isCuda(const fb::Plan &plan) { return backendOf(plan) == "cuda"; }

/// Whether parameters have bf16 copies, in which the plan computes.
inline bool isMixed(const fb::Plan &plan) {
  return precisionOf(plan) == "bf16";
}

} // namespace plait::plan

#endif // PLAIT_PLAN_DEFAULTS_H
