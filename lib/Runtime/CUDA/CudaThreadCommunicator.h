//===- CudaThreadCommunicator.h - Ranks that share GPUs ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUDATHREADCOMMUNICATOR_H
#define PLAIT_LIB_RUNTIME_CUDA_CUDATHREADCOMMUNICATOR_H

#include "Core/Backend.h"
#include "CudaDevice.h"

#include <memory>
#include <vector>

namespace plait::runtime {

/// Sets the communicator of every part, and with `graphs` its graph: all ranks
/// of `topology` are threads of this process, on GPUs that reach each other's
/// memory. The host's threads tell each other what they have enqueued; the
/// GPUs wait for each other by events. Collectives have at most
/// maxCollectiveMembers members.
Status connectCudaThreads(const Topology &topology,
                          std::chrono::milliseconds timeLimit,
                          std::span<RankBackend> parts, bool graphs);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUDATHREADCOMMUNICATOR_H
