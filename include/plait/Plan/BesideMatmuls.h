//===- BesideMatmuls.h - What GPUs do beside a matmul -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_BESIDEMATMULS_H
#define PLAIT_PLAN_BESIDEMATMULS_H

#include "plait/Plan/Streams.h"

#include <map>

namespace plait::plan {

/// Thread blocks of what ranks tell each other.
struct MessageBlocks {
  uint32_t collective, receive;
};

/// The thread blocks that run beside each matmul of `program`, a step, on
/// average over its calls, rounded down; those without any are left out. There
/// counts what takes as long as matmuls do: collectives that the step needs at
/// once (see isBeside()), as those of tp are cut to, and receives, which wait
/// on the GPU from when their buffer is free. Neither begins before all has
/// been computed that comes more than `ahead` operations of stream 0 before it
/// in the program. Sums of replicas take a small part of the time in which they
/// may run. `program` has passed the plan checker, and `choice` is that of a
/// GPU.
std::map<const fb::GemmStep *, uint32_t>
findBlocksBeside(const fb::Plan &plan, const fb::Program &program,
                 const StreamChoice &choice, const MessageBlocks &blocks,
                 uint32_t ahead);

} // namespace plait::plan

#endif // PLAIT_PLAN_BESIDEMATMULS_H
