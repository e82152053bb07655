//===- NcclCommunicator.cpp - Ranks with a GPU each -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each group has a stream of the device for itself, and so has each route of
// messages: neither a collective nor a send holds up what does not need it. All
// is enqueued by the thread of the rank, in the order of the plan, which is the
// order in which NCCL starts it (see Nccl.cpp).
//
//===----------------------------------------------------------------------===//

#include "NcclCommunicator.h"

#include "CudaDevice.h"
#include "NcclGroup.h"
#include "NcclRank.h"
#include "NcclWarmUp.h"

#include <algorithm>
#include <cstring>
#include <optional>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Destroys the communicators of all ranks of a process side by side: each of
/// them waits for the others.
struct CommsBin {
  // A thread a rank: ncclCommDestroy of ranks of one process waits until all of
  // them have called it.
  ~CommsBin() {
    std::vector<std::thread> threads;
    for (std::shared_ptr<NcclRank> &rank : all)
      threads.emplace_back([&] { rank.reset(); });
    for (std::thread &thread : threads)
      thread.join();
  }

  std::mutex mutex;
  std::vector<std::shared_ptr<NcclRank>> all;
};

/// The recorded step of one rank.
/// NCCL's kernels meet on the GPU, so that the graphs of two ranks need not
/// know of each other; each is the rank's own.
class NcclStepGraph : public StepGraph {
public:
  NcclStepGraph(std::shared_ptr<NcclRank> owner, CudaDevice &device)
      : owner(std::move(owner)), device(device) {}

  Status begin() override {
    PLAIT_RETURN_IF_ERROR(device.boundRecording(true));
    return owner->beginRecording();
  }
  Status end() override {
    PLAIT_RETURN_IF_ERROR(device.boundRecording(false));
    return owner->endRecording();
  }
  Status replay() override { return owner->replay(); }
  bool hasParts() const override { return true; }
  Status cut() override {
    PLAIT_RETURN_IF_ERROR(device.boundRecording(true));
    device.beginPart();
    return owner->cutRecording();
  }

private:
  std::shared_ptr<NcclRank> owner;
  CudaDevice &device;
};

/// One rank's end. There is nothing to post, take or acknowledge on the host:
/// sends and receives of a route meet on the GPU, in the order of the route.
class NcclCommunicator : public Communicator {
public:
  NcclCommunicator(const Topology &topology, uint32_t rank, CudaDevice &device,
                   std::shared_ptr<NcclRank> owner,
                   std::shared_ptr<CommsBin> bin)
      : topology(topology), partOf(partOfMessages(topology)), rank(rank),
        device(device), bin(std::move(bin)), owner(std::move(owner)) {}

  ~NcclCommunicator() override {
    // Only when all ranks of the process have left are communicators
    // destroyed: the last one drops the bin.
    owner->leave();
    // Members of the bin may be pushed by several threads.
    std::lock_guard lock(bin->mutex);
    bin->all.push_back(std::move(owner));
  }

  /// Makes the stream of every route of this rank, and its groups, whose
  /// collectives it calls once.
  Status prepare() {
    for (uint32_t id = 0; id < partOf.size(); ++id) {
      const Topology::Route &way = topology.messages[id];
      if ((way.source != rank && way.target != rank) ||
          routes.count(partOf[id]))
        continue;
      auto number = device.addStream();
      if (!number.ok())
        return number.status();
      routes.emplace(partOf[id], *number);
    }
    for (uint32_t index = 0; index < topology.groups.size(); ++index) {
      const std::vector<uint32_t> &ranks = topology.groups[index];
      if (ranks.size() == 1 ||
          !std::binary_search(ranks.begin(), ranks.end(), rank))
        continue;
      auto group = make(index, ranks);
      if (!group.ok())
        return group.status();
      groups.emplace(index, std::move(*group));
    }
    return callCollectives(topology, rank, device, *owner, groups);
  }

  /// Finds the group by its ranks, since that is how a plan names it.
  Result<std::unique_ptr<Group>>
  join(std::span<const uint32_t> ranks) override {
    auto found = std::find_if(topology.groups.begin(), topology.groups.end(),
                              [&](const std::vector<uint32_t> &group) {
                                return std::equal(group.begin(), group.end(),
                                                  ranks.begin(), ranks.end());
                              });
    uint32_t index = found - topology.groups.begin();
    auto ready = groups.extract(index);
    if (!ready.empty())
      return std::move(ready.mapped());
    return make(index, ranks);
  }

