//===- NcclCommunicator.h - Ranks with a GPU each ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_NCCLCOMMUNICATOR_H
#define PLAIT_LIB_RUNTIME_CUDA_NCCLCOMMUNICATOR_H

#include "Core/Backend.h"
#include "plait/Runtime/Rendezvous.h"

#include <span>

namespace plait::runtime {

/// Sets the communicator of every part, and with `graphs` its graph. The ranks
/// of `topology` are threads of this process and have a GPU each, on which
/// every library step has been called: a kernel that is loaded later may wait
/// for the GPU, which NCCL's keep from being idle. Returns a line for the user
/// where NCCL moves tensors in a slower way than it could.
Result<std::string> connectNcclThreads(const Topology &topology,
                                       std::chrono::milliseconds timeLimit,
                                       std::span<RankBackend> parts,
                                       bool graphs);

/// The same for one rank; the others are in `processes`, one in each.
Result<std::string> connectNcclProcess(const Topology &topology,
                                       std::chrono::milliseconds timeLimit,
                                       Rendezvous &processes, RankBackend &part,
                                       bool graphs);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_NCCLCOMMUNICATOR_H
