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
#include "plait/Support/Status.h"

#include <cstdint>

namespace plait::plan {

/// Sizes and strides make sense, rows do not overlap, and every query of every
/// rank of `mesh` is one of the keys' positions. Where the tensors are is not
/// looked at.
Status checkAttention(const Mesh &mesh, const fb::AttentionStep &step);

/// Whether GPUs of `architecture` (80 for sm_80) compute attention of this kind
/// in one step, forward and backward; fails with what is in the way.
Status checkGpuAttention(fb::DType dtype, int64_t queries, int64_t headSize,
                         int architecture);

/// An upper bound of the device memory, in bytes, that a GPU of `architecture`
/// or later needs to compute `step`, beside its tensors. It grows with the
/// square of the sequence for a `deterministic` backward step before sm_100,
/// else with the sequence.
uint64_t gpuAttentionWorkspace(const fb::AttentionStepT &step,
                               int architecture);

} // namespace plait::plan

#endif // PLAIT_PLAN_ATTENTION_H
