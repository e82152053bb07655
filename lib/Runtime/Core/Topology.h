//===- Topology.h - Groups and messages of a plan ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_TOPOLOGY_H
#define PLAIT_LIB_RUNTIME_CORE_TOPOLOGY_H

#include "plait/Plan/Messages.h"
#include "plait/Plan/Ranks.h"
#include "plait/Runtime/Communicator.h"
#include "plait/Runtime/Rendezvous.h"

#include <vector>

namespace plait::runtime {

/// The ranks that perform `step` together with `rank`.
std::vector<uint32_t> membersOf(const plan::RankGrid &mesh, uint32_t rank,
                                const fb::CollectiveStep &step);

/// The id, for a rank, of message `message` (an index into the messages of the
/// plan): it exists once for every pair of ranks of the two programs.
uint32_t messageId(const plan::RankGrid &mesh, uint32_t rank, uint32_t message);

/// All groups and messages of `plan`, in an order that depends on the plan
/// alone. A pair of programs has a channel for each direction, and more where
/// it receives messages in another order than that in which they are sent.
Topology topologyOf(const fb::Plan &plan,
                    const std::vector<plan::Message> &messages);

/// The other processes with whose ranks those of `process` talk, increasing.
std::vector<uint32_t> peersOf(const Topology &topology,
                              const RankSpread &spread, uint32_t process);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_TOPOLOGY_H
