//===- ActionKinds.h - The names of all actions -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Schedules, the pipe dialect and the plan file each have an enumeration of
// actions, and convert between them by value. Who converts asserts it with this
// list.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SCHEDULE_ACTIONKINDS_H
#define PLAIT_SCHEDULE_ACTIONKINDS_H

#define PLAIT_FOR_EACH_ACTION_KIND(X)                                          \
  X(Forward)                                                                   \
  X(Backward)                                                                  \
  X(BackwardInput)                                                             \
  X(BackwardWeight)                                                            \
  X(Send)                                                                      \
  X(Recv)                                                                      \
  X(WaitSend)                                                                  \
  X(Reduce)                                                                    \
  X(Optimizer)                                                                 \
  X(Gather)

#endif // PLAIT_SCHEDULE_ACTIONKINDS_H
