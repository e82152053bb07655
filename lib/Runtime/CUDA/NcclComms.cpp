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

Result<std::unique_ptr<NcclComms>>
NcclComms::create(const Topology &topology, uint32_t rank,
                  const ncclUniqueId &id,
                  std::shared_ptr<CudaContext> context) {
  Result<const Nccl *> library = Nccl::load();
  if (!library.ok())
    return library.status();
  PLAIT_RETURN_IF_ERROR(context->use());
  std::unique_ptr<NcclComms> result(
      new NcclComms(**library, std::move(context)));
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
  }
  return result;
}

NcclComms::~NcclComms() {
  if (all.empty() || !context->use().ok())
    return;
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
  for (auto comm = all.rbegin(); comm != all.rend(); ++comm)
    library.ncclCommAbort(*comm);
  all.clear();
}
