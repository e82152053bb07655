//===- MpiCommunicator.h - Ranks of several processes -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_MPI_MPICOMMUNICATOR_H
#define PLAIT_LIB_RUNTIME_MPI_MPICOMMUNICATOR_H

#include "plait/Runtime/Communicator.h"
#include "plait/Runtime/Rendezvous.h"

namespace plait::runtime {

/// The end points of the ranks of this process, which are threads, and reach
/// those of other processes by MPI. `processes` has an engine, knows how the
/// ranks are spread, and outlives them; none of them outlives a device's arena.
Result<std::vector<std::unique_ptr<Communicator>>>
createMpiCommunicators(const Topology &topology, Rendezvous &processes,
                       std::chrono::milliseconds timeLimit);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_MPI_MPICOMMUNICATOR_H
