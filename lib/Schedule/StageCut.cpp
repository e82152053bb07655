//===- StageCut.cpp - Cut of layers into stages ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cuts a row of layers into virtual stages, in three ways. By stages: exact, by
// asking for a bound whether some cut keeps it and bisecting the bound. By
// ranks, where a rank has several stages: exact for equal layers by dealing
// them out, a descent otherwise. And by trial: improveCut knows no costs and
// asks its caller. Costs are one number a layer; what microbatches, messages
// and waits add, the callers weigh.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/StageCut.h"

#include <algorithm>
#include <limits>
#include <numeric>

using namespace plait;
using namespace plait::schedule;

//===----------------------------------------------------------------------===//
// By stages
//===----------------------------------------------------------------------===//

namespace {

/// Asks, for a bound on the slowest stage, whether some cut keeps it. Filling
/// stages from the back as far as they go answers that exactly, because taking
/// fewer layers never helps a stage further in front. Up to the least load that
/// was refused on the way every bound has the same answer, so that a row of
/// equal layers takes a few questions.
class Cutter {
public:
  Cutter(std::span<const double> costs, double before, double after,
         int stages);
  std::vector<int> run();

private:
  bool fits(double bound, bool balanced = false);
  double slowest() const;
  /// Returns the load of layers `first` to `last` - 1 on `stage`: the same sum
  /// of the same terms everywhere, so that a stage is never above its own time.
  double getLoad(int stage, int first, int last) const {
    return sums[last] - sums[first] + (stage == 0 ? before : 0) +
           (stage == stages - 1 ? after : 0);
  }

  std::vector<double> sums; // of the layers in front
  double before, after;
  int stages;
  // Of the last bound that was asked for.
  std::vector<int> layers;
  double refused = 0; // the least load above it
};

} // namespace

/// Running sums make the load of any run of layers a difference of two.
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
  refused = std::numeric_limits<double>::infinity();
  auto keeps = [&](int stage, int first, int last) {
    double load = getLoad(stage, first, last);
    if (load > bound)
      refused = std::min(refused, load);
    return load <= bound;
  };
  int left = int(sums.size()) - 1;
  for (int stage = stages - 1; stage > 0; --stage) {
    // One for each stage in front has to remain, and one for this.
    int most = balanced ? (left + stage) / (stage + 1) : left - stage;
    // Loads fall with the number of layers, so the longest run that fits is
    // found by bisection: a whole question costs stages times the logarithm of
    // the layers.
    int first = left - most, last = left - 1;
    while (first < last) {
      int middle = (first + last) / 2;
      if (keeps(stage, middle, left))
        last = middle;
      else
        first = middle + 1;
    }
    if (!keeps(stage, first, left))
      return false;
    layers[stage] = left - first;
    left = first;
  }
  layers[0] = left;
  return keeps(0, 0, left);
}

/// Returns the load of the cut that was found last: often below the bound that
/// was asked for, which lets the bisection take larger steps.
double Cutter::slowest() const {
  double worst = 0;
  int next = 0;
  for (int stage = 0; stage < stages; ++stage) {
    worst = std::max(worst, getLoad(stage, next, next + layers[stage]));
    next += layers[stage];
  }
  return worst;
}

/// The least bound that fits, to a part in a million, and a cut that keeps it.
/// No cut is below `low`; `high` is the slowest stage of `best`. The number of
/// questions is logarithmic in the precision, not in the layers.
std::vector<int> Cutter::run() {
  // No cut is faster than an even one, nor slower than one stage with all.
  double total = before + after + sums.back();
  double low = total / stages, high = total;
  std::vector<int> best;
  // Every bound that fits is lowered to what its cut needs; the search ends
  // where bounds differ by less than costs are worth.
  while (best.empty() || high - low > 1e-6 * high) {
    double middle = best.empty() ? high * (1 + 1e-12) : (low + high) / 2;
    if (!fits(middle)) {
      low = refused;
      continue;
    }
    best = layers;
    high = slowest();
  }
  // Filling from the back leaves the first stages with whatever remains, often
  // one layer; of cuts that are as fast the even one holds less memory.
  return fits(high, true) ? layers : best;
}

//===----------------------------------------------------------------------===//
// By ranks
//===----------------------------------------------------------------------===//

