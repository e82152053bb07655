//===- NcclCommunicator.cpp - Ranks with a GPU each -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives happen on the stream that computes, transfers on a stream of
// their route: a send must not hold up what is computed after it. Nothing
// waits for a transfer but what needs it: WaitSend and Recv in the plan. All
// is enqueued by the thread of the rank, in the order of the plan, which is the
// order in which NCCL starts it (see Nccl.cpp).
//
//===----------------------------------------------------------------------===//

#include "NcclCommunicator.h"

#include "Core/Rendezvous.h"
#include "CudaDevice.h"
#include "NcclComms.h"
#include "NcclGroup.h"
#include "StepGraphs.h"
#include "Wait.h"

#include <algorithm>
#include <cstring>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Destroys the communicators of all ranks of a process side by side: each of
/// them waits for the others.
struct CommsBin {
  ~CommsBin() {
    std::vector<std::thread> threads;
    for (std::unique_ptr<NcclComms> &comms : all)
      threads.emplace_back([&] { comms.reset(); });
    for (std::thread &thread : threads)
      thread.join();
  }

  std::mutex mutex;
  std::vector<std::unique_ptr<NcclComms>> all;
};

class NcclCommunicator : public Communicator {
public:
  NcclCommunicator(const Topology &topology, uint32_t rank, CudaStream &stream,
                   std::unique_ptr<NcclComms> comms,
                   std::shared_ptr<Scratch> scratch,
                   std::shared_ptr<CommsBin> bin,
                   std::shared_ptr<Patience> patience)
      : topology(topology), partOf(partOfMessages(topology)), rank(rank),
        stream(stream), scratch(std::move(scratch)), bin(std::move(bin)),
        patience(std::move(patience)), comms(std::move(comms)) {}

  ~NcclCommunicator() override {
    std::lock_guard lock(bin->mutex);
    bin->all.push_back(std::move(comms));
  }

  /// Makes the stream of every route of this rank.
  Status prepare() {
    for (uint32_t id = 0; id < partOf.size(); ++id) {
      const Topology::Route &way = topology.messages[id];
      if ((way.source != rank && way.target != rank) ||
          routes.count(partOf[id]))
        continue;
      auto made = CudaStream::create(stream.context, stream.recording);
      if (!made.ok())
        return made.status();
      routes.emplace(partOf[id], std::move(*made));
    }
    return Status::success();
  }

  Result<std::unique_ptr<Group>>
  join(std::span<const uint32_t> ranks) override {
    auto found = std::find_if(topology.groups.begin(), topology.groups.end(),
                              [&](const std::vector<uint32_t> &group) {
                                return std::equal(group.begin(), group.end(),
                                                  ranks.begin(), ranks.end());
                              });
    uint32_t index = found - topology.groups.begin();
    return createNcclGroup(comms->library, comms->group(index), ranks.size(),
                           stream, scratch);
  }

  Status post(uint32_t id, uint32_t target,
              std::span<const std::byte> bytes) override {
    return transfer(id, [&](ncclComm_t comm, CudaStream &route) {
      return comms->library.ncclSend(bytes.data(), bytes.size(), ncclInt8,
                                     rank < target, comm, route.handle());
    });
  }

  Status receive(uint32_t id, uint32_t source,
                 std::span<std::byte> bytes) override {
    PLAIT_RETURN_IF_ERROR(transfer(id, [&](ncclComm_t comm, CudaStream &route) {
      return comms->library.ncclRecv(bytes.data(), bytes.size(), ncclInt8,
                                     rank < source, comm, route.handle());
    }));
    return stream.wait(done.at(id).handle());
  }

  Status awaitReceipt(uint32_t id, uint32_t target) override {
    return stream.wait(done.at(id).handle());
  }

  Status finish() override {
    uint32_t glances = 0;
    Status status = waitForStream(stream, [&](auto since) {
      // NCCL is asked about once in ten milliseconds.
      constexpr uint32_t rarely = 128;
      PLAIT_RETURN_IF_ERROR(patience->check(since));
      return glances++ % rarely ? Status::success() : comms->check();
    });
    if (!status.ok())
      comms->abort(); // or the GPU would wait for ever
    return status;
  }

  void abort() override {
    patience->abort();
    comms->abort();
  }

private:
  /// Enqueues message `id` on the stream of its route, after everything that
  /// this rank has enqueued, and records when it is done.
  template <typename Enqueue> Status transfer(uint32_t id, Enqueue enqueue) {
    CudaStream &route = *routes.at(partOf[id]);
    for (std::map<uint32_t, CudaEvent> *events : {&ready, &done})
      if (!events->count(id)) { // in the first step
        auto event = CudaEvent::create(stream.driver);
        if (!event.ok())
          return event.status();
        events->emplace(id, std::move(*event));
      }
    PLAIT_RETURN_IF_ERROR(stream.record(ready.at(id)));
    PLAIT_RETURN_IF_ERROR(route.wait(ready.at(id).handle()));
    PLAIT_RETURN_IF_ERROR(route.add([&] {
      return comms->library.check(enqueue(comms->transfers(partOf[id]), route),
                                  "an NCCL transfer");
    }));
    return route.record(done.at(id));
  }

