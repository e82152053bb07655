//===- ThreadCommunicator.cpp - Ranks as threads of one process -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A collective: every member publishes its addresses, a barrier makes them
// visible, every member computes the part of the result that is its own from
// everybody's memory, and a second barrier says that the inputs may change
// again. An all-reduce has each member reduce one slice and store it to all.
//
//===----------------------------------------------------------------------===//

#include "Futex.h"
#include "plait/Plan/Check.h"
#include "plait/Runtime/Communicator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

using namespace plait;
using namespace plait::runtime;

namespace {

/// What all ranks share.
struct World {
  struct Slot {
    enum State : uint32_t { Free, Posted, Received };
    std::atomic<uint32_t> state = Free;
    const std::byte *data = nullptr;
  };

  /// The meeting point of one group.
  struct Meeting {
    explicit Meeting(size_t members) : input(members), output(members) {}

    std::vector<const std::byte *> input;
    std::vector<std::byte *> output;
    std::atomic<uint32_t> arrived = 0;
    std::atomic<uint32_t> generation = 0;
  };

  World(uint32_t messages, std::chrono::milliseconds timeLimit)
      : timeLimit(timeLimit), slots(messages) {}

  Status wait(std::atomic<uint32_t> &word, uint32_t old) {
    switch (waitWhileEqual(word, old, aborted, timeLimit)) {
    case WaitResult::Changed:
      return Status::success();
    case WaitResult::TimedOut:
      return fail("waited longer than ", timeLimit.count() / 1000.0,
                  " seconds for another rank");
    case WaitResult::Aborted:
      return Status::failure("another rank has failed");
    }
    __builtin_unreachable();
  }

  std::chrono::milliseconds timeLimit;
  std::atomic<bool> aborted = false;
  std::vector<Slot> slots;
  std::mutex mutex; // of meetings
  std::map<std::vector<uint32_t>, std::shared_ptr<Meeting>> meetings;
};

/// Elements reduced at a time: a block of each member stays in the first-level
/// cache.
constexpr int64_t blockElements = 2048;

void accumulate(float *sum, const float *next, int64_t count,
                fb::Reduction reduction) {
  if (reduction == fb::Reduction::Sum)
    for (int64_t i = 0; i < count; ++i)
      sum[i] += next[i];
  else
    for (int64_t i = 0; i < count; ++i)
      sum[i] = std::max(sum[i], next[i]);
}

class ThreadGroup : public Group {
public:
  ThreadGroup(std::shared_ptr<World> world,
              std::shared_ptr<World::Meeting> meeting, uint32_t index)
      : world(std::move(world)), meeting(std::move(meeting)), index(index) {}

  Status allReduce(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape,
                   fb::Reduction reduction) override {
    return meet(input, output, [&] {
      // Slices begin at cache lines, so that no two ranks write to one.
      constexpr int64_t line = 16;
      int64_t count = shape.outer * shape.chunk;
      int64_t slice =
          (count + members() * line - 1) / (members() * line) * line;
      int64_t begin = std::min(count, index * slice);
      int64_t end = std::min(count, begin + slice);
      for (int64_t i = begin; i < end; i += blockElements) {
        int64_t size = std::min(blockElements, end - i);
        float sum[blockElements];
        reduce(sum, i, size, reduction);
        for (std::byte *target : meeting->output)
          std::memcpy(target + i * sizeof(float), sum, size * sizeof(float));
      }
    });
  }

  Status reduceScatter(const std::byte *input, std::byte *output,
                       const CollectiveShape &shape,
                       fb::Reduction reduction) override {
    return meet(input, output, [&] {
      auto *target = reinterpret_cast<float *>(output);
      for (int64_t o = 0; o < shape.outer; ++o)
        for (int64_t i = 0; i < shape.chunk; i += blockElements)
          reduce(target + o * shape.chunk + i,
                 (o * members() + index) * shape.chunk + i,
                 std::min(blockElements, shape.chunk - i), reduction);
    });
  }

  Status allGather(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape) override {
    size_t bytes = shape.chunk * plan::elementBytes(shape.type);
    return meet(input, output, [&] {
      for (int64_t o = 0; o < shape.outer; ++o)
        for (int64_t j = 0; j < members(); ++j)
          std::memcpy(output + (o * members() + j) * bytes,
                      meeting->input[j] + o * bytes, bytes);
    });
  }

