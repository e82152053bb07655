//===- RankNames.cpp - Where a rank is in its step ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rank.h"

#include "plait/Plan/Defaults.h"

using namespace plait;
using namespace plait::runtime;
using plan::length;

/// The position may change while it is read: any thread asks.
std::string Rank::describePosition() const {
  const Position &at = current().at;
  uint64_t number = at.number;
  uint32_t action = at.action;
  if (number == 0)
    return "";
  return "rank " + std::to_string(rank) +
         (at.waits ? " waits in step " : " computes in step ") +
         std::to_string(number) + ", " +
         plan::describeAction(plan, mesh.index(rank, 0), action) +
         locationOf(at, *program.actions()->Get(action));
}

/// Names the step for a profiler, in which each rank of a process is a thread.
std::string Rank::nameStep(uint64_t number) const {
  return "rank " + std::to_string(rank) +
         (scope == StepScope::Evaluate ? ", evaluation " : ", step ") +
         std::to_string(number);
}

/// Tells where the step that runs comes from, as ", at …".
std::string Rank::locationOf(const Position &at,
                             const fb::Action &action) const {
  if (plan::isTransfer(action))
    return "";
  const fb::Function &function = *program.functions()->Get(action.function());
  uint32_t step = at.functionStep;
  // Another thread may look at any time.
  if (step >= length(function.steps()))
    return ", '" + function.name()->str() + "'";
  std::string result =
      ", '" + function.name()->str() + "' step " + std::to_string(step);
  uint32_t location = function.steps()->Get(step)->location();
  if (location < length(plan.locations()))
    result += ", at " + plan.locations()->Get(location)->str();
  return result;
}
