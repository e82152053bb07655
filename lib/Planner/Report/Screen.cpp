//===- Screen.cpp - Text of a given width ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lines of a screen: labels, wrapped text and bars of a given width. Plain
// ASCII, with ANSI colours where they are asked for; colour never changes how
// wide a line is.
//
//===----------------------------------------------------------------------===//

#include "Report/Screen.h"
#include "Search/Parts.h"

#include <cmath>

using namespace plait;
using namespace plait::planner;

std::string planner::padRight(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string planner::padLeft(const std::string &text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

void Screen::heading(const std::string &text) {
  out += color ? "\n\033[1m" + text + "\033[0m\n" : "\n" + text + "\n";
}

/// Breaks between words. A word that is longer than the line stands on one of
/// its own: names and paths are not cut. Lines end without blanks, so that
/// output can be compared.
void Screen::entry(const std::string &label, const std::string &text) {
  // The column where texts begin, and continue.
  constexpr size_t indent = 12;
  std::string line = padRight(label, indent);
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find(' ', begin), text.size());
    if (line.size() > indent && line.size() + end - begin > width) {
      while (line.ends_with(' '))
        line.pop_back();
      out += line + "\n";
      line.assign(indent, ' ');
    }
    line += text.substr(begin, end - begin) + " ";
    begin = end + 1;
  }
  while (line.ends_with(' '))
    line.pop_back();
  out += line + "\n";
}

/// The bar takes what name and figures leave of the line. Shares come from sums
/// that are rounded: one outside of 0 to 1 counts as the nearer end.
void Screen::bar(const std::string &name, const std::string &value,
                 double share) {
  std::string text = "  " + padRight(name, 17) + padLeft(value, 10) +
                     padLeft(printNumber(100 * share, 1), 6) + " %  ";
  double room = double(width - text.size());
  size_t length = size_t(std::lround(std::clamp(share, 0.0, 1.0) * room));
  // Escapes are added once widths are settled: they take no columns.
  std::string drawn(length, '#');
  if (color && length > 0)
    drawn = "\033[36m" + drawn + "\033[0m";
  while (length == 0 && text.ends_with(' '))
    text.pop_back();
  out += text + drawn + "\n";
}
