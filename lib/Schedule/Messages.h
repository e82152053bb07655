//===- Messages.h - Messages of schedules -----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_SCHEDULE_MESSAGES_H
#define PLAIT_LIB_SCHEDULE_MESSAGES_H

#include "plait/Schedule/Schedule.h"

#include <optional>

namespace plait::schedule {

/// The virtual stage that `stage` sends to in `direction`; none at the end of
/// the pipeline.
inline std::optional<uint32_t> targetOf(const Problem &problem, uint32_t stage,
                                        Direction direction) {
  if (direction == Direction::Forward)
    return stage + 1 < problem.virtualStages() ? std::optional(stage + 1)
                                               : std::nullopt;
  return stage > 0 ? std::optional(stage - 1) : std::nullopt;
}

/// The virtual stage that `stage` receives from in `direction`.
inline std::optional<uint32_t> sourceOf(const Problem &problem, uint32_t stage,
                                        Direction direction) {
  return targetOf(problem, stage,
                  direction == Direction::Forward ? Direction::Backward
                                                  : Direction::Forward);
}

/// The rank with which `rank` exchanges the message that `chunk` sends
/// (`incoming` false) or receives; none where no message crosses ranks.
inline std::optional<uint32_t> peerOf(const Problem &problem, uint32_t rank,
                                      uint32_t chunk, Direction direction,
                                      bool incoming) {
  uint32_t stage = problem.stageOf(rank, chunk);
  auto other = incoming ? sourceOf(problem, stage, direction)
                        : targetOf(problem, stage, direction);
  if (!other || problem.rankOf(*other) == rank)
    return std::nullopt;
  return problem.rankOf(*other);
}

/// The direction of the messages that a compute action reads and writes; none
/// for BackwardWeight, which does neither.
inline std::optional<Direction> directionOf(ActionKind compute) {
  if (compute == ActionKind::BackwardWeight)
    return std::nullopt;
  return compute == ActionKind::Forward ? Direction::Forward
                                        : Direction::Backward;
}

} // namespace plait::schedule

#endif // PLAIT_LIB_SCHEDULE_MESSAGES_H