  /// Memory to pack tensors into is allocated here, as a step allocates
  /// nothing; the plan says how many bytes its largest collective of this group
  /// needs.
  Result<std::unique_ptr<Group>> make(uint32_t index,
                                      std::span<const uint32_t> ranks) {
    size_t members = ranks.size();
    bool packs = members > 1 && index < topology.packedBytes.size();
    auto scratch = DeviceMemory::allocate(
        device.stream().context, packs ? topology.packedBytes[index] : 0,
        "a collective's packed tensor", &owner->library());
    if (!scratch.ok())
      return scratch.status();
    Result<uint32_t> number = 0u;
    if (members > 1)
      number = device.addStream();
    if (!number.ok())
      return number.status();
    return createNcclGroup(owner, owner->group(index), int64_t(members),
                           std::find(ranks.begin(), ranks.end(), rank) -
                               ranks.begin(),
                           device, *number, std::move(*scratch));
  }

  uint32_t streamOf(uint32_t id) const override {
    return routes.at(partOf[id]);
  }
  /// A send ends when its receiver has it, so that a later step of the same
  /// stream may write over what was sent.
  bool sendsInStream() const override { return true; }

  /// A route's communicator has two ranks, and the peer's index is 1 exactly if
  /// this rank is the lower one.
  Status post(uint32_t id, uint32_t target,
              std::span<const std::byte> bytes) override {
    return transfer(id, [&](ncclComm_t comm, CudaStream &route) {
      return owner->library().ncclSend(bytes.data(), bytes.size(), ncclInt8,
                                       rank < target, comm, route.handle());
    });
  }

  Status receive(uint32_t id, uint32_t source,
                 std::span<std::byte> bytes) override {
    return transfer(id, [&](ncclComm_t comm, CudaStream &route) {
      return owner->library().ncclRecv(bytes.data(), bytes.size(), ncclInt8,
                                       rank < source, comm, route.handle());
    });
  }

  /// The stream of the route has the send in it; whoever writes over the data
  /// waits for that stream.
  Status awaitReceipt(uint32_t id, uint32_t target) override {
    return Status::success();
  }

  Status finish() override {
    return owner->await([this] { return device.isStepDone(); });
  }
  void abort() override { owner->stop(); }

private:
  /// Enqueues message `id` in the stream of its route.
  template <typename Enqueue> Status transfer(uint32_t id, Enqueue enqueue) {
    CudaStream &route = device.stream(streamOf(id));
    ncclComm_t comm = owner->transfers(partOf[id]);
    PLAIT_RETURN_IF_ERROR(device.holdBack(streamOf(id)));
    return owner->call(comm, "an NCCL transfer",
                       [&] { return enqueue(comm, route); });
  }

  const Topology topology;
  const std::vector<uint32_t> partOf; // of each message
  uint32_t rank;
  CudaDevice &device;
  std::shared_ptr<CommsBin> bin;
  std::shared_ptr<NcclRank> owner;
  std::map<uint32_t, uint32_t> routes; // the stream, by part
  NcclGroups groups;                   // that nobody has joined yet
};

/// Sends a byte along every route of this rank, all ranks in one order. NCCL
/// connects two ranks in their first transfer, for which each of them waits on
/// the host: two that begin with a send would wait for ever. `byte` is device
/// memory, left as it is if it is the same everywhere.
Status connectRoutes(const Topology &topology, uint32_t rank, NcclRank &owner,
                     CudaStream &stream, std::byte *byte) {
  const Nccl &nccl = owner.library();
  for (const NcclSplit &split : splitWorld(topology))
    for (const NcclPart &part : split) {
      ncclComm_t comm = owner.transfers(part.index);
      if (!part.transfers || !comm)
        continue;
      // All routes' first transfers are in the order of the splits, which is
      // the same on all ranks: of the ranks that wait, the first pair in that
      // order can go on.
      bool sends = part.source == rank;
      int peer = rank == part.ranks.front(); // the index of the other one
      PLAIT_RETURN_IF_ERROR(owner.call(comm, "an NCCL transfer", [&] {
        return sends ? nccl.ncclSend(byte, 1, ncclInt8, peer, comm,
                                     stream.handle())
                     : nccl.ncclRecv(byte, 1, ncclInt8, peer, comm,
                                     stream.handle());
      }));
    }
  return owner.awaitStream();
}

