//===- StepParts.h - A step in several recordings ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A recorded step of many operations is cut into parts, each of which begins
// when all of the one before it has ended. That makes waits that the plan does
// not have, so cuts are only where no message is pending, and only where the
// step with all of them still comes to its end.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_STEPPARTS_H
#define PLAIT_PLAN_STEPPARTS_H

#include "plait/Plan/Check.h"
#include "plait/Plan/Messages.h"

#include <cstdint>
#include <string>
#include <vector>

namespace plait::plan {

/// The actions of each program before which its step is cut, ascending.
using StepCuts = std::vector<std::vector<uint32_t>>;

/// Cuts steps where a part has `most` operations and the program has used all
/// that it has begun to receive. A program is not cut where ranks would then
/// wait for each other for ever, in whichever order NCCL launches. Needs a plan
/// for GPUs that checkPlan() has passed.
StepCuts cutSteps(const fb::Plan &plan, const std::vector<Message> &messages,
                  uint32_t most);

/// Tells who waits for whom in a circle where steps are cut so; empty: nobody.
std::string findCircle(const fb::Plan &plan,
                       const std::vector<Message> &messages, LaunchOrder order,
                       const StepCuts &cuts);

} // namespace plait::plan

#endif // PLAIT_PLAN_STEPPARTS_H
