//===- Generators.h - Named pipeline schedules ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every named schedule is one row of one table. To add one, write a function
// Problem -> Schedule that emits compute actions in the order wanted, say how
// many microbatches it keeps in flight, and add the row: the driver's option,
// the verifier, the simulator and the charts then know it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SCHEDULE_GENERATORS_H
#define PLAIT_SCHEDULE_GENERATORS_H

#include "plait/Schedule/Schedule.h"

#include <span>

namespace plait::schedule {

/// A row of the table. The strings are literals and live for ever.
struct Generator {
  const char *name;
  const char *help;   // one line for option help
  uint32_t maxChunks; // per rank that the generator can order

  /// Emits a compute-only schedule with `kind` still empty. Expects
  /// problem.check() to hold and chunks <= maxChunks; use generate().
  Schedule (*generate)(const Problem &problem);

  /// The most microbatches that `rank` may hold at once; see peakInFlight.
  uint32_t (*inFlightBound)(const Problem &problem, uint32_t rank);
};

/// All named schedules, in the order in which help texts list them.
std::span<const Generator> getGenerators();

/// The row called `name`, or a failure that lists the names there are.
Result<const Generator *> findGenerator(std::string_view name);

/// The compute-only schedule `name` for `problem`. Fails on an unknown name, a
/// problem that does not check or more chunks than the schedule can order.
Result<Schedule> generate(std::string_view name, const Problem &problem);

/// All forwards, then all backwards. Needs memory for all microbatches.
Schedule gpipe(const Problem &problem);

/// Rank r runs p - r - 1 forwards, then alternates one forward and one
/// backward, then drains. Holds at most min(m, p - r) microbatches and is as
/// fast as gpipe (Narayanan et al., PipeDream-Flush).
Schedule oneFOneB(const Problem &problem);

/// Makes a compute-only schedule complete. Around the compute actions go
///
///   RECV_F before F, SEND_F after it     (not at the ends of the pipeline)
///   RECV_B before B or I, SEND_B after it
///   WAIT_x before the same rank's next SEND_x, so that a rank has at most one
///          unfinished message a direction and needs one buffer for it
///
/// and at the end of every rank the last waits, REDUCE and OPTIMIZER. Virtual
/// stages that are neighbours on one rank exchange nothing. A schedule that is
/// already complete is returned as it is. The result can still deadlock when
/// the order given keeps more messages unread than one per direction: verify
/// it.
Schedule insertTransfers(const Schedule &schedule);

} // namespace plait::schedule

#endif // PLAIT_SCHEDULE_GENERATORS_H
