//===- Compare.cpp - Clusters side by side --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cases side by side, on a screen and as a page: what a step takes in each, and
// what a whole training does. The search ran for each case by itself; here the
// results are only printed in columns.
//
//===----------------------------------------------------------------------===//

#include "Report/PageParts.h"
#include "Report/Projected.h"
#include "Report/Screen.h"
#include "Report/Svg.h"
#include "Report/Words.h"
#include "plait/Plan/Files.h"

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

/// Returns the heading of the first column.
static std::string getKind(const std::vector<Compared> &compared) {
  bool isCluster = !compared.empty() && compared.front().label.empty();
  return isCluster ? "cluster" : "case";
}

/// The first one that there is an answer for; null where there is none.
static const ReportInput *getFirst(const std::vector<Compared> &compared) {
  auto first = std::find_if(compared.begin(), compared.end(),
                            [](const Compared &one) { return one.report; });
  return first == compared.end() ? nullptr : &*first->report;
}

/// Both tables have the same first column, so that rows are found again.
static size_t getNameWidth(const std::vector<Compared> &compared) {
  size_t width = 16;
  for (const Compared &one : compared)
    width = std::max(width, getLabel(one).size() + 1);
  return width;
}

/// The step, the configuration below it.
static void writeSteps(Screen &screen, const std::vector<Compared> &compared) {
  // Wide enough for the largest figures that are likely, and 80 columns
  // together with the names of most clusters.
  Table table(screen, {11, 13, 8, 10, 10, 9});
  table.nameWidth = getNameWidth(compared);
  table.row(getKind(compared),
            {"step", "tokens/s", "MFU", "memory", "of", "devices"});
  for (const Compared &one : compared) {
    // A cluster without a pick says why, where the others have their figures.
    if (!one.report) {
      screen.line(getLabel(one));
      screen.entry("", one.failure);
      continue;
    }
    const SearchResult &result = one.report->result;
    const Estimate &estimate = result.estimate;
    table.row(getLabel(one),
              {printSeconds(estimate.iterationSeconds),
               printCount(estimate.tokensPerSecond),
               printNumber(100 * estimate.mfu, 1) + " %",
               printBytes(estimate.peakMemory()),
               printBytes(one.report->cluster.device.usableBytes()),
               printCount(double(result.configuration.ranks()))});
    // Below the figures, as it is longer than a column.
    screen.entry("", printMarked(result.configuration));
    screen.entry("", describeEach(*one.report));
    if (std::string text = describeBand(*one.report); !text.empty())
      screen.entry("", text);
  }
}

/// Left out where no tokens were given. Clusters without a pick are in the
/// table before this one.
static void writeProjections(Screen &screen,
                             const std::vector<Compared> &compared) {
  // All reports have the same goal except for its price, so the first report
  // describes it.
  const ReportInput *first = getFirst(compared);
  if (!first || !first->goal)
    return;
  screen.heading("the whole training, " + printTokens(first->goal->tokens) +
                 " tokens");
  Table table(screen, {15, 15, 12, 17});
  table.nameWidth = getNameWidth(compared);
  table.row(getKind(compared), {"time", "device-hours", "energy", "money"});
  for (const Compared &one : compared) {
    if (!one.report)
      continue;
    const ReportInput &input = *one.report;
    Projection projection =
        project(*input.goal, input.result, input.cluster, input.training);
    table.row(
        getLabel(one),
        {printDuration(projection.seconds), printCount(projection.deviceHours),
         projection.joules ? printEnergy(*projection.joules) : "-",
         projection.money ? printMoney(*projection.money, *input.goal) : "-"});
    for (const auto &[name, text] : describeProjection(projection, input))
      if (name == "band")
        screen.entry("", text);
  }
}

std::string planner::compareText(const std::vector<Compared> &compared,
                                 const TextOptions &options) {
  Screen screen(options);
  writeSteps(screen, compared);
  writeProjections(screen, compared);
  std::vector<std::string> best = describeBest(compared);
  if (!best.empty())
    screen.heading("the best");
  for (const std::string &sentence : best)
    screen.entry("", sentence);
  return std::move(screen.out);
}

//===----------------------------------------------------------------------===//
// As a page
//===----------------------------------------------------------------------===//

/// A row a case: layout, speed, memory, and of a goal time and money.
static std::string drawCases(const std::vector<Compared> &compared) {
  const ReportInput *first = getFirst(compared);
  bool hasGoal = first && first->goal;
  Row head = {getKind(compared), "layout", "step",   "band",   "tokens/s",
              "on each",         "MFU",    "memory", "devices"};
  if (hasGoal)
    head.insert(head.end(), {"time", "device-hours", "money"});
  std::vector<Row> rows;
  for (const Compared &one : compared) {
    if (!one.report) {
      rows.push_back({escapeHtml(getLabel(one)), escapeHtml(one.failure)});
      continue;
    }
    const ReportInput &input = *one.report;
    const Estimate &estimate = input.result.estimate;
    Row row = {escapeHtml(getLabel(one)),
               escapeHtml(printMarked(input.result.configuration)),
               printSeconds(estimate.iterationSeconds),
               printBand(input),
               printCount(estimate.tokensPerSecond),
               printCount(estimate.tokensPerSecond /
                          double(input.result.configuration.ranks())),
               printNumber(100 * estimate.mfu, 1) + " %",
               printBytes(estimate.peakMemory()),
               printCount(double(input.result.configuration.ranks()))};
    if (hasGoal) {
      Projection projection =
          project(*input.goal, input.result, input.cluster, input.training);
      row.push_back(printDuration(projection.seconds));
      row.push_back(printCount(projection.deviceHours));
      row.push_back(projection.money
                        ? escapeHtml(printMoney(*projection.money, *input.goal))
                        : "-");
    }
    rows.push_back(row);
  }
  return drawTable(head, rows, 2);
}

/// Tokens a second of each case, as bars against the fastest.
static std::string drawSpeeds(const std::vector<Compared> &compared) {
  double most = 0;
  for (const Compared &one : compared)
    if (one.report)
      most = std::max(most, one.report->result.estimate.tokensPerSecond);
  std::vector<Row> rows;
  for (const Compared &one : compared)
    if (one.report) {
      double speed = one.report->result.estimate.tokensPerSecond;
      rows.push_back({escapeHtml(getLabel(one)),
                      drawBar({{"forward", speed}}, most), printCount(speed)});
    }
  return rows.empty() ? ""
                      : drawHeading("Tokens a second") + drawTable({}, rows, 2);
}

Status planner::writeHtmlComparison(const std::vector<Compared> &compared,
                                    const std::string &asked,
                                    const std::string &path) {
  const ReportInput *first = getFirst(compared);
  std::string title = "Training " +
                      (first ? first->model : std::string("a model")) + ": " +
                      std::to_string(compared.size()) + " cases compared";
  std::string out = beginPage(title, asked);
  std::string best;
  for (const std::string &sentence : describeBest(compared))
    best += (best.empty() ? "" : " ") + sentence;
  if (!best.empty())
    out += "<p>" + escapeHtml(best) + "</p>\n";
  if (first)
    out += drawNote(describeTrust(*first));
  out += drawHeading("Cases") + drawCases(compared) + drawSpeeds(compared);
  return writeTextFile(path, out + drawLegendOfWords() + endPage());
}
