//===- Meeting.h - Where process 0 is found ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Process 0 listens at the port of the launch. Where its launcher listens there
// itself, as torchrun does, process 0 takes the first of a few others that is
// free. All processes know which these are, and ask whoever listens at one of
// them whether it is of their run: a stranger, or a process of another run, may
// have come first. Where there is a secret, they ask at the launch's own port
// as well, and tell nothing to who does not know it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_MEETING_H
#define PLAIT_LIB_RUNTIME_CORE_MEETING_H

#include "Launch.h"
#include "Reception.h"
#include "plait/Support/Reporter.h"

#include <vector>

namespace plait::runtime {

/// When those who wait say so: after a few seconds, then ever less often. The
/// pauses double: a job that queues for hours does not fill its log.
class WaitingNotices {
public:
  /// `reporter` hears of it, unless it is null.
  explicit WaitingNotices(Reporter *reporter) : reporter(reporter) {}
  /// Says that `what` goes on `taken` after the beginning, where it is time.
  void tell(const std::string &what, std::chrono::milliseconds taken);

private:
  Reporter *reporter;
  std::chrono::milliseconds next = std::chrono::seconds(3);
};

/// Returns the ports where process 0 may listen, the same in all processes.
std::vector<uint16_t> meetingPorts(const Launch &launch);

/// Listens, as process 0, at the first of these ports that is free. Fails where
/// a process of the same run, left from an earlier start, waits at one of them.
Result<Reception> openAsFirst(const Launch &launch);

/// Connects another process to process 0, which has until `timeLimit` to
/// listen; `reporter` hears that it is waited for. `launch` has its port from
/// then on.
Result<Socket> reachFirst(Launch &launch, std::chrono::milliseconds timeLimit,
                          Reporter *reporter);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_MEETING_H
