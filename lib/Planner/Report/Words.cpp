//===- Words.cpp - Sentences of screens and pages -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What screens, pages and messages of commands say in the same words.
//
//===----------------------------------------------------------------------===//

#include "Report/Words.h"
#include "Report/Projected.h"
#include "Search/Parts.h"
#include "plait/Planner/PlanBand.h"

#include <algorithm>
#include <cmath>
#include <tuple>

using namespace plait;
using namespace plait::planner;

/// Speeds are those that others publish of their runs.
std::string planner::describeEach(const ReportInput &input) {
  const Estimate &estimate = input.result.estimate;
  double devices = double(input.result.configuration.ranks());
  std::string each = input.cluster.device.isProcessor ? "/rank" : "/GPU";
  return printCount(estimate.tokensPerSecond / devices) + " tokens/s" + each +
         ", " +
         printNumber(estimate.modelFlops / estimate.iterationSeconds / devices /
                         1e12,
                     1) +
         " TFLOP/s" + each;
}

std::optional<Band> planner::getBand(const ReportInput &input) {
  if (input.cluster.device.isProcessor)
    return std::nullopt;
  const Configuration &pick = input.result.configuration;
  return getBand(askBand(input.training.framework.name, input.cluster.device,
                         pick.ranks(), pick.offload != Offload::None,
                         input.result.hasExperts));
}

/// "-3 to +13", in percent of what is predicted.
static std::string printPercents(const Band &band) {
  auto print = [](double factor) {
    std::string text = printNumber(100 * std::abs(factor - 1), 0);
    return (text == "0" ? "" : factor < 1 ? "-" : "+") + text;
  };
  return print(band.low) + " to " + print(band.high);
}

std::string planner::printBand(const ReportInput &input) {
  std::optional<Band> band = getBand(input);
  return band ? printPercents(*band) + " %" : "-";
}

std::string planner::describeBand(const ReportInput &input) {
  std::optional<Band> band = getBand(input);
  if (!band)
    return "";
  const Estimate &estimate = input.result.estimate;
  return "8 of 10 runs: " +
         printSeconds(roundEnd(band->low * estimate.iterationSeconds)) +
         " to " +
         printSeconds(roundEnd(band->high * estimate.iterationSeconds)) + ", " +
         printCount(roundEnd(estimate.tokensPerSecond / band->high)) + " to " +
         printCount(roundEnd(estimate.tokensPerSecond / band->low)) +
         " tokens/s";
}

/// docs/Accuracy.md has the runs.
std::string planner::describeTrust(const ReportInput &input) {
  std::optional<Band> band = getBand(input);
  if (!band)
    return "";
  std::string text = "Steps of 8 of 10 runs are " + printPercents(*band) +
                     " % from such a prediction, by " + describeBasis(*band);
  return text + (band->unmeasured.empty() ? "." : ", which widens it.");
}

/// A figure that nobody has held against a measurement is not left to be
/// believed.
std::string planner::describeExperts(const ReportInput &input) {
  const Configuration &pick = input.result.configuration;
  if (pick.mesh[Axis::EP] == 1)
    return "";
  return "ranks of ep exchange " + print(pick.expertExchange) +
         " (expert-exchange)";
}

std::string planner::describeUnmeasured(const ReportInput &input) {
  const Configuration &pick = input.result.configuration;
  std::string text;
  auto add = [&](const char *words) {
    text += (text.empty() ? "" : "; ") + std::string(words);
  };
  if (pick.offload != Offload::None)
    add("offload: no published run shows how good its times are");
  if (input.cluster.device.isProcessor ||
      std::string_view(input.training.framework.name) != "plait")
    return text;
  if (input.result.hasExperts)
    add("experts: no GPU has run plait's grouped matmuls so far");
  if (pick.ranks() > 1)
    add("several GPUs: plait has run on one so far, and these times are held "
        "against runs of other programs");
  return text;
}

/// Runners-up come in their order, the fastest of a layout first.
std::vector<SharedRow>
planner::shareRows(const std::vector<Alternative> &alternatives) {
  auto getLayout = [](const Configuration &c) {
    return std::pair(c.mesh, c.offload);
  };
  std::vector<SharedRow> rows;
  for (const Alternative &other : alternatives) {
    auto row = std::ranges::find_if(rows, [&](const SharedRow &row) {
      return other.change.empty() && getLayout(row.best->configuration) ==
                                         getLayout(other.configuration);
    });
    if (row == rows.end())
      rows.push_back({&other, 0});
    else
      ++row->others;
  }
  return rows;
}

std::string planner::describeRow(const SharedRow &row) {
  return row.best->why + (row.others == 0 ? ""
                                          : "; " + std::to_string(row.others) +
                                                " more with this mesh");
}

static const char *getMark(const Configuration &configuration) {
  return configuration.offload == Offload::None ? "" : " (unmeasured)";
}

std::string planner::printMarked(const Configuration &configuration) {
  return print(configuration) + getMark(configuration);
}

std::string planner::nameAlternative(const Alternative &other) {
  return other.change.empty() ? printMarked(other.configuration)
                              : other.change + getMark(other.configuration);
}

std::string planner::describeClose(const SearchResult &result) {
  int close = result.countWithinBand();
  std::string band = printNumber(100 * robustBand, 0) + " %";
  return std::to_string(close) + " of the " +
         std::to_string(result.runnersUp.size()) + " runners-up " +
         (close == 1 ? "is" : "are") + " within " + band +
         (close ? ": too close to call" : "") +
         ". Of published runs, half of the predicted ratios are off by more "
         "than " +
         band + ", and 2 of 10 by more than " +
         printNumber(100 * robustMost, 0) + " %";
}

std::string planner::describeFaster(double seconds, double other,
                                    const std::string &how) {
  return "a step takes " + printSeconds(seconds) + ", " + printSeconds(other) +
         " if it were " + how + " (" +
         printNumber(100 * (1 - other / seconds), 0) + " % less)";
}

/// The text is for standard error: it has wall-clock figures, which differ from
/// run to run.
std::string planner::describeSearch(const SearchResult &result) {
  const SearchCounts &counts = result.counts;
  return "considered " + printCount(double(counts.considered)) +
         " configurations in " + printSeconds(counts.seconds) + " (" +
         printCount(counts.perSecond()) + " per second), estimated " +
         printCount(double(counts.estimated));
}

/// Names the best that uses all devices and what it loses, or that there is
/// none.
std::string planner::describeIdle(const SearchResult &result) {
  if (result.idleDevices == 0)
    return "";
  int64_t devices = result.configuration.ranks() + result.idleDevices;
  std::string text = std::to_string(result.idleDevices) + " of " +
                     std::to_string(devices) + " devices stay idle: ";
  if (!result.allDevices)
    return text + "nothing that uses all of them divides the batch and fits";
  const Alternative &all = *result.allDevices;
  return text + "with all of them a step takes " +
         printSeconds(all.estimate.iterationSeconds) + " (" +
         print(all.configuration) + "), " + all.why;
}
