//===- ChartOutput.h - Charts on standard output ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAIT_PLAN_CHARTOUTPUT_H
#define PLAIT_TOOLS_PLAIT_PLAN_CHARTOUTPUT_H

#include "plait/Schedule/Chart.h"

namespace CLI {
class App;
} // namespace CLI

namespace plait::tool {

/// How the user wants charts: the values behind --width and --no-color.
struct ChartFlags {
  uint32_t width = 0; // 0: the terminal's, or 100
  bool noColor = false;
};

/// Adds --width and --no-color. `flags` must outlive the parsing.
void addChartFlags(CLI::App &command, ChartFlags &flags);

/// Colour only on a terminal, and only when neither --no-color nor the
/// environment variable NO_COLOR asks for none.
schedule::ChartOptions getChartOptions(const ChartFlags &flags);

} // namespace plait::tool

#endif // PLAIT_TOOLS_PLAIT_PLAN_CHARTOUTPUT_H
