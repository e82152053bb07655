//===- ZeroBubble.h - Parts of schedules with a split backward --*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_SCHEDULE_ZEROBUBBLE_H
#define PLAIT_LIB_SCHEDULE_ZEROBUBBLE_H

#include "plait/Schedule/Generators.h"

namespace plait::schedule {

/// The list of a rank that runs `lead` forwards, then for each microbatch its
/// input gradient, the weight gradient of the one `delay` before it, and the
/// next forward; the weight gradients left over come last. Holds up to `lead`
/// activations whole and the weight share of `delay` more.
std::vector<Action> delayWeights(uint32_t microbatches, uint32_t lead,
                                 uint32_t delay);

} // namespace plait::schedule

#endif // PLAIT_LIB_SCHEDULE_ZEROBUBBLE_H
