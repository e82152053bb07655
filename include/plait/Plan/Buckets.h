//===- Buckets.h - Gradients reduced while others are computed --*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_BUCKETS_H
#define PLAIT_PLAN_BUCKETS_H

#include "plait/Plan/Plan_generated.h"

namespace plait::plan {

/// The least elements of a bucket of gradients that `ranks` ranks reduce: rings
/// over more ranks need more bytes to hide their latency. The rule, and the
/// numbers, of Megatron-core's DistributedDataParallelConfig.
constexpr int64_t bucketElements(uint32_t ranks) {
  int64_t perRank = 1'000'000 * int64_t(ranks), least = 40'000'000;
  return perRank > least ? perRank : least;
}

/// Cuts every all-reduce of gradients (of a function that only one Reduce
/// action calls) into buckets of `bucketElements` elements or up to twice as
/// many, and puts those first whose last element is written first. A GPU
/// executes collectives on streams of their own, each as soon as what it reads
/// is there: so the buckets of the last layers are reduced while the backward
/// pass computes the gradients of the layers before them.
///
/// All-reduces change places only within a run of neighbours over the same
/// ranks, alike on all ranks of a program. Each element is still the sum of the
/// same numbers.
void bucketReductions(fb::PlanT &plan,
                      int64_t (*elementsOf)(uint32_t ranks) = bucketElements);

} // namespace plait::plan

#endif // PLAIT_PLAN_BUCKETS_H
