//===- World.h - Meeting of the ranks of a process --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The host's side of communication between ranks that are threads of one
// process: every rank publishes addresses and waits for the others to do so.
// What then happens to the bytes is the business of the device.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_WORLD_H
#define PLAIT_LIB_RUNTIME_CORE_WORLD_H

#include "plait/Support/Status.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace plait::runtime {

/// The meeting point of one group. `Entry` is what a member publishes.
template <typename Entry> struct Meeting {
  explicit Meeting(size_t members) : entries(members) {}

  std::vector<Entry> entries; // by index among the members
  std::atomic<uint32_t> arrived = 0;
  std::atomic<uint32_t> generation = 0;
};

/// A message on its way; `Entry` is what the sender publishes.
template <typename Entry> struct Slot {
  enum State : uint32_t { Free, Posted, Received };

  std::atomic<uint32_t> state = Free;
  Entry entry = {};
};

/// Waiting with a time limit, and failing together.
class Patience {
public:
  explicit Patience(std::chrono::milliseconds limit) : limit(limit) {}

  /// Returns when `word` differs from `old`.
  Status wait(std::atomic<uint32_t> &word, uint32_t old);
  /// A failure when somebody has given up or `since` is too long ago.
  Status check(std::chrono::steady_clock::time_point since) const;
  void abort() { aborted = true; }
  /// `own`, or, where somebody had given up before it happened, that another
  /// rank has failed: libraries tell of that in many ways.
  Status blame(const Status &own) const;

private:
  Status timedOut() const;

  std::chrono::milliseconds limit;
  std::atomic<bool> aborted = false;
};

/// Wakes everybody who waits on `word`.
void wakeWaiters(std::atomic<uint32_t> &word);

/// Returns when all members have called this as often as the caller.
template <typename Entry>
Status barrier(Meeting<Entry> &meeting, Patience &patience) {
  uint32_t now = meeting.generation.load(std::memory_order_acquire);
  if (meeting.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 <
      meeting.entries.size())
    return patience.wait(meeting.generation, now);
  meeting.arrived.store(0, std::memory_order_relaxed);
  meeting.generation.store(now + 1, std::memory_order_release);
  wakeWaiters(meeting.generation);
  return Status::success();
}

/// The state that all ranks of a process share.
template <typename Member, typename Message> class World {
public:
  World(size_t messages, std::chrono::milliseconds limit)
      : patience(limit), slots(messages) {}

  std::shared_ptr<Meeting<Member>> join(std::span<const uint32_t> ranks) {
    return join(ranks, ranks.size());
  }
  /// Joins the group of `ranks`, `members` of which are here. Other groups that
  /// have the same members here meet elsewhere, maybe at the same time.
  std::shared_ptr<Meeting<Member>> join(std::span<const uint32_t> ranks,
                                        size_t members) {
    std::lock_guard lock(mutex);
    auto &meeting = meetings[{ranks.begin(), ranks.end()}];
    if (!meeting)
      meeting = std::make_shared<Meeting<Member>>(members);
    return meeting;
  }

  /// Returns when all members have called this as often as the caller.
  Status barrier(Meeting<Member> &meeting) {
    return runtime::barrier(meeting, patience);
  }

  void post(uint32_t id, const Message &message) {
    slots[id].entry = message;
    change(slots[id], Slot<Message>::Posted);
  }
  /// Waits for message `id`; acknowledge() must follow.
  Result<Message> take(uint32_t id) {
    Slot<Message> &slot = slots[id];
    // The last use of this slot may not have been acknowledged yet.
    for (uint32_t state = slot.state; state != Slot<Message>::Posted;
         state = slot.state)
      PLAIT_RETURN_IF_ERROR(patience.wait(slot.state, state));
    return slot.entry;
  }
  /// Tells the sender; `message` may say more than the sender did.
  void acknowledge(uint32_t id, const Message &message) {
    slots[id].entry = message;
    change(slots[id], Slot<Message>::Received);
  }
  Result<Message> awaitReceipt(uint32_t id) {
    Slot<Message> &slot = slots[id];
    PLAIT_RETURN_IF_ERROR(patience.wait(slot.state, Slot<Message>::Posted));
    Message message = slot.entry;
    change(slot, Slot<Message>::Free);
    return message;
  }

  Patience patience;

private:
  static void change(Slot<Message> &slot, uint32_t state) {
    slot.state.store(state, std::memory_order_release);
    wakeWaiters(slot.state);
  }

  std::vector<Slot<Message>> slots;
  std::mutex mutex; // of meetings
  std::map<std::vector<uint32_t>, std::shared_ptr<Meeting<Member>>> meetings;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_WORLD_H
