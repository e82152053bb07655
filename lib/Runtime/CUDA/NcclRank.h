//===- NcclRank.h - All that a rank has of NCCL -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One owner of a rank's communicators and of the step that is recorded from
// them. Threads:
//
//  - The thread of the rank makes all calls but stop(). None of them waits: the
//    communicators do not block, and what they answer later is asked for here,
//    with a time limit.
//  - stop() comes from any thread. The lock lets it in between two calls; what
//    it then does, and what is left to the rank's own thread, is a table
//    (RankStates.h). Nobody calls a communicator after that.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_NCCLRANK_H
#define PLAIT_LIB_RUNTIME_CUDA_NCCLRANK_H

#include "Core/World.h"
#include "CudaGraph.h"
#include "NcclComms.h"
#include "RankStates.h"
#include "Wait.h"

#include <functional>
#include <thread>

namespace plait::runtime {

class NcclRank {
public:
  /// Returns when all ranks have called this with the same `id` and topology,
  /// or when `patience` ends. `stream` is what steps are recorded from. Sets
  /// `lacksWindow` after a failure that is NcclComms::lacksWindow().
  static Result<std::unique_ptr<NcclRank>>
  create(const Topology &topology, uint32_t rank, const ncclUniqueId &id,
         CudaStream &stream, std::shared_ptr<DeviceMemory> arena,
         const NcclWindows &windows, uint32_t collectiveBlocks,
         std::shared_ptr<Patience> patience, bool &lacksWindow);
  /// Destroys the communicators, or aborts them where something has failed.
  /// Other ranks of the same process must do so at the same time, on other
  /// threads.
  ~NcclRank();

  const Nccl &library() const { return comms.library; }
  /// The communicator of a part, or null when this rank is not in it. To be
  /// used inside call() only.
  ncclComm_t group(uint32_t index) const { return comms.group(index); }
  ncclComm_t transfers(uint32_t index) const { return comms.transfers(index); }

  /// Calls `enqueue()`, which adds work of `comm` to a stream of this rank, and
  /// returns when that is there.
  template <typename Enqueue>
  Status call(ncclComm_t comm, const char *what, Enqueue enqueue) {
    std::lock_guard lock(mutex);
    PLAIT_RETURN_IF_ERROR(mayCall());
    return patience->blame(comms.finish(comm, enqueue(), what, *patience));
  }

  /// See StepGraph.
  Status beginRecording();
  Status cutRecording();
  Status endRecording();
  Status replay();

  /// A failure that NCCL has noticed in the background.
  Status check();
  /// Returns when `isDone` says so; stops after a failure. `glance` as in
  /// waitUntil().
  Status await(const std::function<Result<bool>()> &isDone,
               std::chrono::microseconds glance = usualGlance);
  /// Returns when all work of the stream is done.
  Status awaitStream();
  /// Makes everything end that waits inside NCCL, on the host and on the GPU,
  /// and all ranks of this process that wait for this one.
  void stop();
  /// Ends a recording that is left halfway: before the stream goes.
  void leave();

private:
  NcclRank(const Nccl &library, CudaStream &stream,
           std::shared_ptr<DeviceMemory> arena, const NcclWindows &windows,
           uint32_t collectiveBlocks, std::shared_ptr<Patience> patience)
      : stream(stream), patience(std::move(patience)),
        comms(library, stream.context, std::move(arena), windows,
              collectiveBlocks),
        recording(stream) {}

  Status mayCall();
  Status handle(RankEvent event);

  CudaStream &stream;
  std::shared_ptr<Patience> patience;
  std::mutex mutex; // of all below
  RankState state = RankState::Connecting;
  std::thread::id recorder;
  NcclComms comms;
  CudaGraph recording;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_NCCLRANK_H
