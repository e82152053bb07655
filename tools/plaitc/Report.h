//===- Report.h - What plaitc tells of a choice -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITC_REPORT_H
#define PLAIT_TOOLS_PLAITC_REPORT_H

#include "Request.h"
#include "Terminal.h"

namespace plait {

/// Fails unless there is one price for all of `clusters`, or one each.
Status checkPrices(const ReportOptions &options, size_t clusters);

/// Writes and prints what `options` ask for. Fails before anything is printed.
Status tellChoice(const Choice &choice, const ReportOptions &options,
                  Terminal &terminal);

/// Asks the planner for each of `clusters` what `request` asks for one, and
/// tells what comes out side by side: as text, and as JSON where that is asked
/// for. One where no configuration is found is told as well. False after a
/// message.
bool compareClusters(Session &session, const Model &model,
                     const Request &request,
                     const std::vector<std::string> &clusters,
                     Terminal &terminal);

} // namespace plait

#endif // PLAIT_TOOLS_PLAITC_REPORT_H