  Status allToAll(const std::byte *input, std::byte *output,
                  const CollectiveShape &shape) override {
    size_t bytes = shape.chunk * plan::elementBytes(shape.type);
    return meet(input, output, [&] {
      for (int64_t o = 0; o < shape.outer; ++o)
        for (int64_t j = 0; j < members(); ++j)
          std::memcpy(output + (o * members() + j) * bytes,
                      meeting->input[j] + (o * members() + index) * bytes,
                      bytes);
    });
  }

private:
  int64_t members() const { return meeting->input.size(); }

  /// target = the reduction of everybody's elements [begin, begin + count).
  void reduce(float *target, int64_t begin, int64_t count,
              fb::Reduction reduction) {
    auto source = [&](int64_t member) {
      return reinterpret_cast<const float *>(meeting->input[member]) + begin;
    };
    std::memcpy(target, source(0), count * sizeof(float));
    for (int64_t j = 1; j < members(); ++j)
      accumulate(target, source(j), count, reduction);
  }

  template <typename Work>
  Status meet(const std::byte *input, std::byte *output, Work work) {
    meeting->input[index] = input;
    meeting->output[index] = output;
    PLAIT_RETURN_IF_ERROR(barrier());
    work();
    return barrier();
  }

  Status barrier() {
    uint32_t now = meeting->generation.load(std::memory_order_acquire);
    if (meeting->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 <
        members())
      return world->wait(meeting->generation, now);
    meeting->arrived.store(0, std::memory_order_relaxed);
    meeting->generation.store(now + 1, std::memory_order_release);
    wakeAll(meeting->generation);
    return Status::success();
  }

  std::shared_ptr<World> world;
  std::shared_ptr<World::Meeting> meeting;
  uint32_t index; // of this rank among the members
};

class ThreadCommunicator : public Communicator {
public:
  ThreadCommunicator(std::shared_ptr<World> world, uint32_t rank)
      : world(std::move(world)), rank(rank) {}

  Result<std::unique_ptr<Group>>
  join(std::span<const uint32_t> ranks) override {
    std::lock_guard lock(world->mutex);
    auto &meeting = world->meetings[{ranks.begin(), ranks.end()}];
    if (!meeting)
      meeting = std::make_shared<World::Meeting>(ranks.size());
    uint32_t index =
        std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return std::unique_ptr<Group>(
        std::make_unique<ThreadGroup>(world, meeting, index));
  }

  Status post(uint32_t id, uint32_t target,
              std::span<const std::byte> bytes) override {
    World::Slot &slot = world->slots[id];
    slot.data = bytes.data();
    change(slot, World::Slot::Posted);
    return Status::success();
  }

  Status receive(uint32_t id, uint32_t source,
                 std::span<std::byte> bytes) override {
    World::Slot &slot = world->slots[id];
    // The last use of this slot may not have been acknowledged yet.
    for (uint32_t state = slot.state; state != World::Slot::Posted;
         state = slot.state)
      PLAIT_RETURN_IF_ERROR(world->wait(slot.state, state));
    std::memcpy(bytes.data(), slot.data, bytes.size());
    change(slot, World::Slot::Received);
    return Status::success();
  }

  Status awaitReceipt(uint32_t id, uint32_t target) override {
    World::Slot &slot = world->slots[id];
    PLAIT_RETURN_IF_ERROR(world->wait(slot.state, World::Slot::Posted));
    change(slot, World::Slot::Free);
    return Status::success();
  }

  void abort() override { world->aborted = true; }

private:
  void change(World::Slot &slot, World::Slot::State state) {
    slot.state.store(state, std::memory_order_release);
    wakeAll(slot.state);
  }

  std::shared_ptr<World> world;
  uint32_t rank;
};

} // namespace

std::vector<std::unique_ptr<Communicator>>
runtime::createThreadCommunicators(uint32_t ranks, uint32_t messages,
                                   std::chrono::milliseconds timeLimit) {
  auto world = std::make_shared<World>(messages, timeLimit);
  std::vector<std::unique_ptr<Communicator>> result;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    result.push_back(std::make_unique<ThreadCommunicator>(world, rank));
  return result;
}
