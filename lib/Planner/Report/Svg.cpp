//===- Svg.cpp - Drawings of a step ---------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Drawings for the page: bars of parts, the timeline, memory over time. SVG is
// written as text, with coordinates to a tenth of a pixel. The size of a page
// is what shapes this file: actions of one kind are one path, memory is a
// staircase of no more steps than the drawing has pixels. Colours stand for the
// same thing in all drawings and tables.
//
//===----------------------------------------------------------------------===//

#include "Report/Svg.h"

#include <algorithm>
#include <map>

using namespace plait;
using namespace plait::planner;

/// The four characters that could end a text or an attribute in double quotes.
std::string planner::escapeHtml(const std::string &text) {
  std::string out;
  for (char c : text) {
    switch (c) {
    case '&':
      out += "&amp;";
      break;
    case '<':
      out += "&lt;";
      break;
    case '>':
      out += "&gt;";
      break;
    case '"':
      out += "&quot;";
      break;
    default:
      out += c;
    }
  }
  return out;
}

const char *planner::getColor(const std::string &name) {
  // By the names of Parts.cpp and of activities. Two names share a colour where
  // they mean the same or stand in different drawings.
  static const std::map<std::string, const char *> colors = {
      {"forward", "#4c78a8"},
      {"backward", "#72b7b2"},
      {"backward-input", "#72b7b2"},
      {"backward-weight", "#54a24b"},
      {"recomputation", "#9ecae9"},
      {"arithmetic", "#4c78a8"},
      {"memory bandwidth", "#54a24b"},
      {"launches", "#b279a2"},
      {"tp communication", "#f58518"},
      {"cp communication", "#ffbf79"},
      {"pp communication", "#eeca3b"},
      {"dp communication", "#e45756"},
      {"bubble", "#d8d8d8"},
      {"slowest replica", "#b8b0ac"},
      {"wait", "#b8b0ac"},
      {"reduce", "#e45756"},
      {"optimizer", "#b279a2"},
      {"step overhead", "#797979"},
      {"overhead", "#797979"},
      {"parameters", "#4c78a8"},
      {"gradients", "#72b7b2"},
      {"activations", "#f58518"},
      {"workspace", "#eeca3b"},
      {"communicators", "#b8b0ac"}};
  auto found = colors.find(name);
  return found == colors.end() ? "#000000" : found->second;
}

namespace {

/// Coordinates of a drawing: pixels of its view box.
struct Frame {
  explicit Frame(const Drawn &drawn)
      : seconds(drawn.timeline.seconds()), omitted(drawn.omitted()),
        isBroken(drawn.microbatches != drawn.all) {}

  static constexpr double left = 60, width = 900;
  double seconds, omitted; // omitted from the middle
  bool isBroken;
  double x(double at) const { return left + at / seconds * width; }
};

} // namespace

/// The width of all drawings, in pixels of their view box.
static constexpr double drawingWidth = 980;

/// A tenth of a pixel: finer than anyone sees, and short.
static std::string printX(double value) { return printNumber(value, 1); }

static std::string begin(double height) {
  return "<svg viewBox=\"0 0 980 " + printNumber(height, 0) +
         "\" role=\"img\">\n";
}

/// Content is escaped here, so that callers cannot forget it.
static std::string text(double x, double y, const std::string &content,
                        const char *anchor = "start") {
  return "<text x=\"" + printX(x) + "\" y=\"" + printX(y) +
         "\" text-anchor=\"" + anchor + "\">" + escapeHtml(content) +
         "</text>\n";
}

/// With a title, which browsers show as a hint.
static std::string rectangle(double x, double y, double width, double height,
                             const char *color, const std::string &title) {
  return "<rect x=\"" + printX(x) + "\" y=\"" + printX(y) + "\" width=\"" +
         printX(width) + "\" height=\"" + printX(height) + "\" fill=\"" +
         color + "\"><title>" + escapeHtml(title) + "</title></rect>\n";
}

/// Seconds of the whole step below a drawing of the given height, at even
/// places, none of which is in the middle; and where time is left out.
static std::string drawTimeAxis(const Frame &frame, double y) {
  std::string out;
  for (int i = 0; i <= 10; i += 2) {
    // What is left out of the middle is added behind it: labels are of the
    // whole step.
    double seconds = frame.seconds * i / 10;
    // The last one ends with the drawing: its middle would be too far right.
    bool isLast = i == 10;
    out += text(isLast ? drawingWidth : frame.x(seconds), y,
                printSeconds(seconds + (i > 5 ? frame.omitted : 0)),
                isLast ? "end" : "middle");
  }
  // A dashed line from the top to the labels.
  if (frame.isBroken)
    out += "<path class=\"break\" d=\"M" + printX(frame.x(frame.seconds / 2)) +
           " 0V" + printX(y - 12) + "\"/>\n";
  return out;
}

