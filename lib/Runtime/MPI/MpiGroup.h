//===- MpiGroup.h - Collectives between processes ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A group some of whose members are in other processes. Members of this process
// read each other's memory, as in ThreadCommunicator.cpp. What comes from
// another process comes by messages between the two members that it concerns,
// so that each member adds up contributions in the order of all members,
// wherever they are: a reduction has the bits that it has in one process. What
// several members of a process need alike (a part of an all-gather, a reduced
// slice of an all-reduce) comes once, to one of them, the part's proxy; the
// others copy it from there.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_MPI_MPIGROUP_H
#define PLAIT_LIB_RUNTIME_MPI_MPIGROUP_H

#include "Core/World.h"
#include "Engine.h"
#include "plait/Runtime/Communicator.h"
#include "plait/Runtime/Rendezvous.h"

namespace plait::runtime {

/// The operands that a member shows to the others of its process.
struct MpiOperands {
  const std::byte *input;
  std::byte *output;
};

/// The state that the ranks of this process share.
struct MpiWorld {
  MpiWorld(Rendezvous &processes, std::chrono::milliseconds timeLimit)
      : engine(*processes.engine()), spread(processes.spread()),
        process(processes.place().index), timeLimit(timeLimit),
        meetings(0, timeLimit) {}

  bool isHere(uint32_t rank) const { return spread.processOf(rank) == process; }
  /// Returns the tag of messages from a rank to another, which may be of other
  /// processes.
  uint32_t tagOf(uint32_t source, uint32_t target) const {
    auto indexOf = [&](uint32_t rank) {
      return rank - spread.firstOf(spread.processOf(rank));
    };
    return indexOf(source) * spread.largest() + indexOf(target);
  }

  /// Has to be called before memory goes that messages may be on their way to.
  void settle() {
    if (engine.isAborted())
      engine.awaitHalt();
  }

  MpiEngine &engine;
  RankSpread spread;
  uint32_t process;
  std::chrono::milliseconds timeLimit;
  World<MpiOperands, int> meetings;
};

/// The memory where a stream of a rank receives what it adds up, one collective
/// at a time.
using MpiStaging = std::vector<std::byte>;

std::unique_ptr<Group> createMpiGroup(std::shared_ptr<MpiWorld> world,
                                      std::span<const uint32_t> ranks,
                                      uint32_t rank, uint32_t stream,
                                      std::shared_ptr<MpiStaging> staging);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_MPI_MPIGROUP_H