/// Holds what a rank has between the two halves of connecting.
struct Joined {
  std::shared_ptr<NcclRank> owner; // null: `status` says why
  Status status = Status::success();
  bool lacksWindow = false;
};

/// The first half, which all ranks do at once: makes the communicators of one
/// rank. Whether they are kept is decided by all ranks (decide()).
Joined join(const Topology &topology, uint32_t rank, const ncclUniqueId &id,
            const NcclWindows &windows, std::shared_ptr<Patience> patience,
            RankBackend &part) {
  auto &device = static_cast<CudaDevice &>(*part.device);
  Joined result;
  auto made = NcclRank::create(
      topology, rank, id, device.stream(), device.arenaMemory(), windows,
      device.blocksOfCollectives(), std::move(patience), result.lacksWindow);
  result.status = made.status();
  if (made.ok())
    result.owner = std::move(*made);
  return result;
}

/// The second half, which all ranks do at once, in this order:
/// 1. connect the routes, in whose first transfer the host waits;
/// 2. make groups, and call each collective once;
/// 3. hand out communicator and graph.
Status connect(const Topology &topology, uint32_t rank,
               std::shared_ptr<NcclRank> owner, std::shared_ptr<CommsBin> bin,
               RankBackend &part, bool graphs) {
  auto &device = static_cast<CudaDevice &>(*part.device);
  PLAIT_RETURN_IF_ERROR(device.attachThread());
  // 1. The arena is still zero, on all ranks.
  Status status = connectRoutes(topology, rank, *owner, device.stream(),
                                part.device->arena());
  // 2.
  auto communicator = std::make_unique<NcclCommunicator>(topology, rank, device,
                                                         owner, std::move(bin));
  if (status.ok())
    status = communicator->prepare();
  if (!status.ok()) {
    // Others are not told to end: only an abort returns without them.
    owner->stop();
    return status;
  }
  // 3.
  part.communicator = std::move(communicator);
  if (graphs)
    part.graph = std::make_unique<NcclStepGraph>(std::move(owner), device);
  return Status::success();
}

/// Has to be called by one rank, for all: it names the run's meeting place.
Result<ncclUniqueId> makeUniqueId() {
  Result<const Nccl *> nccl = Nccl::load();
  if (!nccl.ok())
    return nccl.status();
  ncclUniqueId id;
  PLAIT_RETURN_IF_ERROR(
      (*nccl)->check((*nccl)->ncclGetUniqueId(&id), "ncclGetUniqueId"));
  return id;
}

/// The text that the user is told where ranks do without windows.
std::string describeMissingWindow(uint32_t rank, const std::string &why) {
  return "NCCL copies what it moves: rank " + std::to_string(rank) +
         " has no window to the other ranks' arenas (" + why + ")";
}

/// Runs `job` for each of `ranks` ranks, on a thread of its own.
template <typename Job> void runOnThreads(size_t ranks, Job job) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&job, rank] { job(rank); });
  for (std::thread &thread : threads)
    thread.join();
}

/// Returns the failure to tell of: one that has failed by itself says more than
/// those that only follow it.
Status firstOf(std::span<const Status> results) {
  for (bool follows : {false, true})
    for (uint32_t rank = 0; rank < results.size(); ++rank)
      if (!results[rank].ok() && followsAnother(results[rank]) == follows)
        return fail(results[rank].code(), "rank ", rank, ": ",
                    results[rank].message());
  return Status::success();
}

/// Aborts all communicators: where some ranks have none, nobody would come to
/// an orderly end.
void giveUp(std::vector<Joined> &ranks) {
  for (Joined &one : ranks)
    if (one.owner)
      one.owner->stop();
  ranks.clear();
}

/// The first rank that lacks a window, if there is one.
std::optional<uint32_t> findWithoutWindow(std::span<const Joined> ranks) {
  for (uint32_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].lacksWindow && !followsAnother(ranks[rank].status))
      return rank;
  return std::nullopt;
}

/// The text by which a process tells the others of how it went, beside success:
/// first, in a letter, whether windows are what it lacks.
std::string describeTo(const Joined &mine) {
  return mine.status.ok()
             ? ""
             : (mine.lacksWindow ? "w" : "f") + mine.status.message();
}

