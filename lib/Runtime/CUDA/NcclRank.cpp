//===- NcclRank.cpp - All that a rank has of NCCL ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NcclRank.h"

#include "Wait.h"
#include "plait/Runtime/Communicator.h"

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

Result<std::unique_ptr<NcclRank>>
NcclRank::create(const Topology &topology, uint32_t rank,
                 const ncclUniqueId &id, CudaStream &stream,
                 std::shared_ptr<DeviceMemory> arena,
                 std::shared_ptr<Patience> patience) {
  Result<const Nccl *> library = Nccl::load();
  if (!library.ok())
    return library.status();
  PLAIT_RETURN_IF_ERROR(stream.context->use());
  std::unique_ptr<NcclRank> result(
      new NcclRank(**library, stream, std::move(arena), std::move(patience)));
  PLAIT_RETURN_IF_ERROR(
      result->comms.connect(topology, rank, id, *result->patience));
  PLAIT_RETURN_IF_ERROR(result->handle(RankEvent::Connected));
  return result;
}

NcclRank::~NcclRank() {
  std::lock_guard lock(mutex);
  if (comms.context->use().ok())
    (void)handle(RankEvent::Close);
}

/// Takes the step of the table. Needs the lock.
Status NcclRank::handle(RankEvent event) {
  const RankTransition *row = findTransition(state, event);
  if (!row)
    return fail("a rank that is ", nameOf(state), " has no '", nameOf(event),
                "'");
  state = row->to;
  if (row->duties.dropsRecording)
    recording.drop();
  if (row->duties.aborts)
    comms.abort();
  if (row->duties.destroys)
    comms.destroy();
  return Status::success();
}

Status NcclRank::mayCall() {
  if (state == RankState::Stopping)
    PLAIT_RETURN_IF_ERROR(handle(RankEvent::Stop));
  return state == RankState::Aborted ? Status::failure(anotherFailed)
                                     : Status::success();
}

Status NcclRank::beginRecording() {
  std::lock_guard lock(mutex);
  PLAIT_RETURN_IF_ERROR(mayCall());
  PLAIT_RETURN_IF_ERROR(handle(RankEvent::BeginRecording));
  recorder = std::this_thread::get_id();
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
  uint32_t glances = 0;
  Status status = waitForStream(stream, [&](auto since) {
    // NCCL is asked about once in ten milliseconds.
    constexpr uint32_t rarely = 128;
    PLAIT_RETURN_IF_ERROR(patience->check(since));
    return glances++ % rarely ? Status::success() : check();
  });
  if (!status.ok())
    stop(); // or the GPU would wait for ever
  return status;
}

void NcclRank::stop() {
  // First: a call that is being waited for ends, and lets go of the lock.
  patience->abort();
  std::lock_guard lock(mutex);
  bool isElsewhere =
      (state == RankState::Recording || state == RankState::Stopping) &&
      recorder != std::this_thread::get_id();
  (void)handle(isElsewhere ? RankEvent::StopElsewhere : RankEvent::Stop);
}

void NcclRank::leave() {
  std::lock_guard lock(mutex);
  if (state == RankState::Recording || state == RankState::Stopping)
    (void)handle(RankEvent::Stop);
}
