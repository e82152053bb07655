//===- StageCut.cpp - Which layers form a stage ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StageCut.h"

#include <algorithm>
#include <numeric>

using namespace plait;
using namespace plait::planner;

namespace {

/// Asks, for a bound on the slowest stage, whether some cut keeps it. Filling
/// stages from the back as far as they go answers that exactly, because taking
/// fewer layers never helps a stage further in front.
class Cutter {
public:
  Cutter(std::span<const double> costs, double before, double after, int stages)
      : costs(costs), before(before), after(after), stages(stages),
        layers(size_t(stages)) {}

  std::vector<int> run();

private:
  bool fits(double bound, bool balanced = false);
  double slowest() const;

  std::span<const double> costs;
  double before, after;
  int stages;
  std::vector<int> layers; // of the last bound that was asked for
};

} // namespace

/// `balanced` stages take no more than an even share of what is left.
bool Cutter::fits(double bound, bool balanced) {
  int left = int(costs.size());
  for (int stage = stages - 1; stage > 0; --stage) {
    double load = stage == stages - 1 ? after : 0;
    int count = 0;
    // One for each stage in front has to remain.
    int most = balanced ? (left + stage) / (stage + 1) : left - stage;
    while (count < most &&
           (count == 0 || load + costs[left - count - 1] <= bound)) {
      load += costs[left - count - 1];
      ++count;
    }
    if (load > bound)
      return false;
    layers[stage] = count;
    left -= count;
  }
  layers[0] = left;
  double load = before + (stages == 1 ? after : 0);
  load = std::accumulate(costs.begin(), costs.begin() + left, load);
  return load <= bound;
}

double Cutter::slowest() const {
  double worst = 0;
  size_t next = 0;
  for (int stage = 0; stage < stages; ++stage) {
    double load = stage == 0 ? before : 0;
    load += stage == stages - 1 ? after : 0;
    for (int i = 0; i < layers[stage]; ++i)
      load += costs[next++];
    worst = std::max(worst, load);
  }
  return worst;
}

std::vector<int> Cutter::run() {
  double total = std::accumulate(costs.begin(), costs.end(), before + after);
  double low = total / stages, high = total;
  std::vector<int> best;
  // Every bound that fits is lowered to what its cut needs; the search ends
  // where bounds differ by less than costs are worth.
  while (best.empty() || high - low > 1e-6 * high) {
    double middle = best.empty() ? high * (1 + 1e-12) : (low + high) / 2;
    if (!fits(middle)) {
      low = middle;
      continue;
    }
    best = layers;
    high = slowest();
  }
  return fits(high, true) ? layers : best;
}

std::vector<int> planner::cutStages(std::span<const double> costs,
                                    double before, double after, int stages) {
  return Cutter(costs, before, after, stages).run();
}
