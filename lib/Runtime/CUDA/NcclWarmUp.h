//===- NcclWarmUp.h - First calls of collectives ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_NCCLWARMUP_H
#define PLAIT_LIB_RUNTIME_CUDA_NCCLWARMUP_H

#include "CudaDevice.h"
#include "NcclRank.h"
#include "plait/Runtime/Communicator.h"

#include <map>
#include <memory>

namespace plait::runtime {

/// The groups of one rank, by their numbers in the topology.
using NcclGroups = std::map<uint32_t, std::unique_ptr<Group>>;

/// Calls each distinct collective of a rank's program once, and waits for it;
/// all ranks do at once. NCCL connects the members of a group in the first call
/// of an algorithm, which it chooses by kind and size, allocates and registers
/// memory for it, and may have to wait for the GPU: so not while a kernel of
/// another communicator waits there for another rank. The arena has to be zero
/// on all ranks, and is afterwards.
Status callCollectives(const Topology &topology, uint32_t rank,
                       CudaDevice &device, NcclRank &owner,
                       const NcclGroups &groups);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_NCCLWARMUP_H
