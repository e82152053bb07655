//===- RankBatches.cpp - Gathers that are launched together ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Parameters of a layer that ZeRO 2 and 3 divide are gathered one behind the
// other. A library that launches them together has the latency of one. Nothing
// comes between them in the plan's order, which is the same on all members of
// their group, so that they are as good as one collective: each waits for what
// any of them waits for, and who waits for one waits for all.
//
//===----------------------------------------------------------------------===//

#include "Rank.h"

using namespace plait;
using namespace plait::runtime;

/// Holds the gathers that begin with `step`, if it is one.
void Rank::beginBatch(uint32_t function, uint32_t step) {
  if (batches.empty() || batches[function][step] == step)
    return;
  Group &group = *groups[prepared[function][step]].second;
  if (!group.hold())
    return;
  held = &group;
  batchEnd = batches[function][step];
}

/// Launches them. Their events come behind, since an event is what its stream
/// was given before.
Status Rank::endBatch() {
  PLAIT_RETURN_IF_ERROR(std::exchange(held, nullptr)->release());
  for (auto [event, stream] : heldEvents)
    PLAIT_RETURN_IF_ERROR(device.record(event, stream));
  heldEvents.clear();
  return Status::success();
}
