//===- Exchanges.cpp - What ranks exchange, as a table --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lists of exchanges for people and for programs, the same of a plan and of a
// prediction.
//
//===----------------------------------------------------------------------===//

#include "Report/Exchanges.h"
#include "Report/Screen.h"
#include "Search/Parts.h"

#include <algorithm>
#include <cmath>

using namespace plait;
using namespace plait::planner;
using json = nlohmann::ordered_json; // fields in the order of the documentation

/// "dp", "sites", or "host" where the other end is another place. An agreement
/// without an axis is one of sites.
static std::string nameEnd(const Exchange &exchange) {
  if (exchange.moment == Moment::Agreement && !exchange.axis)
    return "sites";
  return std::string(exchange.axis ? getFacts(*exchange.axis).name
                                   : getFacts(exchange.place).name);
}

static std::string makeRow(const std::array<std::string, 7> &cells,
                           size_t width) {
  std::string row = "  " + padRight(cells[0], width) + padRight(cells[1], 10) +
                    padRight(cells[2], 15);
  for (size_t i = 3; i < cells.size(); ++i)
    row += padLeft(cells[i], i == 3 ? 7 : 11);
  return row;
}

std::vector<std::string>
planner::getExchangeRows(const std::vector<Exchange> &exchanges) {
  size_t width = std::string_view("over ").size();
  for (const Exchange &exchange : exchanges)
    width = std::max(width, nameEnd(exchange).size() + 1);
  std::vector<std::string> rows = {makeRow(
      {"over", "in", "what", "count", "sent", "takes", "hidden"}, width)};
  for (const Exchange &exchange : exchanges) {
    double share =
        exchange.seconds > 0 ? exchange.hidden / exchange.seconds : 0;
    rows.push_back(makeRow(
        {nameEnd(exchange), std::string(getName(exchange.moment)),
         exchange.getName(),
         printNumber(exchange.count,
                     exchange.count == std::floor(exchange.count) ? 0 : 2),
         printBytes(exchange.getSent()), printSeconds(exchange.seconds),
         printNumber(100 * share, 0) + " %"},
        width));
  }
  return rows;
}

Result<std::vector<ExchangeList>>
planner::listExchanges(const ReportInput &input) {
  return listExchanges(*input.result.work, input.cluster, input.training,
                       input.result.configuration);
}

json planner::toJson(const ExchangeList &list) {
  json content = json::array();
  for (const Exchange &exchange : list.get())
    content.push_back({{"over", nameEnd(exchange)},
                       {"in", getName(exchange.moment)},
                       {"what", exchange.getName()},
                       {"members", exchange.members},
                       {"count", exchange.count},
                       {"bytes", exchange.bytes},
                       {"sent_bytes", exchange.getSent()},
                       {"seconds", exchange.seconds},
                       {"hidden_seconds", exchange.hidden}});
  return content;
}

/// Equal neighbours have one table.
std::string planner::exchangesText(const std::vector<ExchangeList> &lists) {
  std::string text;
  for (size_t i = 0; i < lists.size();) {
    std::vector<std::string> rows = getExchangeRows(lists[i].get());
    size_t end = i + 1;
    while (end < lists.size() && getExchangeRows(lists[end].get()) == rows)
      ++end;
    text += std::string(i ? "\n" : "") + "stage " + std::to_string(i) +
            (end - i > 1 ? " to " + std::to_string(end - 1) : "") +
            ", a rank in a step\n";
    if (rows.size() == 1)
      rows = {"  nothing"};
    for (const std::string &row : rows)
      text += row + "\n";
    i = end;
  }
  return text;
}

std::string planner::exchangesJson(const std::vector<ExchangeList> &lists) {
  json content = json::array();
  for (const ExchangeList &list : lists)
    content.push_back(toJson(list));
  return json{{"exchanges", std::move(content)}}.dump(2) + "\n";
}
