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

#include "Core/World.h"
#include "plait/Plan/Check.h"
#include "plait/Runtime/Communicator.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <cstring>

using namespace plait;
using namespace plait::runtime;

namespace {

struct Operands {
  const std::byte *input;
  std::byte *output;
};
using ThreadWorld = World<Operands, const std::byte *>;

/// Elements reduced at a time: a block of each member stays in the first-level
/// cache.
constexpr int64_t blockElements = 2048;

template <typename Element>
void accumulate(float *sum, const Element *next, int64_t count,
                fb::Reduction reduction) {
  if (reduction == fb::Reduction::Sum)
    for (int64_t i = 0; i < count; ++i)
      sum[i] += next[i];
  else
    for (int64_t i = 0; i < count; ++i)
      sum[i] = std::max<float>(sum[i], next[i]);
}

class ThreadGroup : public Group {
public:
  ThreadGroup(std::shared_ptr<ThreadWorld> world,
              std::shared_ptr<Meeting<Operands>> meeting, uint32_t index)
      : world(std::move(world)), meeting(std::move(meeting)), index(index) {}

  Status allReduce(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape,
                   fb::Reduction reduction) override {
    return meet(input, output, [&] {
      if (shape.type == fb::DType::BF16)
        reduceSlice<BFloat16>(shape, reduction);
      else
        reduceSlice<float>(shape, reduction);
    });
  }

  Status reduceScatter(const std::byte *input, std::byte *output,
                       const CollectiveShape &shape,
                       fb::Reduction reduction) override {
    return meet(input, output, [&] {
      if (shape.type == fb::DType::BF16)
        reduceOwn<BFloat16>(shape, reduction);
      else
        reduceOwn<float>(shape, reduction);
    });
  }

  Status allGather(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape) override {
    size_t bytes = shape.chunk * plan::elementBytes(shape.type);
    return meet(input, output, [&] {
      for (int64_t o = 0; o < shape.outer; ++o)
        for (int64_t j = 0; j < members(); ++j)
          std::memcpy(output + (o * members() + j) * bytes,
                      meeting->entries[j].input + o * bytes, bytes);
    });
  }

  Status allToAll(const std::byte *input, std::byte *output,
                  const CollectiveShape &shape) override {
    size_t bytes = shape.chunk * plan::elementBytes(shape.type);
    auto from = shape.inputRows(members()), to = shape.outputRows(members());
    return meet(input, output, [&] {
      for (int64_t o = 0; o < shape.outer; ++o)
        for (int64_t m = 0; m < shape.middle; ++m)
          for (int64_t j = 0; j < members(); ++j)
            std::memcpy(
                output + (o * to.outer + j * to.block + m * to.middle) * bytes,
                meeting->entries[j].input +
                    (o * from.outer + index * from.block + m * from.middle) *
                        bytes,
                bytes);
    });
  }

private:
  int64_t members() const { return meeting->entries.size(); }

  /// A slice of all elements, for everybody.
  template <typename Element>
  void reduceSlice(const CollectiveShape &shape, fb::Reduction reduction) {
    // Slices begin at cache lines, so that no two ranks write to one.
    constexpr int64_t line = 64 / sizeof(Element);
    int64_t count = shape.outer * shape.chunk;
    int64_t slice = (count + members() * line - 1) / (members() * line) * line;
    int64_t begin = std::min(count, index * slice);
    int64_t end = std::min(count, begin + slice);
    for (int64_t i = begin; i < end; i += blockElements) {
      int64_t size = std::min(blockElements, end - i);
      float sum[blockElements];
      reduce<Element>(sum, i, size, reduction);
      for (const Operands &member : meeting->entries)
        store<Element>(sum, member.output, i, size);
    }
  }

  /// This member's block.
  template <typename Element>
  void reduceOwn(const CollectiveShape &shape, fb::Reduction reduction) {
    for (int64_t o = 0; o < shape.outer; ++o)
      for (int64_t i = 0; i < shape.chunk; i += blockElements) {
        int64_t size = std::min(blockElements, shape.chunk - i);
        float sum[blockElements];
        reduce<Element>(sum, (o * members() + index) * shape.chunk + i, size,
                        reduction);
        store<Element>(sum, meeting->entries[index].output, o * shape.chunk + i,
                       size);
      }
  }

  /// sum = the reduction of everybody's elements [begin, begin + count).
  template <typename Element>
  void reduce(float *sum, int64_t begin, int64_t count,
              fb::Reduction reduction) {
    auto source = [&](int64_t member) {
      return reinterpret_cast<const Element *>(meeting->entries[member].input) +
             begin;
    };
    std::copy_n(source(0), count, sum);
    for (int64_t j = 1; j < members(); ++j)
      accumulate(sum, source(j), count, reduction);
  }

  /// Rounds once.
  template <typename Element>
  static void store(const float *sum, std::byte *target, int64_t begin,
                    int64_t count) {
    Element *to = reinterpret_cast<Element *>(target) + begin;
    for (int64_t i = 0; i < count; ++i)
      to[i] = Element(sum[i]);
  }

  template <typename Work>
  Status meet(const std::byte *input, std::byte *output, Work work) {
    meeting->entries[index] = {input, output};
    PLAIT_RETURN_IF_ERROR(world->barrier(*meeting));
    work();
    return world->barrier(*meeting);
  }

  std::shared_ptr<ThreadWorld> world;
  std::shared_ptr<Meeting<Operands>> meeting;
  uint32_t index; // of this rank among the members
};

class ThreadCommunicator : public Communicator {
public:
  ThreadCommunicator(std::shared_ptr<ThreadWorld> world, uint32_t rank)
      : world(std::move(world)), rank(rank) {}

  Result<std::unique_ptr<Group>>
  join(std::span<const uint32_t> ranks) override {
    uint32_t index =
        std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return std::unique_ptr<Group>(
        std::make_unique<ThreadGroup>(world, world->join(ranks), index));
  }

  Status post(uint32_t id, uint32_t target,
              std::span<const std::byte> bytes) override {
    world->post(id, bytes.data());
    return Status::success();
  }

  Status receive(uint32_t id, uint32_t source,
                 std::span<std::byte> bytes) override {
    Result<const std::byte *> data = world->take(id);
    if (!data.ok())
      return data.status();
    std::memcpy(bytes.data(), *data, bytes.size());
    world->acknowledge(id, *data);
    return Status::success();
  }

  Status awaitReceipt(uint32_t id, uint32_t target) override {
    return world->awaitReceipt(id).status();
  }

  Status finish() override { return Status::success(); }

  void abort() override { world->patience.abort(); }

private:
  std::shared_ptr<ThreadWorld> world;
  uint32_t rank;
};

} // namespace

std::vector<std::unique_ptr<Communicator>>
runtime::createThreadCommunicators(const Topology &topology,
                                   std::chrono::milliseconds timeLimit) {
  auto world =
      std::make_shared<ThreadWorld>(topology.messages.size(), timeLimit);
  std::vector<std::unique_ptr<Communicator>> result;
  for (uint32_t rank = 0; rank < topology.ranks; ++rank)
    result.push_back(std::make_unique<ThreadCommunicator>(world, rank));
  return result;
}
