//===- Parts.cpp - Breakdown of time and memory ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An estimate as named parts, and in words. Texts, tables, pages and traces
// take their parts from here, so that they agree on names and order, and so
// that the parts of two estimates can be compared by index. The sums are
// invariants that reports rely on: time parts and roofline parts add up to the
// step, memory parts to the peak.
//
//===----------------------------------------------------------------------===//

#include "Search/Parts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ranges>

using namespace plait;
using namespace plait::planner;

/// What a rank does not work in.
static void addWaiting(const Breakdown &parts, std::vector<Part> &list) {
  const Exposed &exposed = parts.exposed;
  // Communication by axis of the mesh, then the two waits that are for no
  // message.
  for (const AxisFacts &facts : std::views::reverse(kAxes))
    list.push_back(
        {std::string(facts.name) + " communication", exposed[facts.axis]});
  list.push_back({"bubble", parts.bubble});
  list.push_back({"slowest replica", parts.wait});
}

/// All parts are listed, also those that are 0: reports leave out what they
/// like.
std::vector<Part> planner::getTimeParts(const Estimate &estimate) {
  const Breakdown &parts = estimate.breakdown;
  std::vector<Part> list = {{"forward", parts.forward},
                            {"backward", parts.backward},
                            {"recomputation", parts.recompute}};
  addWaiting(parts, list);
  list.push_back({"optimizer", parts.optimizer});
  list.push_back({"step overhead", parts.overhead});
  return list;
}

/// Work is split by what bounds it: the first three parts contain forward,
/// backward, recomputation and optimizer. Waiting is split as in the time
/// parts.
std::vector<Part> planner::getRooflineParts(const Estimate &estimate) {
  const Breakdown &parts = estimate.breakdown;
  std::vector<Part> list = {{"arithmetic", parts.arithmetic()},
                            {"memory bandwidth", parts.memory},
                            {"launches", parts.launch}};
  addWaiting(parts, list);
  list.push_back({"step overhead", parts.overhead});
  return list;
}

/// What the device has reserved is not among them: it is beside the peak. What
/// communicators take beyond it is the same on all stages, and mostly nothing.
std::vector<Part> planner::getMemoryParts(const StageMemory &memory) {
  std::vector<Part> parts = {{"parameters", memory.parameters},
                             {"gradients", memory.gradients},
                             {"optimizer", memory.optimizer},
                             {"activations", memory.activations},
                             {"workspace", memory.workspace}};
  if (memory.communicators > 0)
    parts.push_back({"communicators", memory.communicators});
  return parts;
}

/// The first of those that are equal, so that messages do not depend on
/// rounding elsewhere. An estimate has at least one.
size_t planner::getFullestStage(const Estimate &estimate) {
  auto fullest =
      std::max_element(estimate.memory.begin(), estimate.memory.end(),
                       [](const StageMemory &a, const StageMemory &b) {
                         return a.peak() < b.peak();
                       });
  return size_t(fullest - estimate.memory.begin());
}

std::string planner::printNumber(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string planner::printCount(double value) {
  std::string digits = printNumber(value, 0);
  for (size_t i = digits.size(); i > 3; i -= 3)
    digits.insert(i - 3, ",");
  return digits;
}

/// Gigabytes from 1e9 bytes on, megabytes below that; 0 bytes are 0 GB.
std::string planner::printBytes(double bytes) {
  if (bytes == 0)
    return "0 GB";
  if (bytes >= 1e9)
    return printNumber(bytes / 1e9, 1) + " GB";
  return printNumber(bytes / 1e6, bytes >= 1e7 ? 0 : 1) + " MB";
}

/// At least three significant digits down to a millisecond.
std::string planner::printSeconds(double seconds) {
  if (std::abs(seconds) < 1e-9) // differences of equal sums are not quite 0
    return "0 s";
  if (seconds >= 100)
    return printNumber(seconds, 1) + " s";
  if (seconds >= 0.1)
    return printNumber(seconds, 3) + " s";
  return printNumber(1e3 * seconds, seconds >= 0.01 ? 1 : 2) + " ms";
}

/// Names the stage, its largest part and what the device has: enough to know
/// what to change.
static std::string explainShortage(const Estimate &estimate,
                                   const Cluster &cluster) {
  size_t stage = getFullestStage(estimate);
  const StageMemory &memory = estimate.memory[stage];
  // The device's first: others are only asked for in its place.
  MemoryPlace place = findShort(estimate.getNeeds(), cluster.device)
                          .value_or(MemoryPlace::Arena);
  if (place != MemoryPlace::Arena)
    return "needs " + printBytes(estimate.getNeeds()[place]) + " of " +
           std::string(getFacts(place).words) + ", has " +
           printBytes(cluster.device.getRoom(place));
  std::vector<Part> parts = getMemoryParts(memory);
  auto largest = std::max_element(
      parts.begin(), parts.end(),
      [](const Part &a, const Part &b) { return a.value < b.value; });
  return "needs " + printBytes(memory.peak()) + " on stage " +
         std::to_string(stage) + " (" + largest->name + " " +
         printBytes(largest->value) + "), has " +
         printBytes(cluster.device.usableBytes());
}

/// The parts that grew most, the largest first: one, or two where the second
/// matters as well.
static std::string explainGrowth(const Estimate &pick, const Estimate &other) {
  std::vector<Part> before = getTimeParts(pick), after = getTimeParts(other);
  // Indices of parts, which both lists share.
  std::vector<size_t> order(before.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  auto growth = [&](size_t i) { return after[i].value - before[i].value; };
  // Equal growth in the order of the list: the text is the same on every
  // machine.
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(-growth(a), a) < std::pair(-growth(b), b);
  });
  constexpr double matters = 0.3; // of the first
  std::string text;
  for (size_t i = 0; i < 2; ++i) {
    // Sorted by growth: after the first that is too small, all are.
    double grown = growth(order[i]);
    if (grown <= 0 || grown < matters * growth(order[0]))
      break;
    text += std::string(i == 0 ? ": " : ", ") + after[order[i]].name + " " +
            printSeconds(after[order[i]].value) + " against " +
            printSeconds(before[order[i]].value);
  }
  return text;
}

/// Too large is reported before too slow: what does not fit has no meaningful
/// time. Times that print the same count as equal. A faster one that fits was
/// a variant outside of the space, or not as simple and within the band; beyond
/// that it was in no search, as where a job is held against the best.
std::string planner::explainLoss(const Estimate &pick, const Alternative &other,
                                 const Cluster &cluster) {
  if (!other.fits)
    return explainShortage(other.estimate, cluster);
  double ratio = other.estimate.iterationSeconds / pick.iterationSeconds;
  double percent = 100 * std::abs(ratio - 1);
  if (percent < 0.05)
    return "as fast";
  if (ratio < 1) {
    std::string faster = printNumber(percent, 1) + " % faster";
    if (!other.change.empty())
      return faster + ", but was not to be chosen";
    return ratio * (1 + robustBand) < 1 ? faster
                                        : faster + ", but not as simple";
  }
  return printNumber(percent, 1) + " % slower" +
         explainGrowth(pick, other.estimate);
}

int SearchResult::countWithinBand() const {
  return int(std::ranges::count_if(runnersUp, [&](const Alternative &other) {
    return other.estimate.iterationSeconds <=
           estimate.iterationSeconds * (1 + robustBand);
  }));
}