/// Parts from left to right at the scale of `limit`; those too thin to be seen
/// still take their room, so that the others are where they belong.
std::string planner::drawBar(const std::vector<Part> &parts, double limit) {
  constexpr double width = drawingWidth;
  std::string out = "<svg viewBox=\"0 0 980 18\" class=\"bar\">\n";
  out += rectangle(0, 0, width, 18, "#f2f2f2", "");
  double x = 0;
  for (const Part &part : parts) {
    double length = part.value / limit * width;
    // Less than the precision of coordinates would be drawn as nothing.
    if (length >= 0.1)
      out += rectangle(x, 0, length, 18, getColor(part.name), part.name);
    x += length;
  }
  return out + "</svg>\n";
}

//===----------------------------------------------------------------------===//
// Timeline
//===----------------------------------------------------------------------===//

/// Widths are estimated at seven pixels a letter: there is no font to measure.
static std::string drawLegend(const std::vector<std::string> &names, double y) {
  std::string out;
  double x = Frame::left;
  for (const std::string &name : names) {
    out += rectangle(x, y - 9, 10, 10, getColor(name), name);
    out += text(x + 14, y, name);
    x += 30 + 7 * double(name.size());
  }
  return out;
}

/// One row a rank, thinner where there are many, with every fourth one named.
std::string planner::drawTimeline(const Drawn &drawn) {
  const Timeline &timeline = drawn.timeline;
  size_t ranks = timeline.ranks.size();
  // Pixels. Beyond 32 ranks rows are thinner, so that the drawing does not
  // outgrow the page.
  double row = ranks > 32 ? 9 : 16, height = double(ranks) * row;
  Frame frame(drawn);
  // One path for all actions of a kind: a page of some hundred kilobytes.
  std::map<Activity, std::string> paths;
  std::string out = begin(height + 50);
  for (size_t rank = 0; rank < ranks; ++rank) {
    double y = double(rank) * row;
    if (ranks <= 32 || rank % 4 == 0)
      out += text(Frame::left - 6, y + row - 3, "rank " + std::to_string(rank),
                  "end");
    for (const TimelineAction &action : timeline.ranks[rank].actions) {
      // A gap of part of a pixel keeps neighbours apart.
      double width = frame.x(action.end) - frame.x(action.start);
      // Too thin for the precision that coordinates have.
      if (width < 0.05)
        continue;
      std::string &path = paths[action.activity];
      path += "M" + printX(frame.x(action.start)) + " " + printX(y) + "h" +
              printX(std::max(0.1, width - 0.3)) + "v" + printX(row - 1) +
              "h-" + printX(std::max(0.1, width - 0.3)) + "z";
    }
  }
  // In the order of Activity, which is that of a step.
  std::vector<std::string> names;
  for (const auto &[activity, path] : paths) {
    names.push_back(getActivityName(activity));
    out += "<path fill=\"" + std::string(getColor(names.back())) + "\" d=\"" +
           path + "\"><title>" + names.back() + "</title></path>\n";
  }
  out += drawTimeAxis(frame, height + 16);
  return out + drawLegend(names, height + 40) + "</svg>\n";
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// The highest of the samples of each pixel: no peak is lost.
static std::string getLine(const RankTimeline &rank, const Frame &frame,
                           double height, double limit) {
  // By column of the drawing.
  std::map<int, double> highest;
  double last = 0;
  int column = 0;
  for (const MemorySample &sample : rank.memory) {
    // Columns that the last sample reached into keep its bytes, up to the next
    // sample; that one's column has the higher of the two.
    int next = int(sample.seconds / frame.seconds * Frame::width);
    for (; column < next; ++column)
      highest[column] = std::max(highest[column], last);
    last = sample.bytes.peak();
    highest[column] = std::max(highest[column], last);
  }
  for (; column <= int(Frame::width); ++column)
    highest[column] = std::max(highest[column], last);
  std::string path;
  double before = -1;
  for (auto [x, bytes] : highest) {
    // Only where it changes: a path of corners, not of pixels.
    if (bytes == before)
      continue;
    std::string y = printX(height - bytes / limit * height);
    path += path.empty() ? "M" + printX(Frame::left + x) + " " + y
                         : "H" + printX(Frame::left + x) + "V" + y;
    before = bytes;
  }
  return path + "H" + printX(Frame::left + Frame::width);
}

/// At most eight, evenly spread, the first and the last among them.
static std::vector<size_t> pickRanks(size_t ranks) {
  // One for each of drawMemory's colours.
  constexpr size_t most = 8;
  std::vector<size_t> picked;
  size_t count = std::min(most, ranks);
  for (size_t i = 0; i < count; ++i)
    picked.push_back(count == 1 ? 0 : i * (ranks - 1) / (count - 1));
  return picked;
}

/// As high as the highest sample or the limit, whichever is more, so that a
/// peak above the limit is visible. A line for each of some ranks.
std::string planner::drawMemory(const Drawn &drawn, double limit) {
  const Timeline &timeline = drawn.timeline;
  static const char *const colors[] = {"#4c78a8", "#f58518", "#54a24b",
                                       "#e45756", "#b279a2", "#72b7b2",
                                       "#eeca3b", "#797979"};
  // Pixels; the room above is for the label of the limit.
  constexpr double height = 220, top = 16;
  double most = limit;
  for (const RankTimeline &rank : timeline.ranks)
    for (const MemorySample &sample : rank.memory)
      most = std::max(most, sample.bytes.peak());
  Frame frame(drawn);
  std::string out = begin(height + top + 50);
  out += "<g transform=\"translate(0 16)\">\n";
  double y = height - limit / most * height;
  out += "<path class=\"limit\" d=\"M" + printX(Frame::left) + " " + printX(y) +
         "h" + printX(Frame::width) + "\"/>\n";
  out += text(Frame::left - 6, y + 4, printBytes(limit), "end");
  out += text(Frame::left - 6, height, "0", "end");
  // Lines of all ranks would cover each other.
  std::vector<size_t> picked = pickRanks(timeline.ranks.size());
  double x = Frame::left;
  for (size_t i = 0; i < picked.size(); ++i) {
    std::string name = "rank " + std::to_string(picked[i]);
    out += "<path class=\"line\" stroke=\"" + std::string(colors[i]) +
           "\" d=\"" + getLine(timeline.ranks[picked[i]], frame, height, most) +
           "\"><title>" + name + "</title></path>\n";
    out += rectangle(x, height + 27, 10, 10, colors[i], name);
    out += text(x + 14, height + 36, name);
    x += 100;
  }
  return out + drawTimeAxis(frame, height + 16) + "</g></svg>\n";
}

/// Axes go from the first rate to the last one, and from nothing to all.
std::string planner::drawUtilisation(const std::vector<Utilisation> &curves) {
  static const char *const colors[] = {"#4c78a8", "#f58518", "#54a24b",
                                       "#e45756", "#b279a2", "#72b7b2",
                                       "#eeca3b", "#797979", "#000000"};
  constexpr double height = 220, left = 60, width = 700;
  std::string out = begin(height + 66);
  out += "<g transform=\"translate(0 16)\">\n";
  const std::vector<double> &rates = curves.front().bandwidths;
  double first = std::log10(rates.front()), last = std::log10(rates.back());
  auto getX = [&](double rate) {
    return left + (std::log10(rate) - first) / (last - first) * width;
  };
  for (double rate = rates.front(); rate < 1.1 * rates.back(); rate *= 10)
    out += text(getX(rate), height + 16,
                printNumber(rate * 8e-9, rate < 1e8 ? 2 : 0) + " Gbit/s",
                "middle");
  for (int percent : {0, 50, 95}) {
    double y = height * (1 - percent / 100.0);
    out += "<path class=\"limit\" d=\"M" + printX(left) + " " + printX(y) +
           "h" + printX(width) + "\"/>\n";
    out += text(left - 6, y + 4, std::to_string(percent) + " %", "end");
  }
  for (size_t i = 0; i < curves.size() && i < std::size(colors); ++i) {
    const Utilisation &curve = curves[i];
    std::string line;
    for (size_t j = 0; j < curve.parts.size(); ++j)
      line += (j ? "L" : "M") + printX(getX(curve.bandwidths[j])) + " " +
              printX(height * (1 - curve.parts[j]));
    out += "<path class=\"line\" stroke=\"" + std::string(colors[i]) +
           "\" d=\"" + line + "\"><title>" + escapeHtml(curve.outer) +
           "</title></path>\n";
    double y = 20.0 * double(i);
    out += rectangle(left + width + 14, y, 10, 10, colors[i], curve.outer);
    out += text(left + width + 28, y + 9, curve.outer);
  }
  return out + "</g></svg>\n";
}
