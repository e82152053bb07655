//===- NcclComms.cpp - The communicators of one rank ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Makes, asks and unmakes NCCL's communicators of one rank. All of them are
// non-blocking: a call answers ncclInProgress, and finish() asks for the
// outcome, so that a rank whose peers are gone gives up after the time limit
// rather than hang inside of the library. Locks, states and the order in which
// these functions may be called are the business of NcclRank.
//
//===----------------------------------------------------------------------===//

#include "NcclComms.h"

#include <algorithm>
#include <chrono>
#include <thread>

using namespace plait;
using namespace plait::runtime;

/// Whether the arenas of `ranks` are laid out alike.
/// Ranks of one program have consecutive numbers, so that the first and the
/// last one of an increasing list tell.
static bool runSameProgram(const Topology &topology,
                           const std::vector<uint32_t> &ranks) {
  return topology.programRanks && ranks.front() / topology.programRanks ==
                                      ranks.back() / topology.programRanks;
}

bool NcclWindows::areFor(const std::vector<uint32_t> &ranks) const {
  return allowed &&
         (hosts.empty() ||
          std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
            return hosts[rank] == hosts[ranks.front()];
          }));
}

/// The world's communicator first, then the splits of splitWorld(), each by all
/// ranks in the same order, as ncclCommSplit is a collective of the world.
Status NcclComms::connect(const Topology &topology, uint32_t rank,
                          const ncclUniqueId &id, const Patience &patience) {
  PLAIT_RETURN_IF_ERROR(context->use());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t &world = all.emplace_back(nullptr);
  ncclResult_t begun =
      library.ncclCommInitRankConfig(&world, static_cast<int>(topology.ranks),
                                     id, static_cast<int>(rank), &config);
  if (Status status = finish(world, begun, "ncclCommInitRankConfig", patience);
      !status.ok())
    return fail(status.code(), status.message(),
                " to make the communicator of all ranks");
  for (const NcclSplit &parts : splitWorld(topology))
    PLAIT_RETURN_IF_ERROR(split(parts, topology, rank, patience));
  // Only now: a rank that fails at it and aborts then has all communicators, so
  // that whoever waits for it in one of them hears of it.
  for (auto [comm, symmetric] : registering)
    PLAIT_RETURN_IF_ERROR(registerArena(comm, symmetric, patience));
  return Status::success();
}

/// One call of all ranks makes the communicators of all parts of `parts`: the
/// index of the part is the colour. A rank that is in none takes part without a
/// colour and gets no communicator. Order within a part is by global rank,
/// which is what NcclGroup and transfers count on for the index of a member.
Status NcclComms::split(const NcclSplit &parts, const Topology &topology,
                        uint32_t rank, const Patience &patience) {
  auto mine =
      std::find_if(parts.begin(), parts.end(), [&](const NcclPart &part) {
        return std::binary_search(part.ranks.begin(), part.ranks.end(), rank);
      });
  bool takesPart = mine != parts.end();
  // Not splitShare: kernels of communicators that share resources wait for one
  // another (deviceStream in NCCL's enqueue.cc), which ties a rank's sends to
  // its receives.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (takesPart && mine->transfers)
    config.maxCTAs = kRouteBlocks;
  else if (collectiveBlocks)
    config.maxCTAs = static_cast<int>(collectiveBlocks);
  // A deque: NCCL writes the handle when the call completes, to where it was
  // told.
  ncclComm_t &comm = all.emplace_back(nullptr);
  ncclResult_t begun = library.ncclCommSplit(
      all.front(), takesPart ? int(mine - parts.begin()) : NCCL_SPLIT_NOCOLOR,
      static_cast<int>(rank), &comm, &config);
  // The parent is what has to be asked for the outcome of a split.
  if (Status status = finish(all.front(), begun, "ncclCommSplit", patience);
      !status.ok())
    return fail(status.code(), status.message(),
                " to make the communicators of groups");
  if (!takesPart)
    return Status::success();
  (mine->transfers ? routes : groups)[mine->index] = comm;
  registering.emplace_back(comm, runSameProgram(topology, mine->ranks) &&
                                     windows.areFor(mine->ranks));
  return Status::success();
}

