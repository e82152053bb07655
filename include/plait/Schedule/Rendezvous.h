//===- Rendezvous.h - Schedules for sends that end late ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SCHEDULE_RENDEZVOUS_H
#define PLAIT_SCHEDULE_RENDEZVOUS_H

#include "plait/Schedule/Schedule.h"

#include <functional>

namespace plait::schedule {

/// Makes a complete schedule end also where a send ends with its receive, as
/// NCCL's do: moves receives forward, before the action in which their rank
/// would wait for ever. There are
///
///   routes    the messages from one rank to another in one direction, of
///             which each begins when the one before it has been received, in
///             the order in which they are sent
///   ranks     begin their messages in the order of their lists
///
/// `isSeveral` says whether what a virtual stage sends in a direction is
/// several tensors, each of which is a message: the second one begins when the
/// first has been received, so that sender and receiver wait for each other.
///
/// A receive that is moved takes a buffer from there on. A schedule that ends
/// as it is, is returned as it is; so is one that is not sound. Takes time
/// linear in the actions, times the ranks at most.
Schedule
postReceives(const Schedule &schedule,
             const std::function<bool(Direction, uint32_t source)> &isSeveral);

} // namespace plait::schedule

#endif // PLAIT_SCHEDULE_RENDEZVOUS_H
