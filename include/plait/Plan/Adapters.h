//===- Adapters.h - How PEFT calls adapters ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Hugging Face's PEFT saves the two matrices that it adds to a module as
// "base_model.model.MODULE.lora_A.weight" and "….lora_B.weight".
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_ADAPTERS_H
#define PLAIT_PLAN_ADAPTERS_H

#include <string_view>

namespace plait::plan {

inline constexpr std::string_view kAdapterPrefix = "base_model.model.";
inline constexpr std::string_view kAdapterA = ".lora_A.weight";
inline constexpr std::string_view kAdapterB = ".lora_B.weight";

/// Bounds alpha, by which over the rank the output of adapters is multiplied:
/// it is more than 0, and up to this.
inline constexpr double kMostAlpha = 1e6;
/// Names alpha in modules, in the dictionary of the model, and plans, among
/// their settings.
inline constexpr std::string_view kAlphaEntry = "lora_alpha";
inline constexpr const char *kAlphaSetting = "lora-alpha";

/// Whether the tensor of this name in a file is of an adapter.
inline bool isAdapter(std::string_view name) {
  return name.starts_with(kAdapterPrefix) &&
         (name.ends_with(kAdapterA) || name.ends_with(kAdapterB));
}

} // namespace plait::plan

#endif // PLAIT_PLAN_ADAPTERS_H
