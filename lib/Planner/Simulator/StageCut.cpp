//===- StageCut.cpp - Which layers form a stage ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StageCut.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

namespace {

/// Asks, for a bound on the slowest stage, whether some cut keeps it. Filling
/// stages from the back as far as they go answers that exactly, because taking
/// fewer layers never helps a stage further in front.
class Cutter {
public:
  Cutter(std::span<const double> costs, double before, double after,
         int stages);
  std::vector<int> run();

private:
  bool fits(double bound, bool balanced = false);
  double slowest() const;
  /// Of layers `first` to `last` - 1 on `stage`. The same sum of the same terms
  /// everywhere, so that a stage is never above its own time.
  double getLoad(int stage, int first, int last) const {
    return sums[last] - sums[first] + (stage == 0 ? before : 0) +
           (stage == stages - 1 ? after : 0);
  }

  std::vector<double> sums; // of the layers in front
  double before, after;
  int stages;
  std::vector<int> layers; // of the last bound that was asked for
};

} // namespace

Cutter::Cutter(std::span<const double> costs, double before, double after,
               int stages)
    : before(before), after(after), stages(stages), layers(size_t(stages)) {
  sums.reserve(costs.size() + 1);
  sums.push_back(0);
  for (double cost : costs)
    sums.push_back(sums.back() + cost);
}

/// `balanced` stages take no more than an even share of what is left.
bool Cutter::fits(double bound, bool balanced) {
  int left = int(sums.size()) - 1;
  for (int stage = stages - 1; stage > 0; --stage) {
    // One for each stage in front has to remain, and one for this.
    int most = balanced ? (left + stage) / (stage + 1) : left - stage;
    int first = left - most, last = left - 1;
    while (first < last) {
      int middle = (first + last) / 2;
      if (getLoad(stage, middle, left) <= bound)
        last = middle;
      else
        first = middle + 1;
    }
    if (getLoad(stage, first, left) > bound)
      return false;
    layers[stage] = left - first;
    left = first;
  }
  layers[0] = left;
  return getLoad(0, 0, left) <= bound;
}

double Cutter::slowest() const {
  double worst = 0;
  int next = 0;
  for (int stage = 0; stage < stages; ++stage) {
    worst = std::max(worst, getLoad(stage, next, next + layers[stage]));
    next += layers[stage];
  }
  return worst;
}

std::vector<int> Cutter::run() {
  double total = before + after + sums.back();
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