namespace {

/// Several chunks a rank. Layers that cost the same can be dealt out one by one
/// to whoever has the least, which is exact; others are then shifted from stage
/// to stage as long as that helps.
class RankCutter {
public:
  RankCutter(std::span<const double> costs, double before, double after,
             const Problem &problem)
      : costs(costs), before(before), after(after), problem(problem) {}

  /// A cut and what it costs.
  struct Cut {
    std::vector<int> layers;
    std::vector<double> stages, ranks; // seconds
    double slowestRank = 0, slowestStage = 0;
  };

  std::vector<int> run();
  Cut measure(std::vector<int> layers) const;
  /// Sums of the same terms in another order are equal.
  static bool isBetter(const Cut &a, const Cut &b) {
    constexpr double rounding = 1 - 1e-9;
    if (a.slowestRank < b.slowestRank * rounding)
      return true;
    return a.slowestRank * rounding <= b.slowestRank &&
           a.slowestStage < b.slowestStage * rounding;
  }

private:
  std::vector<int> deal() const;
  void move(Cut &cut, uint32_t from, uint32_t to, double cost) const;
  void shift(Cut &cut) const;
  double getExtra(uint32_t stage) const {
    return (stage == 0 ? before : 0) +
           (stage + 1 == problem.virtualStages() ? after : 0);
  }

  std::span<const double> costs;
  double before, after;
  const Problem &problem;
};

} // namespace

/// Sums up a cut by stages and ranks. Linear in the layers.
RankCutter::Cut RankCutter::measure(std::vector<int> layers) const {
  Cut cut{std::move(layers), {}, std::vector<double>(problem.stages)};
  size_t next = 0;
  for (uint32_t stage = 0; stage < cut.layers.size(); ++stage) {
    double load = getExtra(stage);
    for (int i = 0; i < cut.layers[stage]; ++i)
      load += costs[next++];
    cut.stages.push_back(load);
    cut.ranks[problem.rankOf(stage)] += load;
  }
  cut.slowestRank = *std::max_element(cut.ranks.begin(), cut.ranks.end());
  cut.slowestStage = *std::max_element(cut.stages.begin(), cut.stages.end());
  return cut;
}

/// Deals as if all layers cost the same: each goes to the rank and there to the
/// stage that is then the least loaded, the last of them where several are.
std::vector<int> RankCutter::deal() const {
  uint32_t stages = problem.virtualStages();
  // Greedy is exact for equal layers: an exchange argument moves any layer of
  // the slowest rank to where dealing would have put it, at no loss.
  double cost = std::reduce(costs.begin(), costs.end()) / double(costs.size());
  std::vector<int> layers(stages, 1);
  std::vector<double> ranks(problem.stages, cost * problem.chunks);
  for (uint32_t stage : {0u, stages - 1})
    ranks[problem.rankOf(stage)] += stage == 0 ? before : after;
  for (size_t left = costs.size() - stages; left > 0; --left) {
    // From the back: of several ranks with the least load the last gets the
    // layer, because the first ones hold the most microbatches.
    auto last = std::min_element(ranks.rbegin(), ranks.rend());
    uint32_t rank = uint32_t(ranks.rend() - last) - 1;
    *last += cost;
    uint32_t least = problem.stageOf(rank, 0);
    for (uint32_t chunk = 1; chunk < problem.chunks; ++chunk) {
      uint32_t stage = problem.stageOf(rank, chunk);
      if (layers[stage] * cost + getExtra(stage) <=
          layers[least] * cost + getExtra(least))
        least = stage;
    }
    ++layers[least];
  }
  return layers;
}

/// Moves a layer of that cost from one stage to the next or back. What changes
/// are two stages and their ranks: a model of many layers is not summed up
/// anew.
void RankCutter::move(Cut &cut, uint32_t from, uint32_t to, double cost) const {
  --cut.layers[from], ++cut.layers[to];
  cut.stages[from] -= cost, cut.stages[to] += cost;
  cut.ranks[problem.rankOf(from)] -= cost;
  cut.ranks[problem.rankOf(to)] += cost;
  cut.slowestRank = *std::max_element(cut.ranks.begin(), cut.ranks.end());
  cut.slowestStage = *std::max_element(cut.stages.begin(), cut.stages.end());
}

