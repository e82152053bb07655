//===- CudaThreadCommunicator.cpp - Ranks that share GPUs -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A collective: every member publishes its addresses and an event after all
// that it has enqueued so far; a barrier of the host's threads makes them
// visible; every member's stream waits for the events of all, computes the part
// of the result that is the member's own, and records a second event; a second
// barrier, and every stream waits for all second events: the inputs may change
// again. No thread waits for a GPU.
//
// An event is recorded again only after a barrier that follows all waits for
// its last use.
//
//===----------------------------------------------------------------------===//

#include "CudaThreadCommunicator.h"

#include "Core/World.h"
#include "ExpertRows.h"
#include "ReduceKernels.h"
#include "StepGraphs.h"
#include "Wait.h"
#include "plait/Plan/Check.h"

#include <algorithm>
#include <map>

using namespace plait;
using namespace plait::runtime;

namespace {

/// The events live here, as long as any rank may wait for them.
/// What a member publishes at a meeting. Addresses are of this process and,
/// since connectDevices(), valid on every GPU of it.
struct CudaOperands {
  const std::byte *input = nullptr;
  std::byte *output = nullptr;
  std::shared_ptr<CudaContext> context; // outlives the events
  CudaEvent ready;                      // the input
  CudaEvent done;                       // the member's part
};
/// The data that the sender and, on the way back, the receiver of a message
/// publish. Events are those of the communicators' maps, which live as long as
/// the ranks run.
struct CudaMessage {
  const std::byte *data;
  CUevent sent;     // the data is there
  CUevent received; // and has been copied
};
using CudaWorld = World<CudaOperands, CudaMessage>;

/// The kernels that groups on a GPU launch.
struct GroupKernels {
  std::shared_ptr<const ReduceKernels> sums;
  std::shared_ptr<const ExpertRows> rows;
};

/// The collectives of one group, seen from one member. What differs between
/// them is only what a member computes between the two rounds of events: always
/// the part of the result that is its own to write, so that no two members
/// write the same bytes. Sums are in rank order, whoever computes them, and so
/// the same bits on all members and in all runs.
class CudaThreadGroup : public Group {
public:
  CudaThreadGroup(std::shared_ptr<CudaWorld> world,
                  std::shared_ptr<Meeting<CudaOperands>> meeting,
                  uint32_t index, CudaDevice &device, uint32_t number,
                  const GroupKernels &kernels)
      : world(std::move(world)), meeting(std::move(meeting)), index(index),
        number(number), stream(device.stream(number)), kernels(kernels) {}

  uint32_t streamNumber() const override { return number; }

  /// Each member reduces one slice of all inputs and stores it into all
  /// outputs: it reads and writes each byte of the slice once a member, in one
  /// kernel. Input and output of a member may be the same memory, as nobody
  /// else reads or writes the slice.
  Status allReduce(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape,
                   fb::Reduction reduction) override {
    return meet(input, output, [&] {
      // Every member reduces a slice, in full cache lines, and stores it to
      // all.
      int64_t unit = plan::elementBytes(shape.type), line = 128 / unit;
      int64_t count = shape.outer * shape.chunk;
      // Rounded up, so that the last members may have a short slice, or none.
      int64_t slice =
          (count + members() * line - 1) / (members() * line) * line;
      int64_t begin = std::min(count, index * slice);
      ReduceParams params = inputsFrom(begin * unit);
      params.outputCount = static_cast<int32_t>(members());
      for (int64_t j = 0; j < members(); ++j)
        params.outputs[j] = meeting->entries[j].output + begin * unit;
      params.outer = 1;
      params.chunk = std::min(count, begin + slice) - begin;
      return kernels.sums->launch(stream, params, reduction, shape.type);
    });
  }

  /// Member i reduces chunk i of each of the `outer` rows: inputs are read a
  /// row apart, results stored without gaps.
  Status reduceScatter(const std::byte *input, std::byte *output,
                       const CollectiveShape &shape,
                       fb::Reduction reduction) override {
    return meet(input, output, [&] {
      ReduceParams params =
          inputsFrom(index * shape.chunk * plan::elementBytes(shape.type));
      params.outputCount = 1;
      params.outputs[0] = output;
      params.outer = shape.outer;
      params.chunk = params.outputStride = shape.chunk;
      params.inputStride = members() * shape.chunk;
      return kernels.sums->launch(stream, params, reduction, shape.type);
    });
  }

  /// Every member copies what the others have into its own output; nobody
  /// writes into the memory of another one.
  Status allGather(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape) override {
    uint64_t bytes = shape.chunk * plan::elementBytes(shape.type);
    return meet(input, output, [&] {
      for (int64_t j = 0; j < members(); ++j)
        PLAIT_RETURN_IF_ERROR(stream.copyRows(
            output + j * bytes, members() * bytes, meeting->entries[j].input,
            bytes, bytes, shape.outer));
      return Status::success();
    });
  }

