//===- Svg.h - Drawings of a step ----------------------------- -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_REPORT_SVG_H
#define PLAIT_LIB_PLANNER_REPORT_SVG_H

#include "Report/Drawn.h"
#include "Report/Schemes.h"
#include "Search/Parts.h"

namespace plait::planner {

/// Safe inside of HTML text and attributes.
std::string escapeHtml(const std::string &text);

/// The colour of a part of the time or memory, or of an activity; "#rrggbb".
const char *getColor(const std::string &name);

/// Stacked parts along one bar; `limit` is the bar's full length.
std::string drawBar(const std::vector<Part> &parts, double limit);

/// One row per rank of the pipeline, time to the right, legend below.
std::string drawTimeline(const Drawn &drawn);

/// Draws what ranks hold over the step: one line each, the device's limit
/// above.
std::string drawMemory(const Drawn &drawn, double limit);

/// Draws utilisations over the rates of links, on a logarithmic axis: one line
/// for each of at most 9 schemes.
std::string drawUtilisation(const std::vector<Utilisation> &curves);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_REPORT_SVG_H
