//===- StepNames.h - Names of a function's steps ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_STEPNAMES_H
#define PLAIT_LIB_RUNTIME_CORE_STEPNAMES_H

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Streams.h"

namespace plait::runtime {

/// Names the place in the model that `step` is from; where `plan` has none,
/// the kind of step.
inline std::string describeStep(const plan::fb::Plan &plan,
                                const plan::fb::Step &step) {
  return step.location() < plan::length(plan.locations())
             ? plan.locations()->Get(step.location())->str()
             : plan::nameOf(step);
}

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_STEPNAMES_H
