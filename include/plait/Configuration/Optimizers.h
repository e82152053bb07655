//===- Optimizers.h - Table of optimizers -----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The facts of each optimizer that planner, compiler and help ask for. What it
// does to a parameter is written in lib/Transforms/Gradients/Updates.cpp: a new
// one is a row here and a function there.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_OPTIMIZERS_H
#define PLAIT_CONFIGURATION_OPTIMIZERS_H

#include "plait/Support/Status.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace plait {

/// One optimizer. The strings are literals and live for ever.
struct Optimizer {
  std::string_view name; // as --optimizer has it
  /// The tensors that it keeps of each parameter, from the first state slot
  /// (`moment1` in IR) on: fp32, of the parameter's shape, zero at the start of
  /// a run, divided among ranks as the reduced gradient is. At most 2.
  std::span<const std::string_view> slots;

  /// Returns the bytes of the slots for each element of a parameter.
  uint64_t getStateBytes() const { return slots.size() * sizeof(float); }
};

/// All of them, in the order in which help texts list them.
std::span<const Optimizer> getOptimizers();

/// The row called `name`, or a failure that lists the names there are.
Result<const Optimizer *> findOptimizer(std::string_view name);

} // namespace plait

#endif // PLAIT_CONFIGURATION_OPTIMIZERS_H
