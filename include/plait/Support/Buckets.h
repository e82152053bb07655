//===- Buckets.h - In how many parts gradients are summed -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One rule for the compiler, which lays gradients side by side in packs and
// cuts sums of them into buckets so that they begin while the rest is computed,
// and for the planner, which has to know how many there are and how large.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_BUCKETS_H
#define PLAIT_SUPPORT_BUCKETS_H

#include <algorithm>
#include <bit>
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

/// Parameters lie in a pack at multiples of so many elements; where gradients
/// are compressed, of the elements of a chunk.
constexpr int64_t kPackAlignment = 32;
constexpr int64_t alignInPack(int64_t elements, int64_t chunk = 0) {
  int64_t alignment = chunk ? chunk : kPackAlignment;
  return (elements + alignment - 1) / alignment * alignment;
}

/// A pack is a table. Its norm is summed up by rows, side by side, and then
/// over rows: with at most 4,096 columns there are enough rows for every core
/// of a GPU, and few enough that the second sum takes no time.
struct PackShape {
  int64_t rows = 0, columns = 0;
  int64_t elements() const { return rows * columns; }
};

/// Returns the table for so many elements, as wide as a share of a small pack
/// needs, of which each of `shares` ranks has as many whole rows. Where
/// gradients are compressed, rows are chunks.
constexpr PackShape getPackShape(int64_t elements, int64_t shares,
                                 int64_t chunk = 0) {
  int64_t part = (elements + shares - 1) / shares;
  int64_t fitting =
      int64_t(std::bit_ceil(uint64_t(std::max<int64_t>(part, 1))));
  int64_t columns =
      chunk ? chunk : std::clamp<int64_t>(fitting, kPackAlignment, 4096);
  int64_t rows = (elements + columns - 1) / columns;
  return {(rows + shares - 1) / shares * shares, columns};
}

} // namespace plait

#endif // PLAIT_SUPPORT_BUCKETS_H
