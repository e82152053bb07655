//===- Schedule.cpp - A pipeline schedule as data -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The data type itself: which problems and memory limits are allowed, how a
// split backward relates to a whole one, and how much a rank holds. All of that
// follows from the lists alone. Nothing here knows of time, and nothing checks
// that the lists are sound (Verify.cpp), so that the counts below have to make
// sense for any list.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Schedule.h"

#include <algorithm>

using namespace plait;
using namespace plait::schedule;

/// Each factor is compared before the products, which therefore stay far within
/// 64 bits.
Status Problem::check() const {
  if (stages == 0)
    return fail("schedule has 0 stages, expected at least 1");
  if (chunks == 0)
    return fail("schedule has 0 chunks per rank, expected at least 1");
  if (microbatches == 0)
    return fail("schedule has 0 microbatches, expected at least 1");
  // Keeps every index in 32 bits and a verifier's tables within memory.
  constexpr uint64_t limit = uint64_t(1) << 22;
  if (stages > limit || chunks > limit || microbatches > limit ||
      uint64_t(stages) * chunks > limit ||
      uint64_t(stages) * chunks * microbatches > limit)
    return fail("schedule of ", stages, " stages, ", chunks,
                " chunks per rank and ", microbatches,
                " microbatches has more than ", limit,
                " pairs of virtual stage and microbatch");
  return Status::success();
}

/// The limit of sizes is in their unit, bytes say, so that the range for counts
/// of microbatches does not apply: only a negative one is refused.
Status MemoryModel::check() const {
  constexpr double most = 1e9;
  if (!(weightShare >= 0 && weightShare <= 1))
    return fail("weight share is ", weightShare, ", expected 0 to 1");
  for (double size : sizes)
    if (!(size >= 0 && size <= 1e12))
      return fail("activations of a virtual stage are ", size,
                  ", expected 0 to 1e+12");
  if (!sizes.empty())
    return limit >= 0 ? Status::success()
                      : fail("memory limit is ", limit, ", expected above 0");
  // Counted in floating point, so that rounding must stay far below one half.
  if (!(limit == 0 || (limit >= 1 && limit <= most)))
    return fail("memory limit is ", limit, ", expected 1 to ", most,
                " activations of a microbatch, or 0 for none");
  return Status::success();
}

/// Linear, and computed at each call: a flag stored beside the lists could
/// contradict them.
bool Schedule::isComputeOnly() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const auto &actions) {
    return std::all_of(actions.begin(), actions.end(),
                       [](const Action &action) { return action.isCompute(); });
  });
}

/// An I is enough to tell: V2 lets no W come without one.
bool schedule::splitsBackward(const Schedule &schedule) {
  auto isHalf = [](const Action &action) {
    return action.kind == ActionKind::BackwardInput;
  };
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(),
                     [&](const std::vector<Action> &actions) {
                       return std::any_of(actions.begin(), actions.end(),
                                          isHalf);
                     });
}

/// A schedule with whole backwards only stays as it is. Mixed ones, as files
/// may have them, become uniform: a module has one kind of backward. I and W
/// stay neighbours on their rank: messages leave no later, nothing computes in
/// between, and the peak, which is looked for at forwards, is the same, so that
/// soundness carries over.
Schedule schedule::splitBackwards(Schedule schedule) {
  if (!splitsBackward(schedule))
    return schedule;
  for (std::vector<Action> &actions : schedule.ranks) {
    std::vector<Action> split;
    for (Action action : actions) {
      // The same action serves as the I; its W follows at once.
      bool isWhole = action.kind == ActionKind::Backward;
      if (isWhole)
        action.kind = ActionKind::BackwardInput;
      split.push_back(action);
      if (isWhole)
        split.push_back(
            {ActionKind::BackwardWeight, action.chunk, action.microbatch});
    }
    actions = std::move(split);
  }
  return schedule;
}

/// Signed, because the list may be unsound and have more backwards than
/// forwards. An I frees nothing in this count: the set of activations exists
/// until its last reader, the W, has run.
uint32_t schedule::peakInFlight(const Schedule &schedule, uint32_t rank) {
  if (rank >= schedule.ranks.size())
    return 0;
  int64_t held = 0, peak = 0;
  for (const Action &action : schedule.ranks[rank]) {
    if (action.kind == ActionKind::Forward)
      peak = std::max(peak, ++held);
    else if (action.kind == ActionKind::Backward ||
             action.kind == ActionKind::BackwardWeight)
      --held;
  }
  return peak;
}

/// Memory only grows at a forward, so that the peak is looked for there alone.
/// For each chunk two numbers are counted: microbatches held whole, and those
/// after their I and before their W, of which the weight share is left. The sum
/// over chunks is formed anew at each forward, which makes it linear in actions
/// times chunks.
double schedule::peakActivations(const Schedule &schedule, uint32_t rank) {
  if (rank >= schedule.ranks.size())
    return 0;
  const MemoryModel &memory = schedule.memory;
  // Whole chunks and halves are counted apart, so that no rounding adds up, and
  // even ones divided at the end.
  bool isEven = memory.sizes.empty();
  struct Held {
    double size;
    int64_t whole = 0, halves = 0;
  };
  std::vector<Held> chunks;
  for (uint32_t chunk = 0; chunk < schedule.problem.chunks; ++chunk)
    chunks.push_back(
        {isEven ? 1 : memory.sizes[schedule.problem.stageOf(rank, chunk)]});
  auto getHeld = [&] {
    double sum = 0;
    for (const Held &held : chunks)
      sum += held.size * (held.whole + memory.weightShare * held.halves);
    return sum;
  };
  double peak = 0;
  for (const Action &action : schedule.ranks[rank]) {
    if (!action.isCompute())
      continue;
    Held &held = chunks[action.chunk];
    // A B goes from whole to nothing, an I from whole to half, a W from half to
    // nothing.
    held.whole += (action.kind == ActionKind::Forward) -
                  (action.kind == ActionKind::Backward ||
                   action.kind == ActionKind::BackwardInput);
    held.halves += (action.kind == ActionKind::BackwardInput) -
                   (action.kind == ActionKind::BackwardWeight);
    if (action.kind == ActionKind::Forward)
      peak = std::max(peak, getHeld());
  }
  return isEven ? peak / schedule.problem.chunks : peak;
}

double schedule::peakActivations(const Schedule &schedule) {
  double peak = 0;
  for (uint32_t rank = 0; rank < schedule.ranks.size(); ++rank)
    peak = std::max(peak, peakActivations(schedule, rank));
  return peak;
}
