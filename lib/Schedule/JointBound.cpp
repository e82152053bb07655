//===- JointBound.cpp - Lower bound over cuts and orders ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layer j takes F(j), I(j) and W(j) for each of m microbatches on p ranks, a
// message takes c, and P(j) is the sum of F(i), i < j. Every rank has a stage
// and every stage a layer; S is the time from the first start to the last end.
//
// (1) Fill. Of the ranks in the order of their first stages, number k (from 0)
// has k stages in front, hence k layers at least, and k messages: it starts no
// earlier than P(k) + k c. The work of all ranks is that of all layers, so
//   p S >= m sum of (F + I + W) + sum over k < p of (P(k) + k c).
//
// (2) One layer. All work on j comes after the first F of j, which P(j) comes
// before. After its last I, the same microbatch goes back to layer 0, the W of
// which comes last:
//   S >= P(j) + m (F(j) + I(j) + W(j)),
//   S >= P(j) + m (F(j) + I(j)) + sum of I(i), i < j, + W(0), if j > 0.
//
// (3) One microbatch: S >= sum of (F + I) + W(0) + 2c (p - 1).
//
// (4) Packing. A rank works m times on each of its layers, one at a time, and
// not before its start in (1): layers are items to be packed into p bins,
// number k of which has room for (S - P(k) - k c) / m. Which S are too short
// for that is decided exactly where layers are of few kinds, and otherwise by
// Martello and Toth's bound L2 (1990) on the number of bins, all as large as
// the first.
//
// (5) Memory. From its F to its I, layer j holds its activation a(j) for at
// least F(j) + I(j) + the sum of F(i) + I(i), i > j; then the share w of it for
// W(j). All ranks together hold at most p times the limit:
//   p limit S >= m sum of a(j) (F(j) + I(j) + sum of (F + I)(i > j) + w W(j)).
//
//===----------------------------------------------------------------------===//

#include "WarmUp.h"
#include "plait/Schedule/JointSearch.h"

#include <algorithm>
#include <cmath>

using namespace plait;
using namespace plait::schedule;

namespace {

/// The bounds of the proof, a function each; all of a problem that checks.
struct LayerBound {
  explicit LayerBound(const JointProblem &problem);

  double getWork(const Layer &layer) const {
    return layer.forward + layer.backwardInput + layer.backwardWeight;
  }
  double getFill() const;
  double getLongestLayer() const;
  double getOneMicrobatch() const;
  double getPacking() const;
  double getMemory() const;
  bool isPackable(double makespan) const;
  bool isPackableByKind(std::vector<double> room) const;
  bool isPackableByBins(double bin) const;
  void findKinds();

  const JointProblem &problem;
  const std::vector<Layer> &layers;
  double m;
  uint32_t p;
  std::vector<double> starts; // of (1), by rank
  std::vector<double> items;  // work of the layers, descending
  std::vector<std::pair<double, uint32_t>> kinds; // of items; empty: too many
};

} // namespace

LayerBound::LayerBound(const JointProblem &problem)
    : problem(problem), layers(problem.layers), m(problem.microbatches),
      p(problem.stages) {
  double passed = 0;
  for (uint32_t rank = 0; rank < p; ++rank) {
    starts.push_back(passed + rank * problem.transfer);
    passed += layers[rank].forward;
  }
  for (const Layer &layer : layers)
    items.push_back(getWork(layer));
  std::sort(items.rbegin(), items.rend());
  findKinds();
}

/// Bound (1).
double LayerBound::getFill() const {
  double total = 0;
  for (double item : items)
    total += m * item;
  for (double start : starts)
    total += start;
  return total / p;
}

/// Bound (2), for all layers in one walk.
double LayerBound::getLongestLayer() const {
  double longest = 0, passed = 0, back = 0;
  for (const Layer &layer : layers) {
    bool isFirst = &layer == &layers.front();
    double chain = isFirst ? 0 : back + layers.front().backwardWeight;
    double rest = std::max(m * layer.backwardWeight, chain);
    longest = std::max(
        longest, passed + m * (layer.forward + layer.backwardInput) + rest);
    passed += layer.forward;
    back += layer.backwardInput;
  }
  return longest;
}

/// Bound (3).
double LayerBound::getOneMicrobatch() const {
  double sum = layers.front().backwardWeight + 2 * problem.transfer * (p - 1);
  for (const Layer &layer : layers)
    sum += layer.forward + layer.backwardInput;
  return sum;
}

