//===- Attention.h - Attention in one step ----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What can be known of an AttentionStep without the library that computes it.
// On GPUs that is cuDNN 9. The limits below are those of its front end
// (node/scaled_dot_product_flash_attention.h), forward and backward together;
// test/Unit/Runtime/CudnnTest.cpp asks the library itself.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_ATTENTION_H
#define PLAIT_PLAN_ATTENTION_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Plan/Ranks.h"
#include "plait/Support/AttentionTraits.h"
#include "plait/Support/ChunkOrder.h"
#include "plait/Support/Status.h"

#include <cstdint>

namespace plait::plan {

/// Sizes and strides make sense, rows do not overlap, and every query of every
/// rank of `mesh` is one of the keys' positions. Where the tensors are is not
/// looked at.
Status checkAttention(const RankGrid &mesh, const fb::AttentionStep &step);

/// Says which variants of attention a step is.
AttentionTraits traitsOf(const fb::AttentionStep &step);

/// Whether GPUs of `architecture` (80 for sm_80) compute attention of this kind
/// in one step, forward and backward; fails with what is in the way.
Status checkGpuAttention(fb::DType dtype, int64_t queries, int64_t headSize,
                         int architecture);

/// The same of a rank's `queries` in zig-zag order, which has chunks, with
/// `heads` of all sequences: they are two pieces, each a step for the library
/// that checkGpuAttention() has to accept.
Status checkGpuChunks(const ChunkOrder &order, int64_t queries, int64_t heads);

/// The bytes of what such a step adds to the gradient of its keys, or of its
/// values, from a piece that sees so many positions.
uint64_t attentionTermBytes(const fb::AttentionStepT &step, int64_t positions);

/// The bytes of the statistics of such a step, one piece's behind the other's.
uint64_t attentionStatsBytes(const fb::AttentionStepT &step);

/// An upper bound of the device memory, in bytes, that a GPU of `architecture`
/// or later needs to compute `step`, beside its tensors. It grows with the
/// square of the sequence for a `deterministic` backward step before sm_100,
/// else with the sequence.
uint64_t gpuAttentionWorkspace(const fb::AttentionStepT &step,
                               int architecture);

} // namespace plait::plan

#endif // PLAIT_PLAN_ATTENTION_H
