//===- NcclComms.h - The communicators of one rank --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_NCCLCOMMS_H
#define PLAIT_LIB_RUNTIME_CUDA_NCCLCOMMS_H

#include "Core/World.h"
#include "DeviceMemory.h"
#include "NcclSplits.h"

#include <deque>
#include <map>
#include <memory>

namespace plait::runtime {

/// Which communicators get a window to the arenas of all their members.
struct NcclWindows {
  bool allowed = true;
  /// The number of each rank's host; empty: all are on one. Kernels that use a
  /// window reach no further than a host, so that groups of several have none.
  std::vector<uint32_t> hosts;

  bool areFor(const std::vector<uint32_t> &ranks) const;
};

/// NCCL's communicators of one rank: that of all ranks and one for each
/// NcclPart with this rank in it. They do not block (config.blocking): a call
/// answers ncclInProgress, and nothing else may be called before finish().
/// Owned by an NcclRank, which says who may call what when.
class NcclComms {
public:
  /// Most of what is sent and reduced is in `arena`: every communicator learns
  /// of it, so that NCCL moves it without a copy. Those of groups have at most
  /// `collectiveBlocks` thread blocks, 0: as many as NCCL likes.
  NcclComms(const Nccl &library, std::shared_ptr<CudaContext> context,
            std::shared_ptr<DeviceMemory> arena, NcclWindows windows,
            uint32_t collectiveBlocks)
      : library(library), context(std::move(context)), arena(std::move(arena)),
        windows(std::move(windows)), collectiveBlocks(collectiveBlocks) {}

  /// Returns when all ranks have called this with the same `id` and topology,
  /// or when `patience` ends; abort() must follow a failure.
  Status connect(const Topology &topology, uint32_t rank,
                 const ncclUniqueId &id, const Patience &patience);

  /// Whether connect() has failed because a window could not be made. The
  /// communicators are of no use then, and others without windows may do.
  bool lacksWindow() const { return windowFailed; }

  /// The communicator of a part, or null when this rank is not in it.
  ncclComm_t group(uint32_t index) const { return find(groups, index); }
  ncclComm_t transfers(uint32_t index) const { return find(routes, index); }

  /// Waits for what a call of `comm` has begun. `result` is its answer.
  Status finish(ncclComm_t comm, ncclResult_t result, const char *what,
                const Patience &patience) const;

  /// A failure that NCCL has noticed in the background.
  Status check() const;
  /// Makes everything end that waits inside NCCL, on the host and on the GPU.
  void abort();
  /// After a good end. Other ranks of the same process must do so at the same
  /// time, on other threads.
  void destroy();

  const Nccl &library;
  const std::shared_ptr<CudaContext> context;

private:
  Status split(const NcclSplit &parts, const Topology &topology, uint32_t rank,
               const Patience &patience);
  Status registerArena(ncclComm_t comm, bool symmetric,
                       const Patience &patience);
  void deregisterArena();

  using Map = std::map<uint32_t, ncclComm_t>;
  static ncclComm_t find(const Map &map, uint32_t index) {
    auto found = map.find(index);
    return found == map.end() ? nullptr : found->second;
  }

#ifdef PLAIT_NCCL_REGISTRATION
  /// How a communicator knows the arena: one of the two.
  struct Registration {
    ncclComm_t comm;
    void *handle;
    ncclWindow_t window;
  };
  std::deque<Registration> registrations; // NCCL writes into them later
#endif
  std::shared_ptr<DeviceMemory> arena; // outlives the registrations
  const NcclWindows windows;
  const uint32_t collectiveBlocks;
  bool windowFailed = false;
  // Those that are to know the arena, and whether by a window.
  std::vector<std::pair<ncclComm_t, bool>> registering;
  Map groups, routes; // by NcclPart::index
  // The world's first; null where it is not complete. NCCL writes into them
  // later, so that they stay where they are.
  std::deque<ncclComm_t> all;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_NCCLCOMMS_H
