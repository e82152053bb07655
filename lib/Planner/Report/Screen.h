//===- Screen.h - Text of a given width ----------------------- -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_REPORT_SCREEN_H
#define PLAIT_LIB_PLANNER_REPORT_SCREEN_H

#include "plait/Planner/Report.h"

#include <algorithm>

namespace plait::planner {

/// Pad a text with spaces behind or before it; longer texts are returned as
/// they are.
std::string padRight(std::string text, size_t width);
std::string padLeft(const std::string &text, size_t width);

/// Builds lines of at most `width` columns.
class Screen {
public:
  explicit Screen(const TextOptions &options)
      : width(size_t(std::max(60, options.width))), color(options.color) {}

  void heading(const std::string &text);
  /// `label`, then `text` behind it, continued below where it is too long.
  void entry(const std::string &label, const std::string &text);
  /// A name, a value, its share and a bar of that length.
  void bar(const std::string &name, const std::string &value, double share);
  void line(const std::string &text) { out += text + "\n"; }
  size_t columns() const { return width; }

  std::string out;

private:
  size_t width;
  bool color;
};

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_REPORT_SCREEN_H
