//===- StepNumber.h - The step, as a number that it reads -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_STEPNUMBER_H
#define PLAIT_CONFIGURATION_STEPNUMBER_H

#include "plait/Configuration/Compressors.h"

namespace plait {

/// Whether what replicas send depends on random numbers, another one in each
/// step.
bool drawsNumbers(const Compression &compression);

/// The number of the step, from 1 on, as `nn.step_scalar` has it.
inline constexpr std::string_view kStepNumber = "StepNumber";

} // namespace plait

#endif // PLAIT_CONFIGURATION_STEPNUMBER_H
