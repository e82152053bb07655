//===- PageParts.h - What pages are put together from -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Pieces of HTML, each with a newline at its end. Text is escaped, cells are
// HTML.

#ifndef PLAIT_LIB_PLANNER_REPORT_PAGEPARTS_H
#define PLAIT_LIB_PLANNER_REPORT_PAGEPARTS_H

#include <string>
#include <vector>

namespace plait::planner {

/// Cells of one row, left to right.
using Row = std::vector<std::string>;

/// All up to the title, and below it `asked`, which may be empty.
std::string beginPage(const std::string &title, const std::string &asked);
std::string endPage();
std::string drawHeading(const std::string &text);
/// Nothing where there is nothing to say.
std::string drawNote(const std::string &text);
/// All but the first `words` columns are numbers. An empty head leaves its row
/// out.
std::string drawTable(const Row &head, const std::vector<Row> &rows,
                      size_t words);
/// The words of reports, under a heading.
std::string drawLegendOfWords();

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_REPORT_PAGEPARTS_H
