//===- Drawn.h - Selection of what timelines draw ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step of many microbatches repeats itself. What is drawn is a step of as
// many as a reader can tell apart, which begins and ends like the whole.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_REPORT_DRAWN_H
#define PLAIT_LIB_PLANNER_REPORT_DRAWN_H

#include "plait/Planner/Report.h"
#include "plait/Planner/Timeline.h"

namespace plait::planner {

struct Drawn {
  Timeline timeline;
  int64_t microbatches = 0; // that were simulated
  int64_t all = 0;          // of the step
  double seconds = 0;       // of the step

  /// Returns by how much the step is longer than the timeline: as the
  /// microbatches between repeat, it is left out of the timeline's middle.
  double omitted() const { return seconds - timeline.seconds(); }
  /// "32 of the step's 256 microbatches"; empty when all are there.
  std::string note() const;
};

/// Simulates the pick's step, with fewer microbatches where its actions would
/// be more than `actions`; but three rounds of the pipeline if there are as
/// many.
Result<Drawn> simulateDrawn(const ReportInput &input, int64_t actions);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_REPORT_DRAWN_H