  const Topology topology;
  const std::vector<uint32_t> partOf; // of each message
  uint32_t rank;
  CudaStream &stream;
  std::shared_ptr<Scratch> scratch;
  std::shared_ptr<CommsBin> bin;
  std::shared_ptr<Patience> patience;
  std::unique_ptr<NcclComms> comms;
  std::map<uint32_t, std::unique_ptr<CudaStream>> routes; // by part
  std::map<uint32_t, CudaEvent> ready, done;              // of messages
};

/// Sends a byte along every route of this rank, all ranks in one order. NCCL
/// connects two ranks in their first transfer, for which each of them waits on
/// the host: two that begin with a send would wait for ever. `byte` is device
/// memory, left as it is if it is the same everywhere.
Status connectRoutes(const Topology &topology, uint32_t rank,
                     const NcclComms &comms, CudaStream &stream,
                     std::byte *byte) {
  const Nccl &nccl = comms.library;
  for (const NcclSplit &split : splitWorld(topology))
    for (const NcclPart &part : split) {
      ncclComm_t comm = comms.transfers(part.index);
      if (!part.transfers || !comm)
        continue;
      bool sends = part.source == rank;
      int peer = rank == part.ranks.front(); // the index of the other one
      PLAIT_RETURN_IF_ERROR(nccl.check(
          sends ? nccl.ncclSend(byte, 1, ncclInt8, peer, comm, stream.handle())
                : nccl.ncclRecv(byte, 1, ncclInt8, peer, comm, stream.handle()),
          "an NCCL transfer"));
    }
  return stream.synchronize();
}

/// Makes the communicator and the graph of one rank; all ranks do at once.
Status connect(const Topology &topology, uint32_t rank, const ncclUniqueId &id,
               std::shared_ptr<CommsBin> bin,
               std::shared_ptr<Patience> patience, RankBackend &part,
               bool graphs) {
  CudaStream &stream = static_cast<CudaDevice &>(*part.device).stream();
  auto scratch = Scratch::create(stream.context, topology.packedBytes);
  if (!scratch.ok())
    return scratch.status();
  auto comms = NcclComms::create(topology, rank, id, stream.context);
  if (!comms.ok())
    return comms.status();
  // The arena is still zero, on all ranks.
  PLAIT_RETURN_IF_ERROR(
      connectRoutes(topology, rank, **comms, stream, part.device->arena()));
  auto communicator = std::make_unique<NcclCommunicator>(
      topology, rank, stream, std::move(*comms), *scratch, std::move(bin),
      patience);
  PLAIT_RETURN_IF_ERROR(communicator->prepare());
  part.communicator = std::move(communicator);
  if (!graphs)
    return Status::success();
  CudaStream *streams[] = {&stream};
  auto made = createStepGraphs(streams, std::move(patience));
  if (!made.ok())
    return made.status();
  part.graph = std::move(made->front());
  return Status::success();
}

Result<ncclUniqueId> makeUniqueId() {
  Result<const Nccl *> nccl = Nccl::load();
  if (!nccl.ok())
    return nccl.status();
  ncclUniqueId id;
  PLAIT_RETURN_IF_ERROR(
      (*nccl)->check((*nccl)->ncclGetUniqueId(&id), "ncclGetUniqueId"));
  return id;
}

} // namespace

Status runtime::connectNcclThreads(const Topology &topology,
                                   std::chrono::milliseconds timeLimit,
                                   std::span<RankBackend> parts, bool graphs) {
  Result<ncclUniqueId> id = makeUniqueId();
  if (!id.ok())
    return id.status();
  auto bin = std::make_shared<CommsBin>();
  auto patience = std::make_shared<Patience>(timeLimit);
  std::vector<Status> results(parts.size(), Status::success());
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < parts.size(); ++rank)
    threads.emplace_back([&, rank] {
      results[rank] =
          connect(topology, rank, *id, bin, patience, parts[rank], graphs);
    });
  for (std::thread &thread : threads)
    thread.join();
  for (uint32_t rank = 0; rank < parts.size(); ++rank)
    if (!results[rank].ok())
      return fail("rank ", rank, ": ", results[rank].message());
  return Status::success();
}

Status runtime::connectNcclProcess(const Topology &topology,
                                   std::chrono::milliseconds timeLimit,
                                   const Launch &launch, RankBackend &part,
                                   bool graphs) {
  Result<ncclUniqueId> id = ncclUniqueId{};
  if (launch.rank == 0)
    id = makeUniqueId();
  if (!id.ok())
    return id.status();
  auto processes = Rendezvous::join(launch, timeLimit);
  if (!processes.ok())
    return processes.status();
  auto ids = (*processes)
                 ->exchange(launch.rank == 0 ? std::string(id->internal,
                                                           sizeof(id->internal))
                                             : "");
  if (!ids.ok())
    return ids.status();
  if (ids->front().size() != sizeof(id->internal))
    return fail("rank 0 sends an NCCL id of ", ids->front().size(),
                " bytes, expected ", sizeof(id->internal));
  std::memcpy(id->internal, ids->front().data(), sizeof(id->internal));
  return connect(topology, launch.rank, *id, std::make_shared<CommsBin>(),
                 std::make_shared<Patience>(timeLimit), part, graphs);
}
