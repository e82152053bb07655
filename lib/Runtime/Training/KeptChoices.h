//===- KeptChoices.h - Algorithms that a run stays with ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_KEPTCHOICES_H
#define PLAIT_LIB_RUNTIME_TRAINING_KEPTCHOICES_H

#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Trainer.h"

namespace plait::runtime {

/// Sets in `options` what the run that is resumed has kept, and whether this
/// one will keep what is chosen: where it writes checkpoints, beside which it
/// lies. Comes before the executor is made. That it cannot be read is a
/// warning, as a run can go on without.
void findChoices(TrainOptions &options);

/// Keeps what `executor` has chosen, in the process of rank 0. Comes after the
/// run has taken its directory. That it cannot be written is a warning.
void keepChoices(const Executor &executor, const TrainOptions &options);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_KEPTCHOICES_H
