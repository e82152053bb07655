//===- Overlap.h - Products beside collectives ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_OVERLAP_H
#define PLAIT_PLAN_OVERLAP_H

#include "plait/Plan/Plan_generated.h"

namespace plait::plan {

/// Moves matrix products up to where a collective would leave a GPU idle:
/// between it and the first step that needs its result. A product is moved over
/// other steps only where neither uses bytes that the other writes, so that all
/// results are the same bits, and no other step is moved, so that collectives
/// stay in their order. In the backward pass of tensor parallelism this puts
/// products for weight gradients beside the sums of input gradients.
///
/// `plan` is what the checker would accept, but for fields that are not about
/// steps.
void overlapCollectives(fb::PlanT &plan);

} // namespace plait::plan

#endif // PLAIT_PLAN_OVERLAP_H