  /// Member i takes the i-th block of everybody's input. Rows of a block may
  /// lie apart on either side (see CollectiveShape).
  Status allToAll(const std::byte *input, std::byte *output,
                  const CollectiveShape &shape) override {
    uint64_t bytes = shape.chunk * plan::elementBytes(shape.type);
    auto from = shape.inputRows(members()), to = shape.outputRows(members());
    return meet(input, output, [&] {
      for (int64_t j = 0; j < members(); ++j)
        PLAIT_RETURN_IF_ERROR(stream.copyRows(
            {output + j * to.block * bytes, to.outer, to.middle},
            {meeting->entries[j].input + index * from.block * bytes, from.outer,
             from.middle},
            bytes, shape.outer, shape.middle));
      return Status::success();
    });
  }

  /// Every member finds by the ids which rows of the others are its own: the
  /// host need not know how many.
  Status moveRows(const std::byte *input, std::byte *output,
                  const CollectiveShape &shape,
                  const RowChoice &choice) override {
    RowExtents extents(shape, choice, members(), index);
    return meet(input, output, [&] {
      PLAIT_RETURN_IF_ERROR(
          kernels.rows->clear(stream, extents, output, choice.ids));
      for (int64_t j = 0; j < members(); ++j)
        PLAIT_RETURN_IF_ERROR(kernels.rows->take(
            stream, extents, j, output, meeting->entries[j].input, choice.ids));
      return Status::success();
    });
  }

private:
  int64_t members() const { return meeting->entries.size(); }

  /// All members' inputs from `offset` bytes on, in rank order, which is the
  /// order of additions.
  ReduceParams inputsFrom(uint64_t offset) const {
    ReduceParams params = {};
    params.inputCount = static_cast<int32_t>(members());
    for (int64_t j = 0; j < members(); ++j)
      params.inputs[j] = meeting->entries[j].input + offset;
    return params;
  }

  /// Its own event the stream need not wait for: it has recorded it.
  Status waitForOthers(CudaEvent CudaOperands::*event) {
    for (int64_t j = 0; j < members(); ++j)
      if (j != index)
        PLAIT_RETURN_IF_ERROR(
            stream.wait((meeting->entries[j].*event).handle()));
    return Status::success();
  }

  /// One collective, by the rounds that the file's head describes:
  /// 1. record that all before, the input's last writer among it, has been
  ///    enqueued; publish, and meet. The barrier is of host threads: it says
  ///    that every event has been recorded, not that it has happened.
  /// 2. wait on the GPU for the inputs, enqueue `work`;
  /// 3. record and meet again, then wait for all parts: only then may an input
  ///    be overwritten, or this member's result, which others write, be read.
  template <typename Work>
  Status meet(const std::byte *input, std::byte *output, Work work) {
    CudaOperands &mine = meeting->entries[index];
    // 1.
    PLAIT_RETURN_IF_ERROR(stream.record(mine.ready));
    mine.input = input;
    mine.output = output;
    PLAIT_RETURN_IF_ERROR(world->barrier(*meeting));
    // 2.
    PLAIT_RETURN_IF_ERROR(waitForOthers(&CudaOperands::ready));
    PLAIT_RETURN_IF_ERROR(work());
    // 3.
    PLAIT_RETURN_IF_ERROR(stream.record(mine.done));
    PLAIT_RETURN_IF_ERROR(world->barrier(*meeting));
    return waitForOthers(&CudaOperands::done);
  }

  std::shared_ptr<CudaWorld> world;
  std::shared_ptr<Meeting<CudaOperands>> meeting;
  int64_t index; // of this rank among the members
  uint32_t number;
  CudaStream &stream;
  const GroupKernels &kernels;
};

/// One rank's end. Messages are copied by the receiver, on its stream, straight
/// out of the sender's memory: an event says that the data is there, another
/// one that it has been copied and the sender may write over it.
class CudaThreadCommunicator : public Communicator {
public:
  CudaThreadCommunicator(std::shared_ptr<CudaWorld> world, uint32_t rank,
                         CudaDevice &device, GroupKernels kernels)
      : world(std::move(world)), rank(rank), device(device),
        stream(device.stream()), kernels(std::move(kernels)) {}

  /// A group of one rank needs no stream, as it waits for nobody.
  Result<std::unique_ptr<Group>>
  join(std::span<const uint32_t> ranks) override {
    if (ranks.size() > maxCollectiveMembers)
      return fail("a collective of ", ranks.size(),
                  " ranks of one process, allowed are ",
                  int(maxCollectiveMembers));
    auto ready = CudaEvent::create(stream.driver);
    auto done = CudaEvent::create(stream.driver);
    if (!ready.ok() || !done.ok())
      return ready.ok() ? done.status() : ready.status();
    Result<uint32_t> number = 0u;
    if (ranks.size() > 1)
      number = device.addStream();
    if (!number.ok())
      return number.status();
    uint32_t index =
        std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    auto meeting = world->join(ranks);
    meeting->entries[index].context = stream.context;
    meeting->entries[index].ready = std::move(*ready);
    meeting->entries[index].done = std::move(*done);
    return std::unique_ptr<Group>(std::make_unique<CudaThreadGroup>(
        world, std::move(meeting), index, device, *number, kernels));
  }

