//===- ChartOutput.cpp - Charts on standard output ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How wide charts are and whether they have colours: as the options say, else
// as the terminal is.
//
//===----------------------------------------------------------------------===//

#include "ChartOutput.h"

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <sys/ioctl.h>
#include <unistd.h>

using namespace plait;

/// Adds the flags of all commands that draw a chart.
void tool::addChartFlags(CLI::App &command, ChartFlags &flags) {
  command
      .add_option("--width", flags.width,
                  "Columns of the chart (default: the terminal's, or 100)")
      ->check(CLI::Range(20, 10000));
  command.add_flag("--no-color", flags.noColor, "Draw in plain ASCII");
}

/// Without a terminal the width is that of ChartOptions, so that output into
/// files does not depend on where it is made. NO_COLOR is honoured
/// (no-color.org).
schedule::ChartOptions tool::getChartOptions(const ChartFlags &flags) {
  schedule::ChartOptions options;
  bool terminal = isatty(STDOUT_FILENO);
  winsize size = {};
  if (flags.width)
    options.width = flags.width;
  else if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
           size.ws_col)
    options.width = size.ws_col;
  options.color = terminal && !flags.noColor && !std::getenv("NO_COLOR");
  return options;
}
