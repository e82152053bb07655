//===- Verify.h - Proof that a pipeline schedule is sound -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a schedule must satisfy before anything is built from it. The checks
// are numbered; lib/Schedule/Verify.cpp and test/Unit/Schedule/VerifyTest.cpp
// refer to the numbers.
//
//  V1  The problem checks, there is one list per stage, and every action names
//      a chunk and a microbatch of the problem. A message goes to the rank
//      that holds the neighbouring virtual stage, never off the pipeline's
//      ends and never to the rank itself.
//  V2  For every (chunk, microbatch) of a rank there is exactly one F and
//      either exactly one B or exactly one I and one W; in a complete schedule
//      also every message that crosses ranks, received once, sent once and
//      waited for once, and on every rank one REDUCE and one OPTIMIZER, and
//      at most one GATHER.
//  V3  On a rank, for one (chunk, microbatch): F before B or I, I before W,
//      RECV before the action that reads it, SEND after the one that writes
//      it, WAIT after SEND. GATHER comes first, REDUCE after all of these,
//      OPTIMIZER last.
//  V4  Run together, the lists end: with messages that are posted by SEND (or,
//      compute-only, by the action itself), RECV blocking until posted and
//      WAIT until received, no rank waits for ever. Which rank runs first does
//      not matter: a step never takes back what another waits for.
//  V5  peakActivations(rank) keeps the schedule's own memory limit.
//
// A schedule may be called anything: its name is for reports. What a generator
// of that name promises beside soundness is asked apart, by checkNamedBound.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SCHEDULE_VERIFY_H
#define PLAIT_SCHEDULE_VERIFY_H

#include "plait/Schedule/Schedule.h"

namespace plait::schedule {

/// Success, or the first violation, which names the rank, the index of the
/// action in the rank's list and the action as printed. Takes time linear in
/// the number of actions. Any schedule may be passed.
Status verify(const Schedule &schedule);

/// Whether no rank holds more microbatches than the generator that `schedule`
/// is named after does; failure says which and how many. Success where no
/// generator has that name. `schedule` must be sound.
Status checkNamedBound(const Schedule &schedule);

/// V1 to V3 alone: what makes it safe to execute the lists.
Status verifyLists(const Schedule &schedule);

} // namespace plait::schedule

#endif // PLAIT_SCHEDULE_VERIFY_H
