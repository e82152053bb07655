//===- NcclSplits.h - Splits of NCCL communicators --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Nothing here needs a GPU or its libraries.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_NCCLSPLITS_H
#define PLAIT_LIB_RUNTIME_CUDA_NCCLSPLITS_H

#include "plait/Runtime/Communicator.h"
#include "plait/Support/CommunicatorMemory.h"

#include <cstdint>
#include <vector>

namespace plait::runtime {

/// Message routes move at most some megabytes at a time between two GPUs, and
/// wait on the GPU for their receivers: more thread blocks than these would be
/// taken from what computes. 4 fill a link between nodes, and half of NVLink.
inline constexpr int kRouteBlocks = 4;

/// The ranks of one communicator, increasing, and what it is for: group
/// `index` of the topology, or, with `transfers`, all messages from one rank to
/// another over one channel.
struct NcclPart {
  std::vector<uint32_t> ranks;
  uint32_t index;
  bool transfers;
  uint32_t source = 0; // of transfers
};

/// One division of the world: every rank is in at most one part.
using NcclSplit = std::vector<NcclPart>;

/// The divisions that make a communicator for each group and each (source,
/// target, channel), few of them, the same list on all ranks. Groups of one
/// rank need no communicator. Transfers have communicators of their own, one
/// for each direction: those of one communicator happen one after the other,
/// which must not tie a rank's sends to its receives.
std::vector<NcclSplit> splitWorld(const Topology &topology);

/// Counts what `rank` makes, and adds it to `memory`.
void addMemory(CommunicatorMemory &memory, const Topology &topology,
               uint32_t rank);

/// Returns, of each message, the NcclPart::index of the part that carries it.
std::vector<uint32_t> partOfMessages(const Topology &topology);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_NCCLSPLITS_H
