//===- Lanes.cpp - Which work of a rank waits for which -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Lanes.h"

#include <algorithm>

using namespace plait;
using namespace plait::plan;

/// The span that begins at `offset`, cut off the one around it.
std::map<uint64_t, LanePlanner::Span>::iterator
LanePlanner::splitAt(uint64_t offset) {
  auto next = spans.lower_bound(offset);
  if (next != spans.end() && next->first == offset)
    return next;
  Span around = next == spans.begin() ? Span() : std::prev(next)->second;
  return spans.emplace_hint(next, offset, std::move(around));
}

void LanePlanner::use(const ByteRange &range, Index operation, uint32_t lane,
                      Clock &needed) {
  if (range.begin >= range.end)
    return;
  auto end = splitAt(range.end), begin = splitAt(range.begin);
  auto need = [&](Index other) {
    if (other != never && other != operation) {
      Index &latest = needed[added[other].lane];
      latest = std::max(latest, other);
    }
  };
  for (auto span = begin; span != end; ++span) {
    need(span->second.writer);
    if (!range.writes) {
      span->second.readers.resize(lanes, never);
      span->second.readers[lane] = operation;
      continue;
    }
    std::for_each(span->second.readers.begin(), span->second.readers.end(),
                  need);
  }
  if (!range.writes)
    return;
  // One history from now on.
  spans.erase(std::next(begin), end);
  begin->second = {operation, {}};
}

void LanePlanner::add(uint32_t lane, std::span<const ByteRange> uses) {
  Index operation = Index(added.size());
  added.push_back({lane, {}});
  Clock needed(lanes, never);
  // What is read first: a range may be both read and written.
  for (bool writes : {false, true})
    for (const ByteRange &range : uses)
      if (range.writes == writes)
        use(range, operation, lane, needed);
  needed[lane] = never;
  // The latest first: it may imply earlier ones.
  std::sort(needed.begin(), needed.end(), std::greater<>());
  Clock &mine = seen[lane];
  for (Index other : needed) {
    if (other == never || mine[added[other].lane] >= other)
      continue;
    added[operation].waits.push_back(other);
    for (uint32_t i = 0; i < lanes; ++i)
      mine[i] = std::max(mine[i], clocks[other][i]);
  }
  mine[lane] = operation;
  clocks.push_back(mine);
}

LaneSchedule LanePlanner::finish() const {
  std::vector<Index> lastWaiter(added.size(), never);
  for (size_t i = 0; i < added.size(); ++i)
    for (Index other : added[i].waits)
      lastWaiter[other] = Index(i);
  LaneSchedule schedule;
  std::vector<uint32_t> free;
  for (size_t i = 0; i < added.size(); ++i) {
    auto &made = schedule.operations.emplace_back();
    made.lane = added[i].lane;
    made.firstWait = uint32_t(schedule.waits.size());
    for (Index other : added[i].waits) {
      uint32_t event = schedule.operations[other].event;
      schedule.waits.push_back(event);
      if (lastWaiter[other] == Index(i))
        free.push_back(event);
    }
    made.endWait = uint32_t(schedule.waits.size());
    if (lastWaiter[i] == never)
      continue;
    if (free.empty())
      free.push_back(schedule.events++);
    made.event = free.back();
    free.pop_back();
  }
  return schedule;
}

void plan::forEachWait(const LaneSchedule &schedule, uint32_t lanes,
                       const std::function<void(uint32_t, uint32_t)> &visit) {
  constexpr uint32_t none = LaneSchedule::none;
  std::vector<uint32_t> last(lanes, none);               // of a lane
  std::vector<uint32_t> recorded(schedule.events, none); // by event
  for (uint32_t i = 0; i < schedule.operations.size(); ++i) {
    const LaneSchedule::Operation &made = schedule.operations[i];
    if (last[made.lane] != none)
      visit(last[made.lane], i);
    last[made.lane] = i;
    for (uint32_t event : schedule.waitsOf(i))
      visit(recorded[event], i);
    if (made.event != none)
      recorded[made.event] = i;
  }
}
