//===- WaitTimes.cpp - Waiting times of ranks in a step -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Who waited for whom in a step, from when each operation began, was ready and
// ended. Waiting counts only where a rank's computing stands still: a
// collective that waits beside a kernel delays nobody. And it is charged to who
// caused it: a rank that is late because it waited itself passes the blame on.
//
//===----------------------------------------------------------------------===//

#include "WaitTimes.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;
using Wait = WaitTimes::Wait;
using Time = StepClock::Time;

/// Those of a rank's operations that happen where it computes, or beside that.
/// An operation waits from its start until the last of those that it needs is
/// there. One that waited for nobody else is none.
static std::vector<Wait> getWaits(const StepNotes &notes, uint32_t rank,
                                  bool beside) {
  std::vector<Wait> waits;
  for (size_t i = 0; i < notes.countLaps(rank); ++i) {
    if ((notes.streamOf(rank, i) != 0) != beside)
      continue;
    StepNotes::Ready ready = notes.getReady(rank, i);
    if (ready.rank != rank)
      waits.push_back({notes.clock(rank).getStart(i), ready.time, ready.rank});
  }
  auto isEarlier = [](const Wait &a, const Wait &b) {
    return a.begin < b.begin;
  };
  std::sort(waits.begin(), waits.end(), isEarlier);
  return waits;
}

/// The parts of `waits` from `begin` to `end`, each instant once.
/// `waits` are in the order of both ends, so that a bisection finds the first.
static void addWithin(Time begin, Time end, const std::vector<Wait> &waits,
                      std::vector<Wait> &result) {
  // One begins before another of the same stream ends, but they are in order.
  auto first =
      std::partition_point(waits.begin(), waits.end(),
                           [&](const Wait &w) { return w.end <= begin; });
  for (auto wait = first; wait != waits.end() && wait->begin < end; ++wait) {
    Time from = std::max(begin, wait->begin), to = std::min(end, wait->end);
    if (from >= to)
      continue;
    result.push_back({from, to, wait->other});
    begin = to;
  }
}

/// A rank whose computing stands still waits for what its other streams wait
/// for.
/// For each rank:
/// 1. collect the waits of stream 0, in which it computes, and of its other
///    streams;
/// 2. go through the gaps between operations of stream 0, and take of each what
///    the others waited in it;
/// 3. put both in the order of time. Takes time in the number of operations,
///    but for sorting.
WaitTimes::WaitTimes(const StepNotes &notes) {
  for (uint32_t rank = 0; rank < notes.mesh().ranks(); ++rank) {
    // 1.
    std::vector<Wait> own = getWaits(notes, rank, /*beside=*/false);
    std::vector<Wait> beside = getWaits(notes, rank, /*beside=*/true);
    std::vector<Wait> &mine = waits.emplace_back();
    // 2.
    Time end = Time::max(); // of the operation before
    for (size_t i = 0; !beside.empty() && i < notes.countLaps(rank); ++i)
      if (notes.streamOf(rank, i) == 0) {
        addWithin(end, notes.clock(rank).getStart(i), beside, mine);
        end = notes.clock(rank).getEnd(i);
      }
    // 3.
    size_t middle = mine.size();
    mine.insert(mine.end(), own.begin(), own.end());
    std::inplace_merge(
        mine.begin(), mine.begin() + middle, mine.end(),
        [](const Wait &a, const Wait &b) { return a.begin < b.begin; });
  }
}

/// The time that the other rank waited meanwhile is charged further,
/// recursively; the rest is its own. The parts of a wait add up to it, so that
/// no second is charged twice.
void WaitTimes::blame(const Wait &wait, unsigned depth,
                      std::vector<double> &seconds) const {
  // Clocks of hosts differ a little, so that two may seem to wait for each
  // other.
  constexpr unsigned deepest = 16;
  Time::duration rest = wait.end - wait.begin;
  if (depth < deepest) {
    std::vector<Wait> further;
    addWithin(wait.begin, wait.end, waits[wait.other], further);
    for (const Wait &one : further) {
      rest -= one.end - one.begin;
      blame(one, depth + 1, seconds);
    }
  }
  seconds[wait.other] += std::chrono::duration<double>(rest).count();
}

void WaitTimes::addTo(std::vector<double> &seconds) const {
  for (const std::vector<Wait> &one : waits)
    for (const Wait &wait : one)
      blame(wait, 0, seconds);
}
