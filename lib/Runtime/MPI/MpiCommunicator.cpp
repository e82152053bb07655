//===- MpiCommunicator.cpp - Ranks of several processes -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The end point of a rank where there are several processes. What stays in the
// process goes to ThreadCommunicator, whose ranks read each other's memory;
// what leaves it becomes a transfer of the engine. Everything that a step
// needs, jobs, groups and staging areas, is made when the plan is loaded.
//
//===----------------------------------------------------------------------===//

#include "MpiCommunicator.h"

#include "MpiGroup.h"

#include <algorithm>
#include <map>

using namespace plait;
using namespace plait::runtime;

namespace {

/// The staging area of each stream of a rank that is in a group of several
/// processes. An all-reduce of so many bytes goes in one piece. Larger ones are
/// cut; a piece has a slice of each member, so that messages shrink with the
/// number of members.
constexpr size_t stagingBytes = 4 << 20;

/// The ranks of this process among themselves, and what all of them share.
struct Shared {
  /// A rank that gives up, here or elsewhere, has to wake all ranks that wait,
  /// in whichever of the three ways they do: for the engine, for members of a
  /// group in this process, for a rank of this process. The engine tells the
  /// other two.
  Shared(const Topology &topology, Rendezvous &processes,
         std::chrono::milliseconds timeLimit)
      : topology(topology),
        world(std::make_shared<MpiWorld>(processes, timeLimit)),
        threads(createThreadCommunicators(topology, timeLimit)) {
    world->engine.setAbortHandler([this] {
      world->meetings.patience.abort();
      threads.front()->abort();
    });
  }
  /// The handler refers to this.
  ~Shared() { world->engine.setAbortHandler(nullptr); }

  Topology topology;
  std::shared_ptr<MpiWorld> world;
  std::vector<std::unique_ptr<Communicator>> threads; // by rank
};

class MpiCommunicator : public Communicator {
public:
  /// Jobs of all messages that cross processes are made here; std::map keeps
  /// them where they are.
  MpiCommunicator(std::shared_ptr<Shared> both, uint32_t rank)
      : shared(std::move(both)), rank(rank) {
    const MpiWorld &world = *shared->world;
    const Topology &topology = shared->topology;
    for (uint32_t id = 0; id < topology.messages.size(); ++id) {
      const Topology::Route &route = topology.messages[id];
      bool isMine = route.source == rank || route.target == rank;
      if (isMine && !(world.isHere(route.source) && world.isHere(route.target)))
        jobs[id]; // both ends of a message may not be in one process
    }
  }

  /// After an abort transfers may still write to the arena, which goes next.
  ~MpiCommunicator() override { shared->world->settle(); }

  /// A stream does one collective at a time, so that its groups share a staging
  /// area.
  Result<std::unique_ptr<Group>>
  join(std::span<const uint32_t> ranks) override {
    const MpiWorld &world = *shared->world;
    if (std::all_of(ranks.begin(), ranks.end(),
                    [&](uint32_t other) { return world.isHere(other); }))
      return threads().join(ranks);
    uint32_t stream = shared->topology.streamOf(ranks);
    std::shared_ptr<MpiStaging> &staging = stagings[stream];
    if (!staging)
      staging = std::make_shared<MpiStaging>(stagingBytes);
    return createMpiGroup(shared->world, ranks, rank, stream, staging);
  }

  /// The job is busy until MPI has the bytes; awaitReceipt() waits for it.
  Status post(uint32_t id, uint32_t target,
              std::span<const std::byte> bytes) override {
    if (shared->world->isHere(target))
      return threads().post(id, target, bytes);
    submit(MpiTransfer::Kind::Send, id, target,
           const_cast<std::byte *>(bytes.data()), bytes.size());
    return Status::success();
  }

  Status receive(uint32_t id, uint32_t source,
                 std::span<std::byte> bytes) override {
    if (shared->world->isHere(source))
      return threads().receive(id, source, bytes);
    submit(MpiTransfer::Kind::Receive, id, source, bytes.data(), bytes.size());
    return wait(id);
  }

  /// MPI may have put the bytes aside: then they need not have arrived, but may
  /// change, and messages of one id stay in order.
  Status awaitReceipt(uint32_t id, uint32_t target) override {
    return shared->world->isHere(target) ? threads().awaitReceipt(id, target)
                                         : wait(id);
  }

  Status finish() override { return Status::success(); }

  /// Through the engine, which warns the other processes and calls the handler
  /// above.
  void abort() override { engine().abort(); }

private:
  MpiEngine &engine() { return shared->world->engine; }
  Communicator &threads() { return *shared->threads[rank]; }

  /// Jobs are looked up by at(): all were made in the constructor.
  Status wait(uint32_t id) {
    return engine().wait(jobs.at(id), shared->world->timeLimit);
  }

  /// The id is the tag: messages of different ids between two processes do not
  /// mix.
  void submit(MpiTransfer::Kind kind, uint32_t id, uint32_t peer,
              std::byte *data, size_t bytes) {
    MpiJob &job = jobs.at(id);
    job.transfers.assign(1, {kind, MpiChannel::Messages,
                             shared->world->spread.processOf(peer), id,
                             Region{data, int64_t(bytes)}, nullptr});
    engine().submit(job);
  }

  std::shared_ptr<Shared> shared;
  uint32_t rank;
  std::map<uint32_t, std::shared_ptr<MpiStaging>> stagings; // by stream
  std::map<uint32_t, MpiJob> jobs; // by message, of those between processes
};

} // namespace

/// Tags have to be enough for messages by id, for collectives by pairs of ranks
/// (MpiWorld::tagOf) and for bytes of each rank (MpiRendezvous). MPI promises
/// no more than 32767; most have more.
Result<std::vector<std::unique_ptr<Communicator>>>
runtime::createMpiCommunicators(const Topology &topology, Rendezvous &processes,
                                std::chrono::milliseconds timeLimit) {
  const RankSpread &spread = processes.spread();
  uint32_t process = processes.place().index;
  uint32_t limit = processes.engine()->world().largestTag;
  uint64_t pairs = uint64_t(spread.largest()) * spread.largest();
  uint64_t tags = std::max<uint64_t>(
      {topology.messages.size(), pairs, uint64_t(topology.ranks) + 1});
  if (tags > limit)
    return fail("the ranks need ", tags,
                " tags for their messages, this MPI "
                "has ",
                limit);
  auto shared = std::make_shared<Shared>(topology, processes, timeLimit);
  std::vector<std::unique_ptr<Communicator>> result;
  for (uint32_t rank = spread.firstOf(process);
       rank < spread.firstOf(process + 1); ++rank)
    result.push_back(std::make_unique<MpiCommunicator>(shared, rank));
  return result;
}
