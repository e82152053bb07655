//===- PageParts.cpp - What pages are put together from -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Report/PageParts.h"

#include "Report/Svg.h"
#include "Report/Words.h"
#include "plait/Support/PageStyle.h"

using namespace plait;
using namespace plait::planner;

std::string planner::beginPage(const std::string &title,
                               const std::string &asked) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
         "<title>" +
         escapeHtml(title) + "</title>\n<style>" + pageStyle +
         "</style></head><body>\n<h1>" + escapeHtml(title) + "</h1>\n" +
         drawNote(asked);
}

std::string planner::endPage() { return "</body></html>\n"; }

std::string planner::drawHeading(const std::string &text) {
  return "<h2>" + escapeHtml(text) + "</h2>\n";
}

std::string planner::drawNote(const std::string &text) {
  return text.empty() ? "" : "<p class=\"note\">" + escapeHtml(text) + "</p>\n";
}

/// Cells come as HTML, since some hold a colour key.
std::string planner::drawTable(const Row &head, const std::vector<Row> &rows,
                               size_t words) {
  std::string out = "<table>\n";
  auto writeRow = [&](const Row &row, const char *cell) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i)
      out += std::string("<") + cell + (i >= words ? " class=\"n\">" : ">") +
             row[i] + "</" + cell + ">";
    out += "</tr>\n";
  };
  if (!head.empty())
    writeRow(head, "th");
  for (const Row &row : rows)
    writeRow(row, "td");
  return out + "</table>\n";
}

std::string planner::drawLegendOfWords() {
  std::vector<Row> rows;
  for (auto [word, meaning] : getLegend())
    rows.push_back({escapeHtml(word), escapeHtml(meaning)});
  return drawHeading("Words") + drawTable({}, rows, 2);
}
