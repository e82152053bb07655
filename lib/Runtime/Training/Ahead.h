//===- Ahead.h - Steps that GPUs begin early --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_AHEAD_H
#define PLAIT_LIB_RUNTIME_TRAINING_AHEAD_H

#include "plait/Runtime/Trainer.h"

namespace plait::runtime {

/// Whether a step may be enqueued behind step `step` before that is waited for:
/// nothing is read of what the ranks hold between the two, and what they are
/// given for the next step does not depend on how this one went. By this all
/// processes decide alike.
bool mayGoOnAhead(const fb::Plan &plan, const TrainOptions &options,
                  uint64_t step);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_AHEAD_H
