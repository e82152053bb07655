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
#include "Reduction.h"
#include "Rows.h"
#include "plait/Plan/Check.h"
#include "plait/Runtime/Communicator.h"

#include <algorithm>
#include <cstring>

using namespace plait;
using namespace plait::runtime;

namespace {

/// The operands that a member publishes: valid from the first barrier to the
/// second.
struct Operands {
  const std::byte *input;
  std::byte *output;
};
using ThreadWorld = World<Operands, const std::byte *>;

/// Barriers make what was written before them visible to all members; there is
/// no other synchronisation. Each element of a result is computed by one
/// member, in the order of the members, so that results are the same on every
/// run and identical on all members.
class ThreadGroup : public Group {
public:
  /// `index` is the rank's position among the members, which orders sums.
  ThreadGroup(std::shared_ptr<ThreadWorld> world,
              std::shared_ptr<Meeting<Operands>> meeting, int64_t index,
              uint32_t stream)
      : world(std::move(world)), meeting(std::move(meeting)), index(index),
        streamOfAll(stream) {}

  uint32_t streamNumber() const override { return streamOfAll; }

  /// May work in place: a slice of everybody's memory is read and written by
  /// its owner alone.
  Status allReduce(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape,
                   fb::Reduction reduction) override {
    return meet(input, output, [&] {
      withElement(shape.type, [&](auto element) {
        reduceSlice<decltype(element)>(shape, reduction);
      });
    });
  }

  /// Inputs are whole tensors, outputs blocks of them.
  Status reduceScatter(const std::byte *input, std::byte *output,
                       const CollectiveShape &shape,
                       fb::Reduction reduction) override {
    return meet(input, output, [&] {
      withElement(shape.type, [&](auto element) {
        reduceOwn<decltype(element)>(shape, reduction);
      });
    });
  }

  /// Every member pulls all blocks: reading others' memory needs no second
  /// copy.
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

  /// Member j's block for this one goes where block j has to be.
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

  Status moveRows(const std::byte *input, std::byte *output,
                  const CollectiveShape &shape,
                  const RowChoice &choice) override {
    RowMoves moves(shape, choice);
    return meet(input, output, [&] {
      moves.clear(output, members(), index);
      for (int64_t j = 0; j < members(); ++j)
        moves.copy(meeting->entries[j].input, output, j, index);
    });
  }

private:
  /// Entries are allocated with the meeting, one for each member.
  int64_t members() const { return meeting->entries.size(); }

  template <typename Element> const Element *inputOf(int64_t member) const {
    return reinterpret_cast<const Element *>(meeting->entries[member].input);
  }
  template <typename Element> Element *outputOf(int64_t member) const {
    return reinterpret_cast<Element *>(meeting->entries[member].output);
  }

  /// A slice of all elements, for everybody.
  template <typename Element>
  void reduceSlice(const CollectiveShape &shape, fb::Reduction reduction) {
    Slice slice =
        getSlice(shape.outer * shape.chunk, members(), index, sizeof(Element));
    for (int64_t i = slice.begin; i < slice.end; i += reductionBlock) {
      int64_t size = std::min(reductionBlock, slice.end - i);
      Element *own = outputOf<Element>(index) + i;
      reduceInOrder(
          members(), size, reduction,
          [&](int64_t j) { return inputOf<Element>(j) + i; }, own);
      for (int64_t j = 0; j < members(); ++j)
        if (j != index)
          std::copy_n(own, size, outputOf<Element>(j) + i);
    }
  }

  /// This member's block.
  template <typename Element>
  void reduceOwn(const CollectiveShape &shape, fb::Reduction reduction) {
    for (int64_t o = 0; o < shape.outer; ++o)
      reduceInOrder(
          members(), shape.chunk, reduction,
          [&](int64_t j) {
            return inputOf<Element>(j) + (o * members() + index) * shape.chunk;
          },
          outputOf<Element>(index) + o * shape.chunk);
  }

  /// A member that fails in a barrier leaves the group unusable, as all
  /// failures of a step do.
  template <typename Work>
  Status meet(const std::byte *input, std::byte *output, Work work) {
    meeting->entries[index] = {input, output};
    PLAIT_RETURN_IF_ERROR(world->barrier(*meeting));
    work();
    return world->barrier(*meeting);
  }

  std::shared_ptr<ThreadWorld> world;
  std::shared_ptr<Meeting<Operands>> meeting;
  int64_t index; // of this rank among the members
  uint32_t streamOfAll;
};

/// Messages are copied by their receiver straight out of the sender's memory:
/// post() only publishes the address, and the sender must not change the bytes
/// before awaitReceipt().
class ThreadCommunicator : public Communicator {
public:
  ThreadCommunicator(std::shared_ptr<ThreadWorld> world,
                     std::shared_ptr<const Topology> topology, uint32_t rank)
      : world(std::move(world)), topology(std::move(topology)), rank(rank) {}

  /// Members of the same ranks share a meeting, whoever asks first.
  Result<std::unique_ptr<Group>>
  join(std::span<const uint32_t> ranks) override {
    uint32_t index =
        std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return std::unique_ptr<Group>(std::make_unique<ThreadGroup>(
        world, world->join(ranks), index, topology->streamOf(ranks)));
  }

  Status post(uint32_t id, uint32_t target,
              std::span<const std::byte> bytes) override {
    world->post(id, bytes.data());
    return Status::success();
  }

  /// The size is the receiver's: the plan checker has shown that both agree.
  Status receive(uint32_t id, uint32_t source,
                 std::span<std::byte> bytes) override {
    Result<const std::byte *> data = world->take(id);
    if (!data.ok())
      return data.status();
    std::memcpy(bytes.data(), *data, bytes.size());
    world->acknowledge(id, *data);
    return Status::success();
  }

  /// Also frees the slot of the message for the next microbatch or step.
  Status awaitReceipt(uint32_t id, uint32_t target) override {
    return world->awaitReceipt(id).status();
  }

  Status finish() override { return Status::success(); }

  void abort() override { world->patience.abort(); }

private:
  std::shared_ptr<ThreadWorld> world;
  std::shared_ptr<const Topology> topology;
  uint32_t rank;
};

} // namespace

/// One for each rank of the plan, all of one world. Slots of messages are
/// allocated here, so that a step allocates nothing.
std::vector<std::unique_ptr<Communicator>>
runtime::createThreadCommunicators(const Topology &topology,
                                   std::chrono::milliseconds timeLimit) {
  auto world =
      std::make_shared<ThreadWorld>(topology.messages.size(), timeLimit);
  auto shared = std::make_shared<const Topology>(topology);
  std::vector<std::unique_ptr<Communicator>> result;
  for (uint32_t rank = 0; rank < topology.ranks; ++rank)
    result.push_back(std::make_unique<ThreadCommunicator>(world, shared, rank));
  return result;
}