/// Broadcasts what rank 0 has made, as raw bytes; a different size would be a
/// different NCCL.
Result<ncclUniqueId> shareUniqueId(Rendezvous &processes) {
  Result<ncclUniqueId> id = ncclUniqueId{};
  if (processes.place().index == 0)
    id = makeUniqueId();
  if (!id.ok())
    return id.status();
  auto text =
      processes.broadcast(std::string(id->internal, sizeof(id->internal)));
  if (!text.ok())
    return text.status();
  if (text->size() != sizeof(id->internal))
    return fail("rank 0 sends an NCCL id of ", text->size(),
                " bytes, expected ", sizeof(id->internal));
  std::memcpy(id->internal, text->data(), sizeof(id->internal));
  return id;
}

} // namespace

/// A thread for each rank, as making a communicator waits for all its members.
/// One that fails tells the others by their common patience. NCCL cannot go on
/// with a communicator whose window has failed, so that all are made again,
/// without.
Result<std::string>
runtime::connectNcclThreads(const Topology &topology,
                            std::chrono::milliseconds timeLimit,
                            std::span<RankBackend> parts, bool graphs) {
  std::vector<Status> results(parts.size(), Status::success());
  std::string note;
  NcclWindows windows;
  std::vector<Joined> joined;
  for (bool again = true; again;) {
    Result<ncclUniqueId> id = makeUniqueId();
    if (!id.ok())
      return id.status();
    auto patience = std::make_shared<Patience>(timeLimit);
    joined.assign(parts.size(), {});
    runOnThreads(parts.size(), [&](uint32_t rank) {
      joined[rank] = join(topology, rank, *id, windows, patience, parts[rank]);
    });
    auto lacking = findWithoutWindow(joined);
    again = windows.allowed && lacking;
    if (!again)
      break;
    note = describeMissingWindow(*lacking, joined[*lacking].status.message());
    windows.allowed = false;
    giveUp(joined);
  }
  auto bin = std::make_shared<CommsBin>();
  for (uint32_t rank = 0; rank < parts.size(); ++rank)
    results[rank] = joined[rank].status;
  if (Status status = firstOf(results); !status.ok()) {
    giveUp(joined);
    return status;
  }
  runOnThreads(parts.size(), [&](uint32_t rank) {
    results[rank] = connect(topology, rank, std::move(joined[rank].owner), bin,
                            parts[rank], graphs);
  });
  PLAIT_RETURN_IF_ERROR(firstOf(results));
  return note;
}

/// All processes hear how it went for each, and decide alike. One that has
/// given up waiting does not ask: others are gone.
Result<std::string> runtime::connectNcclProcess(
    const Topology &topology, std::chrono::milliseconds timeLimit,
    Rendezvous &processes, RankBackend &part, bool graphs) {
  uint32_t rank = processes.place().index;
  std::string note;
  NcclWindows windows = {true, processes.place().hosts};
  while (true) {
    Result<ncclUniqueId> id = shareUniqueId(processes);
    if (!id.ok())
      return id.status();
    std::vector<Joined> mine = {join(topology, rank, *id, windows,
                                     std::make_shared<Patience>(timeLimit),
                                     part)};
    Status status = mine.front().status;
    if (status.code() == Code::TimedOut)
      return status;
    auto told = processes.exchange(describeTo(mine.front()));
    if (!told.ok() || (!windows.allowed && !status.ok())) {
      giveUp(mine);
      return status.ok() ? told.status() : status;
    }
    auto lacking =
        std::find_if(told->begin(), told->end(), [](const std::string &text) {
          return text.starts_with('w');
        });
    if (windows.allowed && lacking != told->end()) {
      giveUp(mine);
      note = describeMissingWindow(lacking - told->begin(), lacking->substr(1));
      windows.allowed = false;
      continue;
    }
    if (std::any_of(told->begin(), told->end(),
                    [](const std::string &text) { return !text.empty(); })) {
      giveUp(mine);
      return status.ok() ? failReleased() : status;
    }
    PLAIT_RETURN_IF_ERROR(connect(topology, rank, std::move(mine.front().owner),
                                  std::make_shared<CommsBin>(), part, graphs));
    return note;
  }
}
