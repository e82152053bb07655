//===- Exchanges.h - What ranks exchange, as a table ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_REPORT_EXCHANGES_H
#define PLAIT_LIB_PLANNER_REPORT_EXCHANGES_H

#include "plait/Planner/Report.h"

#include <nlohmann/json.hpp>

namespace plait::planner {

/// Returns a line with titles and a line for each entry.
std::vector<std::string>
getExchangeRows(const std::vector<Exchange> &exchanges);

/// The pick's, by rank of the pipeline.
Result<std::vector<ExchangeList>> listExchanges(const ReportInput &input);

nlohmann::ordered_json toJson(const ExchangeList &list);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_REPORT_EXCHANGES_H
