//===- Chart.h - A schedule drawn for the terminal --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   rank 0 |F0F1....B0==F2B1==..B2==|
//   rank 1 |..F0B0==F1B1==F2B2==....|
//   F forward, B backward, . idle; bubble 25.0 %
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SCHEDULE_CHART_H
#define PLAIT_SCHEDULE_CHART_H

#include "plait/Schedule/Simulate.h"

namespace plait::schedule {

struct ChartOptions {
  /// Columns of a whole line, the frame included; fewer than 20 count as 20.
  uint32_t width = 100;
  /// ANSI background colours; plain ASCII otherwise.
  bool color = false;
};

/// One line per rank, time to the right, and a legend; every line ends with a
/// newline. A cell is labelled (`F12`, on chunk 1 `1F12`) where the label
/// fits into the time it stands for, filled with its letter where not; actions
/// shorter than half a column may vanish. `timeline` must come from simulate()
/// on `schedule`, or have its shape. The same input gives the same bytes.
std::string drawChart(const Schedule &schedule, const Timeline &timeline,
                      const ChartOptions &options);

} // namespace plait::schedule

#endif // PLAIT_SCHEDULE_CHART_H