/// Sleeps between questions: a spinning thread would take processors from the
/// ranks of the same host. Not at once: most calls have their answer in less
/// time than the shortest sleep takes, and a walked step makes thousands.
Status NcclComms::finish(ncclComm_t comm, ncclResult_t result, const char *what,
                         const Patience &patience) const {
  constexpr std::chrono::microseconds glance(20), eager(50);
  if (result != ncclSuccess && result != ncclInProgress)
    return library.check(result, what);
  auto since = std::chrono::steady_clock::now();
  while (true) {
    ncclResult_t state = ncclSuccess;
    PLAIT_RETURN_IF_ERROR(library.check(
        library.ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError"));
    if (state != ncclInProgress)
      return library.check(state, what);
    PLAIT_RETURN_IF_ERROR(patience.check(since));
    if (std::chrono::steady_clock::now() - since < eager)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(glance);
  }
}

/// All members of `comm` have, with `symmetric`, the same things at the same
/// places, and register a window together. Where that fails, on whichever of
/// them, the communicator cannot be used any more: what to do then all ranks
/// have to agree on. Where registering without a window fails, NCCL copies as
/// it does without.
Status NcclComms::registerArena(ncclComm_t comm, bool symmetric,
                                const Patience &patience) {
#ifdef PLAIT_NCCL_REGISTRATION
  Registration &made =
      registrations.emplace_back(Registration{comm, nullptr, nullptr});
  std::byte *memory = arena->data();
  if (symmetric && arena->isShareable() && library.ncclCommWindowRegister &&
      library.ncclCommWindowDeregister) {
    ncclResult_t begun = library.ncclCommWindowRegister(
        comm, memory, arena->bytes(), &made.window, NCCL_WIN_COLL_SYMMETRIC);
    Status status = finish(comm, begun, "ncclCommWindowRegister", patience);
    // Who gave up waiting, or follows another rank, knows of no window.
    ncclResult_t state = ncclSuccess;
    windowFailed = !status.ok() && status.code() == Code::Failed &&
                   library.ncclCommGetAsyncError(comm, &state) == ncclSuccess &&
                   state != ncclRemoteError;
    PLAIT_RETURN_IF_ERROR(status);
  }
  // Where the members do not reach each other's memory, there is no window.
  if (!made.window && library.ncclCommRegister && library.ncclCommDeregister)
    // Its failure is not looked at: `handle` stays null, and NCCL copies.
    library.ncclCommRegister(comm, memory, arena->bytes(), &made.handle);
#endif
  return Status::success();
}

/// Only before an orderly end. An aborted communicator takes its registrations
/// along.
void NcclComms::deregisterArena() {
#ifdef PLAIT_NCCL_REGISTRATION
  for (const Registration &made : registrations)
    if (made.window)
      library.ncclCommWindowDeregister(made.comm, made.window);
    else if (made.handle)
      library.ncclCommDeregister(made.comm, made.handle);
#endif
}

void NcclComms::destroy() {
  deregisterArena();
  // Those split off before what they were split from.
  for (auto comm = all.rbegin(); comm != all.rend(); ++comm)
    if (*comm)
      library.ncclCommDestroy(*comm);
  all.clear();
}

/// A call in progress is no failure here: it is the business of finish().
Status NcclComms::check() const {
  for (ncclComm_t comm : all) {
    ncclResult_t state = ncclSuccess;
    if (!comm)
      continue;
    PLAIT_RETURN_IF_ERROR(library.check(
        library.ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError"));
    if (state != ncclInProgress)
      PLAIT_RETURN_IF_ERROR(library.check(state, "NCCL failed"));
  }
  return Status::success();
}

/// Clears `all`, so that a second call does nothing. The maps keep handles that
/// are gone; NcclRank lets nobody ask for them in this state.
void NcclComms::abort() {
  (void)context->use(); // a thread of another rank may have another GPU
  // In a group all are told before one is taken down, which waits for the GPU,
  // where another's kernel may wait for ever (NCCL 2.22, issue 1013).
  library.ncclGroupStart();
  for (auto comm = all.rbegin(); comm != all.rend(); ++comm)
    if (*comm)
      library.ncclCommAbort(*comm);
  library.ncclGroupEnd();
  all.clear();
}
