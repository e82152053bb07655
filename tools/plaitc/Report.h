//===- Report.h - What plaitc tells of a choice -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITC_REPORT_H
#define PLAIT_TOOLS_PLAITC_REPORT_H

#include "Cases.h"
#include "Request.h"
#include "Terminal.h"

namespace plait {

/// Fails unless there is one price for all of `clusters`, or one each.
Status checkPrices(const ReportOptions &options, size_t clusters);

/// Writes and prints what `request` asks for. Fails before anything is printed.
Status tellChoice(const Choice &choice, const Request &request,
                  Terminal &terminal);

/// Asks the planner in each of `cases` what `request` asks for one, and tells
/// what comes out side by side: as text, and as JSON and as a page where that
/// is asked for. One where no configuration is found is told as well. False
/// after a message.
bool compareCases(Session &session, const Model &model, const Request &request,
                  const Cases &cases, Terminal &terminal);

} // namespace plait

#endif // PLAIT_TOOLS_PLAITC_REPORT_H
