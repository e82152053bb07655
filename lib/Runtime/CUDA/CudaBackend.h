//===- CudaBackend.h - Backends of executors on GPUs ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUDABACKEND_H
#define PLAIT_LIB_RUNTIME_CUDA_CUDABACKEND_H

#include "Core/Backend.h"

namespace plait::runtime {

/// All ranks as threads of this process, on one GPU or, round robin, several;
/// they talk through the GPUs' memory.
Result<Backend> createCudaThreadBackend(const fb::Plan &plan,
                                        const Topology &topology,
                                        const ExecutorOptions &options);

/// The same with a GPU for each rank, and NCCL.
Result<Backend> createNcclThreadBackend(const fb::Plan &plan,
                                        const Topology &topology,
                                        const ExecutorOptions &options);

/// The rank of this process, one of several processes, and NCCL.
Result<Backend> createNcclProcessBackend(const fb::Plan &plan,
                                         const Topology &topology,
                                         const ExecutorOptions &options);

/// "ranks 0 to 3" or "rank 2".
std::string describeRanks(std::span<const uint32_t> ranks);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUDABACKEND_H