  Status post(uint32_t id, uint32_t target,
              std::span<const std::byte> bytes) override {
    Result<CUevent> event = recordEvent(id);
    if (!event.ok())
      return event.status();
    // The event is in the stream before anybody can wait for it.
    world->post(id, {bytes.data(), *event, nullptr});
    return Status::success();
  }

  /// The host waits for the sender to have posted; the GPU waits for the data.
  Status receive(uint32_t id, uint32_t source,
                 std::span<std::byte> bytes) override {
    Result<CudaMessage> message = world->take(id);
    if (!message.ok())
      return message.status();
    PLAIT_RETURN_IF_ERROR(stream.wait(message->sent));
    PLAIT_RETURN_IF_ERROR(
        stream.copy(bytes.data(), message->data, bytes.size()));
    Result<CUevent> event = recordEvent(id);
    if (!event.ok())
      return event.status();
    message->received = *event;
    world->acknowledge(id, *message);
    return Status::success();
  }

  Status awaitReceipt(uint32_t id, uint32_t target) override {
    Result<CudaMessage> message = world->awaitReceipt(id);
    if (!message.ok())
      return message.status();
    return stream.wait(message->received);
  }

  Status finish() override {
    return waitUntil(
        [this] { return device.isStepDone(); },
        [this](auto since) { return world->patience.check(since); });
  }

  void abort() override { world->patience.abort(); }

private:
  /// Records this rank's event of message `id`: that it is sent or received.
  Result<CUevent> recordEvent(uint32_t id) {
    auto found = events.find(id);
    if (found == events.end()) { // in the first step
      auto event = CudaEvent::create(stream.driver);
      if (!event.ok())
        return event.status();
      found = events.emplace(id, std::move(*event)).first;
    }
    PLAIT_RETURN_IF_ERROR(stream.record(found->second));
    return found->second.handle();
  }

  std::shared_ptr<CudaWorld> world;
  uint32_t rank;
  CudaDevice &device;
  CudaStream &stream; // transfers happen in stream 0
  GroupKernels kernels;
  // A message may be sent again in the next step with the same event: its last
  // use has been waited for by then, see awaitReceipt().
  std::map<uint32_t, CudaEvent> events; // of messages
};

/// Every GPU reaches the memory of every other.
/// Quadratic in the GPUs of one node, once.
Status connectDevices(const std::map<int, std::shared_ptr<CudaContext>> &gpus) {
  for (const auto &[number, context] : gpus)
    for (const auto &[other, peer] : gpus)
      if (number != other)
        PLAIT_RETURN_IF_ERROR(context->accessPeer(*peer));
  return Status::success();
}

} // namespace

/// 1. A communicator for each rank, all in one world, and the kernels loaded
///    once a GPU.
/// 2. Peers: kernels and copies use the memory of other GPUs by its address.
/// 3. With `graphs`, one graph for all ranks, since their streams wait for each
///    other's events: recorded apart they would not know of each other.
Status runtime::connectCudaThreads(const Topology &topology,
                                   std::chrono::milliseconds timeLimit,
                                   std::span<RankBackend> parts, bool graphs) {
  auto world = std::make_shared<CudaWorld>(topology.messages.size(), timeLimit);
  std::map<int, std::shared_ptr<CudaContext>> gpus;
  std::map<int, GroupKernels> kernels;
  std::vector<CudaStream *> streams;
  // 1.
  for (uint32_t rank = 0; rank < parts.size(); ++rank) {
    auto &device = static_cast<CudaDevice &>(*parts[rank].device);
    CudaStream &stream = device.stream();
    streams.push_back(&stream);
    gpus.emplace(stream.context->ordinal, stream.context);
    GroupKernels &loaded = kernels[stream.context->ordinal];
    if (!loaded.sums) {
      auto sums = ReduceKernels::load(stream.context);
      auto rows = ExpertRows::load(stream.context);
      if (!sums.ok() || !rows.ok())
        return sums.ok() ? rows.status() : sums.status();
      loaded = {*sums, *rows};
    }
    parts[rank].communicator =
        std::make_unique<CudaThreadCommunicator>(world, rank, device, loaded);
  }
  // 2.
  PLAIT_RETURN_IF_ERROR(connectDevices(gpus));
  if (!graphs)
    return Status::success();
  // 3. The patience is the world's, and keeps it alive.
  auto made = createStepGraphs(
      streams, std::shared_ptr<Patience>(world, &world->patience));
  if (!made.ok())
    return made.status();
  for (uint32_t rank = 0; rank < parts.size(); ++rank)
    parts[rank].graph = std::move((*made)[rank]);
  return Status::success();
}