/// Items that are equal but for rounding, where that makes few states below.
void LayerBound::findKinds() {
  constexpr double mostStates = 4096;
  double states = 1;
  for (double item : items) {
    if (kinds.empty() || item < kinds.back().first * (1 - 1e-9))
      kinds.push_back({item, 0});
    // The least of them stands for all.
    kinds.back().first = item;
    ++kinds.back().second;
  }
  for (auto [item, count] : kinds)
    states *= count + 1;
  if (states > mostStates)
    kinds.clear();
}

/// Fills one bin after the other. A state is how many of each kind are packed,
/// as one number; all that a bin can take is tried, as there are few states.
bool LayerBound::isPackableByKind(std::vector<double> room) const {
  std::vector<size_t> strides = {1};
  for (auto [item, count] : kinds)
    strides.push_back(strides.back() * (count + 1));
  size_t all = strides.back() - 1;
  std::vector<bool> reached(all + 1, false);
  reached[0] = true;
  for (double bin : room) {
    std::vector<bool> next(all + 1, false);
    auto fill = [&](auto &self, size_t state, size_t kind, double left) {
      if (kind == kinds.size()) {
        next[state] = true;
        return;
      }
      auto [item, count] = kinds[kind];
      size_t packed = state / strides[kind] % (count + 1);
      for (; packed <= count && left >= 0; ++packed) {
        self(self, state, kind + 1, left);
        state += strides[kind];
        left -= item;
      }
    };
    for (size_t state = 0; state <= all; ++state)
      if (reached[state] && bin >= 0)
        fill(fill, state, 0, bin);
    reached = std::move(next);
  }
  return reached[all];
}

/// Whether L2 allows p bins. For each k: what is above bin - k shares a bin
/// with nothing of k or more, what is above half a bin has one each, and what
/// is left of these takes some of the rest.
bool LayerBound::isPackableByBins(double bin) const {
  if (items.front() > bin)
    return false;
  for (double least : items) {
    if (least > bin / 2)
      continue;
    double alone = 0, large = 0, room = 0, small = 0;
    for (double item : items) {
      if (item > bin - least)
        ++alone;
      else if (item > bin / 2)
        ++large, room += bin - item;
      else if (item >= least)
        small += item;
    }
    double more = std::ceil((small - room) / bin * (1 - 1e-9));
    if (alone + large + std::max(0.0, more) > p)
      return false;
  }
  return true;
}

/// Bound (4) for one span: exact by kinds where these are few, by L2 otherwise.
bool LayerBound::isPackable(double makespan) const {
  constexpr double rounding = 1 + 1e-12;
  if (kinds.empty())
    return isPackableByBins(makespan / m * rounding);
  std::vector<double> room;
  for (double start : starts)
    room.push_back((makespan * rounding - start) / m);
  return isPackableByKind(std::move(room));
}

/// Bound (4). The lower end that bisection comes to was refused, or is the
/// fill: a bound either way, also where L2, which does not grow evenly, allows
/// a shorter one.
double LayerBound::getPacking() const {
  // Whoever starts last and does all of the work has ended by then: what is
  // packable lies in between.
  double low = getFill(), total = starts.back();
  for (double item : items)
    total += m * item;
  if (total <= 0)
    return 0;
  return bisect(low, total,
                [&](double makespan) { return isPackable(makespan); })
      .first;
}

/// Bound (5), from the last layer to the first: what comes between the F and
/// the I of a layer is what is behind it.
double LayerBound::getMemory() const {
  if (problem.memory.limit == 0)
    return 0;
  double held = 0, behind = 0;
  for (size_t i = layers.size(); i-- > 0;) {
    const Layer &layer = layers[i];
    behind += layer.forward + layer.backwardInput;
    held += layer.activation *
            (behind + problem.memory.weightShare * layer.backwardWeight);
  }
  return m * held / (p * problem.memory.limit);
}

/// The largest of the five: each holds alone, and which is largest depends on
/// where the work is.
double schedule::boundMakespan(const JointProblem &problem) {
  LayerBound bound(problem);
  double most = std::max({bound.getFill(), bound.getLongestLayer(),
                          bound.getOneMicrobatch(), bound.getPacking(),
                          bound.getMemory()});
  return most * (1 - 1e-12); // schedules add up the same terms otherwise
}
