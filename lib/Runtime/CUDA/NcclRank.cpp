//===- NcclRank.cpp - All that a rank has of NCCL ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rank's life with NCCL as a state machine: the table of RankStates.h says
// what an event does in a state, this file carries it out. The point of having
// one owner of communicators and recorded step is the end: the step has to be
// dropped before the communicators are destroyed and while they are aborted, a
// recording can only be ended by the thread that has begun it, and a failure
// may come from any thread.
//
//===----------------------------------------------------------------------===//

#include "NcclRank.h"

#include "plait/Runtime/Communicator.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

std::string_view runtime::nameOf(RankState state) {
  constexpr std::string_view names[] = {"connecting", "walking",  "recording",
                                        "recorded",   "stopping", "aborted",
                                        "closed"};
  return names[static_cast<int>(state)];
}

std::string_view runtime::nameOf(RankEvent event) {
  constexpr std::string_view names[] = {
      "connected", "begins recording",   "ends recording",
      "failure",   "failure of another", "end"};
  return names[static_cast<int>(event)];
}

/// The object is destroyed where connect() fails, in state Connecting, which
/// aborts whatever communicators there are.
Result<std::unique_ptr<NcclRank>>
NcclRank::create(const Topology &topology, uint32_t rank,
                 const ncclUniqueId &id, CudaStream &stream,
                 std::shared_ptr<DeviceMemory> arena,
                 const NcclWindows &windows, uint32_t collectiveBlocks,
                 std::shared_ptr<Patience> patience, bool &lacksWindow) {
  Result<const Nccl *> library = Nccl::load();
  if (!library.ok())
    return library.status();
  PLAIT_RETURN_IF_ERROR(stream.context->use());
  std::unique_ptr<NcclRank> result(
      new NcclRank(**library, stream, std::move(arena), windows,
                   collectiveBlocks, std::move(patience)));
  Status connected = result->patience->blame(
      result->comms.connect(topology, rank, id, *result->patience));
  lacksWindow = result->comms.lacksWindow();
  if (!connected.ok()) {
    // Before the destructor, by whose abort the others notice.
    result->patience->abort();
    return connected;
  }
  PLAIT_RETURN_IF_ERROR(result->handle(RankEvent::Connected));
  return result;
}

NcclRank::~NcclRank() {
  std::lock_guard lock(mutex);
  if (comms.context->use().ok())
    (void)handle(RankEvent::Close);
}

/// Has this process end without what the libraries would do at its end: on an
/// H200 that was seen to take more than ten seconds after an abort, in
/// cuDevicePrimaryCtxRelease(), while other processes used the GPU. The driver
/// takes back what a process had.
static void leaveExitToDriver() {
  auto leave = [](int status, void *) {
    std::fflush(nullptr);
    _exit(status);
  };
  // Registered after the libraries' own, and so called before them.
  [[maybe_unused]] static bool isRegistered = on_exit(leave, nullptr) == 0;
}

/// Takes the step of the table. Needs the lock.
/// The state changes first: what a duty fails at does not bring the old state
/// back, since communicators are in pieces then.
/// An abort waits until no recorded step has work of a communicator. Dropping
/// the step waits until it has run, which one that waits for a rank that is
/// gone never has, but for the abort. So the two go side by side.
Status NcclRank::handle(RankEvent event) {
  const RankTransition *row = findTransition(state, event);
  if (!row)
    return fail("a rank that is ", nameOf(state), " has no '", nameOf(event),
                "'");
  state = row->to;
  std::thread aborting;
  if (row->duties.dropsRecording)
    recording.cancel();
  if (row->duties.aborts) {
    leaveExitToDriver();
    aborting = std::thread([this] { comms.abort(); });
  }
  if (row->duties.dropsRecording)
    recording.drop();
  if (row->duties.aborts)
    aborting.join();
  if (row->duties.destroys)
    comms.destroy();
  return Status::success();
}

/// Every call of the rank's thread begins with this. Needs the lock. A rank in
/// Stopping is on its own thread here, so that it may end its recording and be
/// aborted.
Status NcclRank::mayCall() {
  if (state == RankState::Stopping)
    PLAIT_RETURN_IF_ERROR(handle(RankEvent::Stop));
  return state == RankState::Aborted ? failReleased() : Status::success();
}

/// The thread is kept, since stop() may not end a recording of another one's.
Status NcclRank::beginRecording() {
  std::lock_guard lock(mutex);
  PLAIT_RETURN_IF_ERROR(mayCall());
  PLAIT_RETURN_IF_ERROR(handle(RankEvent::BeginRecording));
  recorder = std::this_thread::get_id();
  return recording.begin();
}

Status NcclRank::cutRecording() {
  std::lock_guard lock(mutex);
  PLAIT_RETURN_IF_ERROR(mayCall());
  PLAIT_RETURN_IF_ERROR(recording.end());
  return recording.begin();
}

Status NcclRank::endRecording() {
  std::lock_guard lock(mutex);
  PLAIT_RETURN_IF_ERROR(mayCall());
  PLAIT_RETURN_IF_ERROR(handle(RankEvent::EndRecording));
  return recording.end();
}

Status NcclRank::replay() {
  std::lock_guard lock(mutex);
  PLAIT_RETURN_IF_ERROR(mayCall());
  return recording.launch();
}

Status NcclRank::check() {
  std::lock_guard lock(mutex);
  PLAIT_RETURN_IF_ERROR(mayCall());
  return comms.check();
}

Status NcclRank::awaitStream() {
  return await([this] { return stream.idle(); });
}

/// Asks the GPU, the patience and, more rarely, NCCL: an error that NCCL
/// notices in the background would otherwise show as a time limit only.
Status NcclRank::await(const std::function<Result<bool>()> &isDone,
                       std::chrono::microseconds glance) {
  uint32_t glances = 0;
  Status status = waitUntil(
      isDone,
      [&](auto since) {
        // NCCL is asked about once in ten milliseconds, or more often where
        // nobody sleeps.
        constexpr uint32_t rarely = 128;
        PLAIT_RETURN_IF_ERROR(patience->check(since));
        return glances++ % rarely ? Status::success() : check();
      },
      glance);
  status = patience->blame(status);
  if (!status.ok())
    stop(); // or the GPU would wait for ever
  return status;
}

/// May be called from any thread, any number of times. Before there are
/// communicators the table has no such event, and the abort of the patience
/// alone is what ends connect().
void NcclRank::stop() {
  // First: a call that is being waited for ends, and lets go of the lock.
  patience->abort();
  std::lock_guard lock(mutex);
  bool isElsewhere =
      (state == RankState::Recording || state == RankState::Stopping) &&
      recorder != std::this_thread::get_id();
  (void)handle(isElsewhere ? RankEvent::StopElsewhere : RankEvent::Stop);
}

/// A stream that is being recorded cannot be destroyed in an orderly way, and
/// the recording needs its stream to be ended. Called on the rank's thread.
void NcclRank::leave() {
  std::lock_guard lock(mutex);
  if (state == RankState::Recording || state == RankState::Stopping)
    (void)handle(RankEvent::Stop);
}