/// Moves single layers over the borders of stages.
/// Descends to a cut that no single layer improves: not always the best, since
/// a rank's load is a sum over stages that are apart. There are two moves for
/// each border.
void RankCutter::shift(Cut &cut) const {
  Cut moved = cut; // is `cut` again after each try
  for (bool changed = true; changed;) {
    changed = false;
    size_t next = 0; // the first layer behind the border
    for (uint32_t border = 1; border < cut.layers.size(); ++border) {
      next += cut.layers[border - 1];
      for (bool forward : {true, false}) {
        uint32_t from = border - forward, to = border - !forward;
        if (cut.layers[from] == 1)
          continue;
        move(moved, from, to, costs[next - forward]);
        if (!isBetter(moved, cut)) {
          moved = cut;
          continue;
        }
        cut = moved;
        next += forward ? -1 : 1;
        changed = true;
      }
    }
  }
}

std::vector<int> RankCutter::run() {
  Cut dealt = measure(deal());
  // Layers that differ are dealt as if they did not, and the best cut by
  // stages is another start: which is nearer to the best cut by ranks depends
  // on where the costly layers are.
  auto [least, most] = std::minmax_element(costs.begin(), costs.end());
  if (*least < *most * (1 - 1e-9)) {
    shift(dealt);
    Cut byStages = measure(
        Cutter(costs, before, after, int(problem.virtualStages())).run());
    shift(byStages);
    if (isBetter(byStages, dealt))
      return byStages.layers;
  }
  return dealt.layers;
}

/// Cuts with the first end, the last or both as one more layer: whatever stage
/// holds it, none is without work.
static std::vector<int> cutWithEnds(std::span<const double> costs,
                                    double before, double after, bool first,
                                    bool last, const Problem &problem) {
  std::vector<double> row(costs.begin(), costs.end());
  if (first)
    row.insert(row.begin(), before);
  if (last)
    row.push_back(after);
  std::vector<int> layers =
      cutStages(row, first ? 0 : before, last ? 0 : after, problem);
  layers.front() -= first;
  layers.back() -= last;
  return layers;
}

/// Gives as many ends a stage of their own as stages outnumber layers, and both
/// where they are too many for one but that is faster.
static std::vector<int> cutIntoMore(std::span<const double> costs,
                                    std::optional<double> before,
                                    std::optional<double> after,
                                    const Problem &problem) {
  double head = before.value_or(0), tail = after.value_or(0);
  auto cut = [&](bool first, bool last) {
    return cutWithEnds(costs, head, tail, first, last, problem);
  };
  if (!before || !after)
    return cut(before.has_value(), after.has_value());
  std::vector<int> both = cut(true, true);
  if (problem.virtualStages() > costs.size() + 1)
    return both;
  std::vector<int> longer = cut(head >= tail, head < tail);
  RankCutter ranks(costs, head, tail, problem);
  return ranks.isBetter(ranks.measure(both), ranks.measure(longer)) ? both
                                                                    : longer;
}

std::vector<int> schedule::cutStages(std::span<const double> costs,
                                     std::optional<double> before,
                                     std::optional<double> after,
                                     const Problem &problem) {
  if (problem.virtualStages() > costs.size())
    return cutIntoMore(costs, before, after, problem);
  double first = before.value_or(0), last = after.value_or(0);
  if (problem.chunks > 1)
    return RankCutter(costs, first, last, problem).run();
  return Cutter(costs, first, last, int(problem.stages)).run();
}

std::vector<int> schedule::improveCut(
    std::vector<int> cut, size_t most,
    const std::function<bool(const std::vector<int> &)> &isBetter) {
  const size_t stages = cut.size();
  // Distances 1, n - 1, 2, n - 2, … are -1 and so on as well.
  std::vector<size_t> distances;
  for (size_t near = 1; near <= stages / 2; ++near) {
    distances.push_back(near);
    if (near != stages - near)
      distances.push_back(stages - near);
  }
  // Counts refusals in a row. A move is a stage and a distance: once there are
  // as many refusals as moves, each move has been refused for the present cut.
  size_t refused = 0, asked = 0;
  for (size_t i = 0; refused < distances.size() * stages; ++i) {
    // All stages at one distance, then the next distance: near moves come first
    // and again only after all others.
    size_t from = i % stages;
    size_t to = (from + distances[i / stages % distances.size()]) % stages;
    ++refused;
    if (cut[from] < 2)
      continue;
    if (++asked > most)
      break;
    --cut[from], ++cut[to];
    if (isBetter(cut))
      refused = 0;
    else
      ++cut[from], --cut[to];
  }
  return cut;
}
