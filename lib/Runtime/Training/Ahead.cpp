//===- Ahead.cpp - Steps that GPUs begin early ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Ahead.h"

using namespace plait;
using namespace plait::runtime;

/// Whether something that comes every so many steps does after `step`.
static bool isDue(uint64_t every, uint64_t step) {
  return every && step % every == 0;
}

/// Whether a checkpoint may be due after `step`: a time may be over whenever it
/// is asked for.
static bool mayBeDue(const CheckpointInterval &every, uint64_t step) {
  return every.steps ? isDue(every.steps, step) : every.seconds.count() > 0;
}

/// Steps that are skipped or rolled back change the next one's inputs; the rest
/// reads the ranks' memory, or who has read which samples.
bool runtime::mayGoOnAhead(const fb::Plan &plan, const TrainOptions &options,
                           uint64_t step) {
  const CheckpointOptions &checkpoint = options.checkpoint;
  return step < options.steps && !plan.outer() && !options.givesRows &&
         options.onNonFinite == NonFinitePolicy::Stop &&
         options.onSpike != SpikePolicy::RollBack && !options.executor.notes &&
         options.sampleLog.empty() &&
         !isDue(options.executor.guardEvery, step) &&
         !isDue(options.evalEvery, step) && !mayBeDue(checkpoint.every, step) &&
         !mayBeDue(checkpoint.replicaEvery, step);
}
