//===- ChunkOrder.h - A dimension stored in zig-zag order -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Under a causal mask a query sees the keys up to itself, so ranks that have
// blocks of one size have unequal work. Zig-zag order makes it equal: the
// dimension is cut in 2n chunks, which are stored in the order
//
//   0, 2n - 1, 1, 2n - 2, …, n - 1, n
//
// and a rank, one of n, has two neighbours of them: r and 2n - 1 - r, which see
// 2n chunks of keys together, less half of their own, whichever r is (Dubey et
// al. 2024, "The Llama 3 Herd of Models", 3.3.2; Zhu, "ring-flash-attention").
//
// The compiler and the runtime count by it. The proof has arithmetic of its
// own.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_CHUNKORDER_H
#define PLAIT_SUPPORT_CHUNKORDER_H

#include <algorithm>
#include <cstdint>

namespace plait {

struct ChunkOrder {
  int64_t extent = 0;
  /// Even, and divides the extent; 0: all elements lie in their own order.
  int64_t chunks = 0;

  /// Whether there are chunks, and they are pairs of one size.
  bool hasPairs() const {
    return extent > 0 && chunks >= 2 && chunks % 2 == 0 && extent % chunks == 0;
  }

  int64_t getChunk() const { return extent / chunks; }

  /// Returns where in the dimension what is stored at `index` belongs. With
  /// pairs of chunks of h elements, the first of pair p begins at p h, and the
  /// second ends as far from the end. Past the end, where blocks have padding,
  /// it is some position all the same.
  int64_t getPosition(int64_t index) const {
    if (chunks == 0)
      return index;
    int64_t chunk = getChunk(), pair = index / (2 * chunk),
            within = index % (2 * chunk);
    return within < chunk ? pair * chunk + within
                          : extent - (pair + 2) * chunk + within;
  }

  /// Returns where what belongs at `position` is stored.
  int64_t getIndex(int64_t position) const {
    if (chunks == 0)
      return position;
    int64_t chunk = getChunk(), own = position / chunk;
    int64_t stored = std::min(2 * own, 2 * (chunks - 1 - own) + 1);
    return stored * chunk + position % chunk;
  }

  /// Counts how many elements of what is stored from `index` on lie side by
  /// side in the dimension too, up to `end`.
  int64_t getRun(int64_t index, int64_t end) const {
    if (chunks == 0)
      return end - index;
    int64_t chunk = getChunk();
    return std::min(end, (index / chunk + 1) * chunk) - index;
  }

  bool operator==(const ChunkOrder &) const = default;
};

} // namespace plait

#endif // PLAIT_SUPPORT_CHUNKORDER_H
