//===- WaitTimes.h - Waiting times of ranks in a step -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_WAITTIMES_H
#define PLAIT_LIB_RUNTIME_TRAINING_WAITTIMES_H

#include "plait/Runtime/StepNotes.h"

namespace plait::runtime {

/// When ranks waited for others in a step that was noted, and computed nothing
/// meanwhile.
class WaitTimes {
public:
  using Time = StepClock::Time;
  struct Wait {
    Time begin, end;
    uint32_t other; // who was waited for
  };

  explicit WaitTimes(const StepNotes &notes);

  /// Returns the waits in the order of time.
  const std::vector<Wait> &of(uint32_t rank) const { return waits[rank]; }

  /// Adds to `seconds`, by rank, what all others waited for it. Who waits for a
  /// rank that itself waits is waiting for the third one.
  void addTo(std::vector<double> &seconds) const;

private:
  void blame(const Wait &wait, unsigned depth,
             std::vector<double> &seconds) const;

  std::vector<std::vector<Wait>> waits; // by rank
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_WAITTIMES_H
