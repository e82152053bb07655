//===- Projection.cpp - A whole training, from one step -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A whole training from one predicted step, in figures and in words. Everything
// is a multiple of the step; two rules of thumb stand beside it, to be compared
// with.
//
//===----------------------------------------------------------------------===//

#include "Report/Projected.h"

#include <algorithm>
#include <cctype>
#include <cmath>

using namespace plait;
using namespace plait::planner;

double planner::getRuleSeconds(double flops, double tokens, double parameters,
                               double devices, double rate) {
  return flops * tokens * parameters / (devices * rate);
}

double planner::getComputeOptimalTokens(double parameters) {
  return 20 * parameters;
}

/// The part of the layers that is computed again whole.
static double getFullShare(const Configuration &configuration) {
  if (std::optional<Recompute> kind = configuration.recompute.getUniform())
    return *kind == Recompute::Full;
  // Counted layer by layer, since each stage may have another number of them.
  double all = 0, full = 0;
  for (size_t stage = 0; stage < configuration.layers.size(); ++stage) {
    int layers = configuration.layers[stage];
    all += layers;
    full += std::min(layers, configuration.recompute.getStage(stage).full);
  }
  return all > 0 ? full / all : 0;
}

/// Steps are whole, so that the last one may see more tokens than are left.
/// Devices are those that the configuration uses: what it leaves idle is not
/// paid for here. Utilisation does not enter: the step has it in it.
Projection planner::project(const Goal &goal, const SearchResult &result,
                            const Cluster &cluster, const Training &training) {
  const Estimate &estimate = result.estimate;
  const Configuration &configuration = result.configuration;
  double devices = double(configuration.ranks());
  double parameters = result.work->totalParameters;
  Projection projection;
  projection.tokens = goal.tokens;
  projection.steps = std::ceil(
      goal.tokens / (double(training.globalBatch) * training.sequence));
  projection.seconds = projection.steps * estimate.iterationSeconds;
  projection.deviceHours = devices * projection.seconds / 3600;
  // An upper bound for the devices alone: they draw their power limit the whole
  // time.
  if (cluster.device.powerWatts > 0)
    projection.joules =
        devices * projection.seconds * cluster.device.powerWatts;
  if (goal.price)
    projection.money = *goal.price * projection.deviceHours;
  projection.modelFlops = projection.steps * estimate.modelFlops;
  // Recomputing the forward pass adds 2 FLOPs a token and parameter. The rate
  // counts them as well, so that the rule differs from the prediction by what
  // it leaves out, not by what it calls a FLOP.
  projection.ruleFlops = 6 + 2 * getFullShare(configuration);
  projection.ruleRate = projection.ruleFlops / 6 * estimate.modelFlops /
                        (devices * estimate.iterationSeconds);
  projection.ruleSeconds =
      getRuleSeconds(projection.ruleFlops, goal.tokens, parameters, devices,
                     projection.ruleRate);
  projection.optimalTokens = getComputeOptimalTokens(parameters);
  return projection;
}

//===----------------------------------------------------------------------===//
// In words
//===----------------------------------------------------------------------===//

/// "300e9", "1.60e12": three digits and a power of a thousand. Below a million
/// as it is.
std::string planner::printTokens(double tokens) {
  constexpr std::pair<double, const char *> scales[] = {
      {1e12, "e12"}, {1e9, "e9"}, {1e6, "e6"}};
  for (auto [scale, suffix] : scales)
    if (tokens >= scale) {
      double shown = tokens / scale;
      return printNumber(shown, shown < 10 ? 2 : shown < 100 ? 1 : 0) + suffix;
    }
  return printNumber(tokens, 0);
}

/// Signs stand in front of a number, codes of letters behind it.
std::string planner::printMoney(double money, const Goal &goal, int decimals) {
  std::string text =
      decimals ? printNumber(money, decimals) : printCount(money);
  if (goal.currency.empty())
    return text;
  bool isCode = std::isalpha(static_cast<unsigned char>(goal.currency.front()));
  return isCode ? text + " " + goal.currency : goal.currency + text;
}

/// Prints in the largest of days, hours and minutes of which there is at least
/// one.
std::string planner::printDuration(double seconds) {
  if (seconds >= 86400)
    return printNumber(seconds / 86400, 1) + " days";
  if (seconds >= 3600)
    return printNumber(seconds / 3600, 1) + " hours";
  return printNumber(seconds / 60, 1) + " minutes";
}

/// Kilowatt-hours and their thousands, as electricity is paid for.
std::string planner::printEnergy(double joules) {
  // In joules.
  constexpr double kiloWattHour = 3.6e6;
  constexpr std::pair<double, const char *> scales[] = {{1e6, " GWh"},
                                                        {1e3, " MWh"}};
  double hours = joules / kiloWattHour;
  for (auto [scale, unit] : scales)
    if (hours >= scale)
      return printNumber(hours / scale, 1) + unit;
  return printNumber(hours, 1) + " kWh";
}

double planner::roundEnd(double value) {
  if (value <= 0)
    return value;
  double unit = std::pow(10, std::floor(std::log10(value)) - 2);
  return std::round(value / unit) * unit;
}

/// The band of a step, as many times.
static std::string describeRange(const Projection &projection, const Goal &goal,
                                 const Band &band) {
  std::string text =
      "8 of 10 runs: " + printDuration(band.low * projection.seconds) + " to " +
      printDuration(band.high * projection.seconds);
  if (projection.money)
    text += ", " + printMoney(roundEnd(band.low * *projection.money), goal) +
            " to " + printMoney(roundEnd(band.high * *projection.money), goal);
  return text;
}

/// Rows for the screen and for the page, in the order of docs/Planner.md. What
/// is not known has no row.
std::vector<std::pair<std::string, std::string>>
planner::describeProjection(const Projection &projection,
                            const ReportInput &input) {
  double iteration = input.result.estimate.iterationSeconds;
  std::vector<std::pair<std::string, std::string>> rows;
  rows.emplace_back("time", printDuration(projection.seconds) + ", " +
                                printCount(projection.steps) + " steps of " +
                                printSeconds(iteration));
  rows.emplace_back("devices",
                    printCount(projection.deviceHours) + " device-hours on " +
                        printCount(double(input.result.configuration.ranks())) +
                        " devices");
  if (projection.joules)
    rows.emplace_back("energy",
                      printEnergy(*projection.joules) + " at " +
                          printCount(input.cluster.device.powerWatts) +
                          " W a device");
  if (projection.money)
    rows.emplace_back("money",
                      printMoney(*projection.money, *input.goal) + " at " +
                          printMoney(*input.goal->price, *input.goal, 2) +
                          " a device-hour");
  if (std::optional<Band> band = getBand(input))
    rows.emplace_back("band", describeRange(projection, *input.goal, *band));
  rows.emplace_back(
      "rule", printDuration(projection.ruleSeconds) + " by the rule of thumb " +
                  printNumber(projection.ruleFlops, 0) +
                  " T P / (n X), which leaves attention out: a check of time, "
                  "for T tokens, P parameters, n devices of X = " +
                  printNumber(projection.ruleRate / 1e12, 1) +
                  " TFLOP/s as predicted");
  rows.emplace_back("optimal",
                    "about " + printTokens(projection.optimalTokens) +
                        " tokens for " +
                        printTokens(input.result.work->totalParameters) +
                        " parameters, if trained from scratch: 20 each "
                        "(Chinchilla)");
  return rows;
}
