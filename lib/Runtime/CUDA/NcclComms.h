//===- NcclComms.h - The communicators of one rank --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_NCCLCOMMS_H
#define PLAIT_LIB_RUNTIME_CUDA_NCCLCOMMS_H

#include "DeviceMemory.h"
#include "NcclSplits.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace plait::runtime {

/// NCCL's communicators of one rank: that of all ranks and one for each
/// NcclPart with this rank in it.
class NcclComms {
public:
  /// Returns when all ranks have called this with the same `id` and topology.
  /// What is sent and reduced is mostly in `arena`: every communicator learns
  /// of it, so that NCCL moves it without a copy.
  static Result<std::unique_ptr<NcclComms>>
  create(const Topology &topology, uint32_t rank, const ncclUniqueId &id,
         std::shared_ptr<CudaContext> context,
         std::shared_ptr<DeviceMemory> arena);
  /// Destroys them. Other ranks of the same process must do so at the same
  /// time, on other threads.
  ~NcclComms();

  /// The communicator of a part, or null when this rank is not in it.
  ncclComm_t group(uint32_t index) const { return find(groups, index); }
  ncclComm_t transfers(uint32_t index) const { return find(routes, index); }

  /// A failure that NCCL has noticed in the background.
  Status check();
  /// Makes everything that waits inside NCCL, on the host and on the GPU, end.
  /// May be called from any thread; nothing may be enqueued afterwards.
  void abort();

  const Nccl &library;
  const std::shared_ptr<CudaContext> context;

private:
  NcclComms(const Nccl &library, std::shared_ptr<CudaContext> context,
            std::shared_ptr<DeviceMemory> arena)
      : library(library), context(std::move(context)), arena(std::move(arena)) {
  }

  void registerArena(ncclComm_t comm, bool symmetric);
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
  std::vector<Registration> registrations;
#endif
  std::shared_ptr<DeviceMemory> arena; // outlives the registrations
  Map groups, routes;                  // by NcclPart::index
  std::mutex mutex;                    // of `all`
  std::vector<ncclComm_t> all;         // the world's first; empty when aborted
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_NCCLCOMMS_H
