//===- RankLanes.h - The lanes of a rank's operations -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_RANKLANES_H
#define PLAIT_LIB_RUNTIME_CORE_RANKLANES_H

#include "Lanes.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Plan/Ranks.h"

#include <vector>

namespace plait::runtime {

namespace fb = plan::fb;

/// Where the operations of a program happen.
struct LaneChoice {
  std::vector<uint32_t> transfers;          // by action; 0 for others
  std::vector<std::vector<uint32_t>> steps; // by function and step
  /// See Communicator::sendsInLane.
  bool sendsInLane = false;

  /// One more than the largest lane.
  uint32_t lanes() const;
};

/// The number of operations of a step: the transfers of a program and the steps
/// of the functions it calls, in the order of its actions.
uint32_t countOperations(const fb::Program &program);

/// Which of them wait for which, by the bytes they use. `program` has passed
/// the plan checker.
LaneSchedule scheduleLanes(const fb::Program &program, const plan::Mesh &mesh,
                           const LaneChoice &choice);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_RANKLANES_H
