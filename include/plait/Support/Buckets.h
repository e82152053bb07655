//===- Buckets.h - In how many parts gradients are summed -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One rule for the compiler, which cuts sums of gradients into buckets so that
// they begin while the rest is computed, and for the planner, which has to know
// how many there are.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_BUCKETS_H
#define PLAIT_SUPPORT_BUCKETS_H

#include <algorithm>
#include <cstdint>

namespace plait {

/// The least elements of a bucket of gradients that `ranks` ranks reduce. On
/// GPUs rings over more ranks need more bytes to hide their latency: the rule,
/// and the numbers, of Megatron-core's DistributedDataParallelConfig.
/// Processors send each other slices, of 64 KiB or more where 50 MB are enough
/// for that, and of no less than 25 MB: what is reduced last has nothing beside
/// it.
constexpr int64_t getBucketElements(bool isGPU, int64_t ranks) {
  constexpr int64_t element = 4; // f32
  if (isGPU)
    return std::max<int64_t>(40'000'000, 1'000'000 * ranks);
  int64_t slices = ranks * (64 << 10);
  return std::clamp<int64_t>(slices, 25'000'000, 50'000'000) / element;
}

/// Buckets that `elements` are cut into: none has less than `least` where there
/// are several.
constexpr int64_t countBuckets(int64_t elements, int64_t least) {
  return std::max<int64_t>(1, elements / least);
}

} // namespace plait

#endif // PLAIT_SUPPORT_BUCKETS_H
