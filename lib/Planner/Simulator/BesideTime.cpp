//===- BesideTime.cpp - What a block's exchanges have beside them ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Exchanges that GPUs do at once: gathers in one launch, collectives in the
// streams of two axes, and what the gradient of the model's input alone waits
// for.
//
//===----------------------------------------------------------------------===//

#include "BlockTimer.h"
#include "plait/Plan/Communicators.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

bool planner::isForWeights(const Operation &op) {
  return op.kind == OperationKind::Collective &&
         op.collective == CollectiveKind::AllGather &&
         op.pass == Pass::BackwardWeight;
}

/// Returns the bytes that GPUs gather before `op` in the same launch
/// (plan::batchGathers): by gathers right in front of it, or, where gradients
/// of weights run apart, for these, which begins at once.
double BlockTimer::getBatched(const Operation &op) const {
  const Operation *first = block.operations.data();
  auto isGather = [&](const Operation &other) {
    return other.kind == OperationKind::Collective && !other.movesRows &&
           other.collective == CollectiveKind::AllGather &&
           other.axis == op.axis && other.pass == op.pass;
  };
  bool isOwn = &op >= first && &op < getEnd();
  if (!context.framework().delaysWeights || !context.hasHost() || !isOwn ||
      !isGather(op))
    return 0;
  bool isApart = split && isForWeights(op);
  double most = double(plan::kMostBatched) * context.group(op.axis).ranks;
  double own = bytesOf(op), before = 0;
  for (const Operation *other = &op; other-- != first;) {
    if (isGather(*other) && own + before + bytesOf(*other) <= most)
      before += bytesOf(*other);
    else if (!isApart || isGather(*other))
      break;
  }
  return before;
}

/// Hides what ranks of tp gather for gradients of weights behind what those of
/// cp wait for, in another stream. Beside what is sent to its owner
/// PartTime.cpp has it.
void BlockTimer::hideForWeights() {
  if (split || context.sendsGradients() || !context.hasHost() ||
      !context.framework().delaysWeights)
    return;
  double hidden = std::min(input.forWeights, input.context);
  input.collective -= hidden;
  input.forWeights -= hidden;
}

/// Counts what a layer does behind its attention's gradients, and a block
/// before the layers all along. What that exchanges has the gradients of
/// weights beside it that are beside nothing else.
void BlockTimer::addInputTime(BlockTime &time) const {
  bool hasAttention = untilMade.busy() > 0;
  if (!split || isLayer != hasAttention)
    return;
  time.ofInput = input.busy() - untilMade.busy();
  time.ofInputHidden =
      std::min(delayed, input.collective - untilMade.collective);
}
