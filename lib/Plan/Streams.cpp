//===- Streams.cpp - Waits between the streams of a rank ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The planner walks the operations once. For each run of bytes it knows who
// wrote it last and who has read it since; for each stream how far it knows the
// others to be (vector clocks). An operation needs the latest other user of its
// bytes in each stream, and waits for those that it does not know to be over.
//
// Events are few: one is recorded where somebody waits, and used again when
// nobody waits for it any more.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Streams.h"

#include <algorithm>

using namespace plait;
using namespace plait::plan;

/// The span that begins at `offset`, cut off the one around it. Spans cover all
/// bytes from the first one on; a new one has the history of the one that it is
/// cut from.
std::map<uint64_t, StreamPlanner::Span>::iterator
StreamPlanner::splitAt(uint64_t offset) {
  auto next = spans.lower_bound(offset);
  if (next != spans.end() && next->first == offset)
    return next;
  Span around = next == spans.begin() ? Span() : std::prev(next)->second;
  return spans.emplace_hint(next, offset, std::move(around));
}

/// A reader needs the last writer; a writer needs it and all readers since.
/// After a write the range is one span again, so that spans do not grow with
/// operations. `needed` gets the latest operation of each stream: earlier ones
/// of the same stream are over by then.
void StreamPlanner::use(const ByteRange &range, Index operation,
                        uint32_t stream, Clock &needed) {
  if (range.begin >= range.end)
    return;
  // The end first: splitting there does not move an iterator to the beginning.
  auto end = splitAt(range.end), begin = splitAt(range.begin);
  auto need = [&](Index other) {
    if (other != never && other != operation) {
      Index &latest = needed[added[other].stream];
      latest = std::max(latest, other);
    }
  };
  for (auto span = begin; span != end; ++span) {
    need(span->second.writer);
    if (!range.writes) {
      span->second.readers.resize(streams, never);
      span->second.readers[stream] = operation;
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

/// 1. Whom the operation needs, by its bytes; not itself, and not its own
///    stream, which is in order.
/// 2. The latest first: if its clock says that another one is over, that one
///    needs no wait.
/// 3. What it waits for, and all that those knew, is known to the stream from
///    here on.
void StreamPlanner::add(uint32_t stream, std::span<const ByteRange> uses) {
  Index operation = Index(added.size());
  added.push_back({stream, {}});
  // 1. By bytes.
  Clock needed(streams, never);
  // What is read first: a range may be both read and written.
  for (bool writes : {false, true})
    for (const ByteRange &range : uses)
      if (range.writes == writes)
        use(range, operation, stream, needed);
  needed[stream] = never;
  // 2. The latest first: it may imply earlier ones.
  std::sort(needed.begin(), needed.end(), std::greater<>());
  Clock &mine = seen[stream];
  for (Index other : needed) {
    if (other == never || mine[added[other].stream] >= other)
      continue;
    added[operation].waits.push_back(other);
    for (uint32_t i = 0; i < streams; ++i)
      mine[i] = std::max(mine[i], clocks[other][i]);
  }
  // 3. What is known.
  mine[stream] = operation;
  clocks.push_back(mine);
}

/// An event is free when its last waiter has waited. That waiter may record it
/// at once: all waits for the former use come before it, in order.
StreamSchedule StreamPlanner::finish() const {
  // Who waits last for each operation; `never`: nobody, and no event is needed.
  std::vector<Index> lastWaiter(added.size(), never);
  for (size_t i = 0; i < added.size(); ++i)
    for (Index other : added[i].waits)
      lastWaiter[other] = Index(i);
  StreamSchedule schedule;
  std::vector<uint32_t> free;
  for (size_t i = 0; i < added.size(); ++i) {
    auto &made = schedule.operations.emplace_back();
    made.stream = added[i].stream;
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

/// The order in streams and the waits for events, as one relation. An event
/// means the operation that recorded it last.
void plan::forEachWait(const StreamSchedule &schedule, uint32_t streams,
                       const std::function<void(uint32_t, uint32_t)> &visit) {
  constexpr uint32_t none = StreamSchedule::none;
  std::vector<uint32_t> last(streams, none);             // of a stream
  std::vector<uint32_t> recorded(schedule.events, none); // by event
  for (uint32_t i = 0; i < schedule.operations.size(); ++i) {
    const StreamSchedule::Operation &made = schedule.operations[i];
    if (last[made.stream] != none)
      visit(last[made.stream], i);
    last[made.stream] = i;
    for (uint32_t event : schedule.waitsOf(i))
      visit(recorded[event], i);
    if (made.event != none)
      recorded[made.event] = i;
  }
}
