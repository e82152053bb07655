//===- Chart.cpp - A schedule drawn for the terminal ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Draws a timeline in characters. Each rank is a row of equal columns; an
// action fills those that its interval rounds to, and is labelled where there
// is room. Rounding is done on the ends of intervals and not on their lengths,
// so that errors do not add up along a row and ranks stay comparable column by
// column.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Chart.h"
#include "plait/Support/ActionKinds.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

using namespace plait;
using namespace plait::schedule;

namespace {

/// How a kind of action looks.
struct Look {
  ActionKind kind;
  std::string meaning;
  const char *color; // black text on a background
};

constexpr const char *plain = "\033[0m";

/// Draws work in colors of its own, and of what happens once a step the
/// exchanges between replicas in one.
const std::vector<Look> &getLooks() {
  static const std::vector<Look> all = [] {
    std::vector<Look> looks = {
        {ActionKind::Forward, "forward", "\033[30;44m"},
        {ActionKind::Backward, "backward", "\033[30;42m"},
        {ActionKind::BackwardInput, "input gradient", "\033[30;46m"},
        {ActionKind::BackwardWeight, "weight gradient", "\033[30;43m"},
    };
    for (size_t kind = 0; kind < std::size(actionKinds); ++kind)
      if (const ActionFacts &facts = actionKinds[kind]; facts.isOnceAStep()) {
        std::string meaning(facts.name);
        meaning[0] = char(std::tolower(meaning[0]));
        looks.push_back({ActionKind(kind), meaning,
                         facts.isOfReplicas() ? "\033[30;45m" : "\033[30;47m"});
      }
    return looks;
  }();
  return all;
}

/// The first letter of the text form.
char getLetter(const Look &look) { return print(Action{look.kind}).front(); }

/// None for messages: they take no time of their own in a simulation, and a row
/// of marks for each would hide the work.
const Look *findLook(const Action &action) {
  for (const Look &look : getLooks())
    if (look.kind == action.kind)
      return &look;
  return nullptr;
}

/// Appends line by line to `text`. Times are scaled to columns once a row, from
/// the makespan, so that all rows have the same scale.
class ChartWriter {
public:
  ChartWriter(const Schedule &schedule, const Timeline &timeline,
              const ChartOptions &options)
      : schedule(schedule), timeline(timeline), options(options) {}

  std::string run();

private:
  void drawRank(uint32_t rank, size_t nameColumns, size_t columns);
  void drawCell(const Action &action, const Look &look, size_t columns,
                bool labelled);
  void drawLegend();

  const Schedule &schedule;
  const Timeline &timeline;
  const ChartOptions &options;
  std::string text;
};

} // namespace

/// A label filled up to `columns`, or the letter alone.
void ChartWriter::drawCell(const Action &action, const Look &look,
                           size_t columns, bool labelled) {
  std::string cell(columns, getLetter(look));
  if (labelled) {
    cell = print(action);
    cell.resize(columns, options.color ? ' ' : '=');
  }
  text += options.color ? look.color + cell + plain : cell;
}

/// One row: the name, cells and dots for idle time. `column` is the first
/// column that nothing is drawn in yet; it only grows, so that a row is exactly
/// `columns` wide whatever the intervals are.
void ChartWriter::drawRank(uint32_t rank, size_t nameColumns, size_t columns) {
  std::string number = std::to_string(rank);
  text += "rank " + std::string(nameColumns - number.size(), ' ') + number;
  text += " |";
  double scale = timeline.makespan > 0 ? columns / timeline.makespan : 0;
  size_t column = 0;
  for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
    const Action &action = schedule.ranks[rank][i];
    const Look *look = findLook(action);
    if (!look)
      continue;
    const Interval &interval = timeline.ranks[rank][i];
    // What begins beside the action before is drawn from that one's end on.
    size_t begin =
        std::max<size_t>(column, std::lround(interval.start * scale));
    size_t end = std::min<size_t>(std::lround(interval.end * scale), columns);
    // Rounded to nothing, or hidden behind the action before.
    if (begin >= end)
      continue;
    text.append(begin - column, '.');
    // Equal actions are labelled alike, whichever way their ends are rounded.
    double exact = (interval.end - interval.start) * scale + 1e-6;
    size_t room = std::min<size_t>(exact, end - begin);
    drawCell(action, *look, end - begin, print(action).size() <= room);
    column = end;
  }
  text.append(columns - column, '.');
  text += "|\n";
}

/// Only what occurs is explained, in the order of the table.
void ChartWriter::drawLegend() {
  const std::vector<Look> &looks = getLooks();
  std::vector<bool> present(looks.size());
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Action &action = schedule.ranks[rank][i];
      const Interval &interval = timeline.ranks[rank][i];
      // What happens once a step takes no time in most simulations.
      if (const Look *look = findLook(action);
          look && (action.isCompute() || interval.end > interval.start))
        present[look - looks.data()] = true;
    }
  for (size_t i = 0; i < looks.size(); ++i)
    if (present[i])
      text +=
          std::string(1, getLetter(looks[i])) + " " + looks[i].meaning + ", ";
  char rate[64];
  std::snprintf(rate, sizeof rate, ". idle; bubble %.1f %%\n",
                100 * timeline.bubbleRate);
  text += rate;
}

/// The names are as wide as that of the last rank, and at least eight columns
/// are drawn however narrow the terminal is said to be.
std::string ChartWriter::run() {
  size_t nameColumns = std::to_string(schedule.problem.stages - 1).size();
  // "rank ", the number, " |" and the closing "|".
  size_t frame = nameColumns + 8;
  size_t width = std::max<size_t>(options.width, 20);
  size_t columns = std::max<size_t>(width - std::min(width, frame), 8);
  for (uint32_t rank = 0; rank < schedule.ranks.size(); ++rank)
    drawRank(rank, nameColumns, columns);
  drawLegend();
  return std::move(text);
}

std::string schedule::drawChart(const Schedule &schedule,
                                const Timeline &timeline,
                                const ChartOptions &options) {
  return ChartWriter(schedule, timeline, options).run();
}
