//===- RankStates.h - States of ranks over NCCL -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Nothing here needs a GPU or its libraries. The table is also in docs/GPU.md.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_RANKSTATES_H
#define PLAIT_LIB_RUNTIME_CUDA_RANKSTATES_H

#include <string_view>

namespace plait::runtime {

enum class RankState {
  Connecting, // its communicators are being made
  Walking,    // there is no recorded step
  Recording,  // one is being recorded
  Recorded,   // there is one
  Stopping,   // it has to stop, and only the thread that records may end that
  Aborted,    // nothing is left that may be called
  Closed      // likewise, after a good end
};

enum class RankEvent {
  Connected,
  BeginRecording,
  EndRecording,
  Stop,          // a failure: of this rank, of NCCL, of time
  StopElsewhere, // of another rank, told by its thread
  Close
};

/// ncclCommAbort and ncclCommDestroy wait until no recorded step has work of a
/// communicator. A step is dropped before these are destroyed, but while they
/// are aborted (NcclRank::handle).
struct RankDuties {
  bool dropsRecording = false;
  bool aborts = false;
  bool destroys = false;
};

struct RankTransition {
  RankState from;
  RankEvent event;
  RankState to;
  RankDuties duties = {};
};

constexpr RankTransition rankTransitions[] = {
    {RankState::Connecting, RankEvent::Connected, RankState::Walking},
    {RankState::Connecting,
     RankEvent::Close,
     RankState::Aborted,
     {.aborts = true}},
    {RankState::Walking, RankEvent::BeginRecording, RankState::Recording},
    {RankState::Walking, RankEvent::Stop, RankState::Aborted, {.aborts = true}},
    {RankState::Walking,
     RankEvent::StopElsewhere,
     RankState::Aborted,
     {.aborts = true}},
    {RankState::Walking,
     RankEvent::Close,
     RankState::Closed,
     {.destroys = true}},
    {RankState::Recording, RankEvent::EndRecording, RankState::Recorded},
    {RankState::Recording,
     RankEvent::Stop,
     RankState::Aborted,
     {.dropsRecording = true, .aborts = true}},
    {RankState::Recording, RankEvent::StopElsewhere, RankState::Stopping},
    {RankState::Recording,
     RankEvent::Close,
     RankState::Aborted,
     {.dropsRecording = true, .aborts = true}},
    {RankState::Recorded,
     RankEvent::Stop,
     RankState::Aborted,
     {.dropsRecording = true, .aborts = true}},
    {RankState::Recorded,
     RankEvent::StopElsewhere,
     RankState::Aborted,
     {.dropsRecording = true, .aborts = true}},
    {RankState::Recorded,
     RankEvent::Close,
     RankState::Closed,
     {.dropsRecording = true, .destroys = true}},
    {RankState::Stopping,
     RankEvent::Stop,
     RankState::Aborted,
     {.dropsRecording = true, .aborts = true}},
    {RankState::Stopping, RankEvent::StopElsewhere, RankState::Stopping},
    {RankState::Stopping,
     RankEvent::Close,
     RankState::Aborted,
     {.dropsRecording = true, .aborts = true}},
    {RankState::Aborted, RankEvent::Stop, RankState::Aborted},
    {RankState::Aborted, RankEvent::StopElsewhere, RankState::Aborted},
    {RankState::Aborted, RankEvent::Close, RankState::Aborted},
};

/// The row of the table, or null: that does not happen in this state.
constexpr const RankTransition *findTransition(RankState from,
                                               RankEvent event) {
  for (const RankTransition &row : rankTransitions)
    if (row.from == from && row.event == event)
      return &row;
  return nullptr;
}

std::string_view nameOf(RankState state);
std::string_view nameOf(RankEvent event);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_RANKSTATES_H
