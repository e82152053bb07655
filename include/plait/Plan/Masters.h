//===- Masters.h - Weights in f32 beside those in bf16 ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_MASTERS_H
#define PLAIT_PLAN_MASTERS_H

#include "plait/Plan/Plan_generated.h"

namespace plait::plan {

/// Whether the copy in bf16 is all that a rank has of the weights of `shard`:
/// they lie where the copy does, and nothing updates them.
inline bool isRounded(const fb::Shard &shard) {
  return shard.compute_dtype() == fb::DType::BF16 &&
         shard.compute_weight() == shard.weight();
}

} // namespace plait::plan

#endif // PLAIT_PLAN_MASTERS_H
