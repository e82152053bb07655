//===- NcclGroup.h - Collectives by NCCL ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_NCCLGROUP_H
#define PLAIT_LIB_RUNTIME_CUDA_NCCLGROUP_H

#include "CudaDevice.h"
#include "NcclRank.h"
#include "plait/Runtime/Communicator.h"

#include <memory>

namespace plait::runtime {

/// The group behind `comm` of `owner`, in which this rank is member `index`,
/// or, where that is null, a group of one rank. Its collectives happen in
/// stream `number` of `device`; `scratch`, which is theirs alone, has room for
/// the largest of them that must be packed.
std::unique_ptr<Group> createNcclGroup(std::shared_ptr<NcclRank> owner,
                                       ncclComm_t comm, int64_t members,
                                       int64_t index, CudaDevice &device,
                                       uint32_t number,
                                       std::shared_ptr<DeviceMemory> scratch);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_NCCLGROUP_H
