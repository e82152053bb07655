//===- NcclComms.cpp - The communicators of one rank ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NcclComms.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;

/// Whether the arenas of `ranks` are laid out alike.
static bool runSameProgram(const Topology &topology,
                           const std::vector<uint32_t> &ranks) {
  return topology.programRanks && ranks.front() / topology.programRanks ==
                                      ranks.back() / topology.programRanks;
}

Result<std::unique_ptr<NcclComms>>
NcclComms::create(const Topology &topology, uint32_t rank,
                  const ncclUniqueId &id, std::shared_ptr<CudaContext> context,
                  std::shared_ptr<DeviceMemory> arena) {
  Result<const Nccl *> library = Nccl::load();
  if (!library.ok())
    return library.status();
  PLAIT_RETURN_IF_ERROR(context->use());
  std::unique_ptr<NcclComms> result(
      new NcclComms(**library, std::move(context), std::move(arena)));
  const Nccl &nccl = **library;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t world = nullptr;
  PLAIT_RETURN_IF_ERROR(nccl.check(
      nccl.ncclCommInitRankConfig(&world, static_cast<int>(topology.ranks), id,
                                  static_cast<int>(rank), &config),
      "ncclCommInitRankConfig"));
  result->all.push_back(world);
  for (const NcclSplit &split : splitWorld(topology)) {
    auto mine =
        std::find_if(split.begin(), split.end(), [&](const NcclPart &part) {
          return std::binary_search(part.ranks.begin(), part.ranks.end(), rank);
        });
    int color = mine == split.end() ? NCCL_SPLIT_NOCOLOR
                                    : static_cast<int>(mine - split.begin());
    ncclComm_t comm = nullptr;
    PLAIT_RETURN_IF_ERROR(
        nccl.check(nccl.ncclCommSplit(world, color, static_cast<int>(rank),
                                      &comm, &config),
                   "ncclCommSplit"));
    if (mine == split.end())
      continue;
    result->all.push_back(comm);
    (mine->transfers ? result->routes : result->groups)[mine->index] = comm;
    result->registerArena(comm, runSameProgram(topology, mine->ranks));
  }
  return result;
}

/// With `symmetric` all members of `comm` have the same things at the same
/// places. Where registering fails, NCCL copies as it does without.
void NcclComms::registerArena(ncclComm_t comm, bool symmetric) {
#ifdef PLAIT_NCCL_REGISTRATION
  Registration made = {comm, nullptr, nullptr};
  std::byte *memory = arena->data();
  if (symmetric && arena->isShareable() && library.ncclCommWindowRegister &&
      library.ncclCommWindowDeregister)
    library.ncclCommWindowRegister(comm, memory, arena->bytes(), &made.window,
                                   NCCL_WIN_COLL_SYMMETRIC);
  // Where the members do not reach each other's memory, there is no window.
  if (!made.window && library.ncclCommRegister && library.ncclCommDeregister)
    library.ncclCommRegister(comm, memory, arena->bytes(), &made.handle);
  if (made.handle || made.window)
    registrations.push_back(made);
#endif
}

void NcclComms::deregisterArena() {
#ifdef PLAIT_NCCL_REGISTRATION
  for (const Registration &made : registrations)
    if (made.window)
      library.ncclCommWindowDeregister(made.comm, made.window);
    else
      library.ncclCommDeregister(made.comm, made.handle);
#endif
}

NcclComms::~NcclComms() {
  if (all.empty() || !context->use().ok())
    return;
  deregisterArena();
  // Those split off before what they were split from.
  for (auto comm = all.rbegin(); comm != all.rend(); ++comm)
    library.ncclCommDestroy(*comm);
}

Status NcclComms::check() {
  std::lock_guard lock(mutex);
  for (ncclComm_t comm : all) {
    ncclResult_t state = ncclSuccess;
    PLAIT_RETURN_IF_ERROR(library.check(
        library.ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError"));
    if (state != ncclInProgress)
      PLAIT_RETURN_IF_ERROR(library.check(state, "NCCL failed"));
  }
  return Status::success();
}

void NcclComms::abort() {
  std::lock_guard lock(mutex);
  // In a group all are told before one is taken down, which waits for the GPU,
  // where another's kernel may wait for ever (NCCL 2.22, issue 1013).
  library.ncclGroupStart();
  for (auto comm = all.rbegin(); comm != all.rend(); ++comm)
    library.ncclCommAbort(*comm);
  library.ncclGroupEnd();
  all.clear();
}
