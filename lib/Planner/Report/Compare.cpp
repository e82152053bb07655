//===- Compare.cpp - Clusters side by side --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Clusters side by side on a screen: what a step takes on each, and what a
// whole training does. The search ran for each cluster by itself; here the
// results are only printed in columns.
//
//===----------------------------------------------------------------------===//

#include "Report/Projected.h"
#include "Report/Screen.h"

using namespace plait;
using namespace plait::planner;

namespace {

/// A name, and numbers behind it that end at the same columns in every row.
class Table {
public:
  Table(Screen &screen, std::vector<size_t> widths)
      : screen(screen), widths(std::move(widths)) {}

  /// Writes as many cells as there are widths, or fewer. Longer texts push what
  /// is behind them to the right: nothing is cut.
  void row(const std::string &name, const std::vector<std::string> &cells) {
    std::string text = padRight(name, nameWidth);
    for (size_t i = 0; i < cells.size(); ++i)
      text += padLeft(cells[i], widths[i]);
    screen.line(text);
  }

  // Of the first column: set once the names are known.
  size_t nameWidth = 0;

private:
  Screen &screen;
  std::vector<size_t> widths;
};

} // namespace

/// Both tables have the same first column, so that rows are found again.
static size_t getNameWidth(const std::vector<Compared> &compared) {
  size_t width = 16;
  for (const Compared &one : compared)
    width = std::max(width, one.cluster.size() + 1);
  return width;
}

/// The step, the configuration below it.
static void writeSteps(Screen &screen, const std::vector<Compared> &compared) {
  // Wide enough for the largest figures that are likely, and 80 columns
  // together with the names of most clusters.
  Table table(screen, {11, 13, 8, 10, 10, 9});
  table.nameWidth = getNameWidth(compared);
  table.row("cluster", {"step", "tokens/s", "MFU", "memory", "of", "devices"});
  for (const Compared &one : compared) {
    // A cluster without a pick says why, where the others have their figures.
    if (!one.report) {
      screen.line(one.cluster);
      screen.entry("", one.failure);
      continue;
    }
    const SearchResult &result = one.report->result;
    const Estimate &estimate = result.estimate;
    table.row(one.cluster,
              {printSeconds(estimate.iterationSeconds),
               printCount(estimate.tokensPerSecond),
               printNumber(100 * estimate.mfu, 1) + " %",
               printBytes(estimate.peakMemory()),
               printBytes(one.report->cluster.device.usableBytes()),
               printCount(double(result.configuration.ranks()))});
    // Below the figures, as it is longer than a column.
    screen.entry("", print(result.configuration));
  }
}

/// Left out where no tokens were given. Clusters without a pick are in the
/// table before this one.
static void writeProjections(Screen &screen,
                             const std::vector<Compared> &compared) {
  // All reports have the same goal except for its price, so the first report
  // describes it.
  auto first = std::find_if(compared.begin(), compared.end(),
                            [](const Compared &one) { return one.report; });
  if (first == compared.end() || !first->report->goal)
    return;
  screen.heading("the whole training, " +
                 printTokens(first->report->goal->tokens) + " tokens");
  Table table(screen, {15, 15, 12, 17});
  table.nameWidth = getNameWidth(compared);
  table.row("cluster", {"time", "device-hours", "energy", "money"});
  for (const Compared &one : compared) {
    if (!one.report)
      continue;
    const ReportInput &input = *one.report;
    Projection projection =
        project(*input.goal, input.result, input.cluster, input.training);
    table.row(one.cluster,
              {printDuration(projection.seconds),
               printCount(projection.deviceHours),
               projection.joules ? printEnergy(*projection.joules) : "-",
               projection.money ? printCount(*projection.money) : "-"});
  }
}

std::string planner::compareText(const std::vector<Compared> &compared,
                                 const TextOptions &options) {
  Screen screen(options);
  writeSteps(screen, compared);
  writeProjections(screen, compared);
  return std::move(screen.out);
}
