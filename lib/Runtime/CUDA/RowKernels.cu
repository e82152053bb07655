//===- RowKernels.cu - Rows of experts among members ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows are copied, never added up, and each is written once: no order matters.
// Lists are in the order of rows, which both ends of a message count by.
//
//===----------------------------------------------------------------------===//

#include "RowKernels.h"

using namespace plait::runtime;

namespace {

constexpr int kWarp = threadsOfRow;
constexpr unsigned kAll = 0xffffffff;

struct Extents {
  int64_t members, index, rows, choices, experts, scatters, bytes;

  /// Whether `row` of the block that is concerned goes from `source` to
  /// `target`.
  __device__ bool goes(const int *ids, int64_t source, int64_t target,
                       int64_t row) const {
    int64_t block = scatters ? target : source;
    int64_t first = (scatters ? source : target) * experts;
    const int *own = ids + (block * rows + row) * choices;
    for (int64_t choice = 0; choice < choices; ++choice) {
      int64_t expert = own[choice] - first;
      if (0 <= expert && expert < experts)
        return true;
    }
    return false;
  }
  __device__ int64_t placeIn(int64_t target, int64_t row) const {
    return (scatters ? target * rows + row : row) * bytes;
  }
  __device__ int64_t placeOut(int64_t source, int64_t row) const {
    return (scatters ? row : source * rows + row) * bytes;
  }
};

template <typename Unit>
__device__ void copyUnits(char *to, const char *from, int64_t bytes) {
  for (int64_t i = threadIdx.x % kWarp; i < bytes / int64_t(sizeof(Unit));
       i += kWarp)
    reinterpret_cast<Unit *>(to)[i] =
        from ? reinterpret_cast<const Unit *>(from)[i] : Unit();
}

/// All lanes of a warp together; zeros from nowhere. Elements have 2 or 4 bytes.
__device__ void copyRow(char *to, const char *from, int64_t bytes) {
  uint64_t places = reinterpret_cast<uint64_t>(to) |
                    reinterpret_cast<uint64_t>(from) | uint64_t(bytes);
  if (places % sizeof(uint4) == 0)
    copyUnits<uint4>(to, from, bytes);
  else if (places % sizeof(uint32_t) == 0)
    copyUnits<uint32_t>(to, from, bytes);
  else
    copyUnits<uint16_t>(to, from, bytes);
}

/// The number of the row that this warp looks at, which may be beyond the last.
__device__ int64_t rowOfWarp() {
  return int64_t(blockIdx.x) * (rowThreads / kWarp) + threadIdx.x / kWarp;
}

} // namespace

#define PLAIT_EXTENTS                                                          \
  int64_t members, int64_t index, int64_t rows, int64_t choices,               \
      int64_t experts, int64_t scatters, int64_t bytes
#define PLAIT_EXTENTS_GIVEN                                                    \
  { members, index, rows, choices, experts, scatters, bytes }

/// Looks, in a scatter, for any member that the row comes from.
extern "C" __global__ void __launch_bounds__(rowThreads)
    plait_clear_rows(char *out, const int *ids, PLAIT_EXTENTS) {
  Extents extents = PLAIT_EXTENTS_GIVEN;
  int64_t place = rowOfWarp();
  if (place >= (scatters ? rows : members * rows))
    return;
  int64_t row = place % rows;
  int64_t source = scatters ? 0 : place / rows;
  int64_t end = scatters ? members : source + 1;
  while (source < end && !extents.goes(ids, source, index, row))
    ++source;
  if (source == end)
    copyRow(out + place * bytes, nullptr, bytes);
}

extern "C" __global__ void __launch_bounds__(rowThreads)
    plait_take_rows(char *out, const char *in, const int *ids, int64_t source,
                    PLAIT_EXTENTS) {
  Extents extents = PLAIT_EXTENTS_GIVEN;
  int64_t row = rowOfWarp();
  if (row < rows && extents.goes(ids, source, index, row))
    copyRow(out + extents.placeOut(source, row),
            in + extents.placeIn(index, row), bytes);
}

/// A block makes one list: counts its rows, a warp those of one stretch, then
/// writes their numbers behind those of the warps before it.
extern "C" __global__ void __launch_bounds__(listThreads)
    plait_list_rows(int *lists, int *counts, const int *ids, PLAIT_EXTENTS) {
  Extents extents = PLAIT_EXTENTS_GIVEN;
  constexpr int kWarps = listThreads / kWarp;
  __shared__ int own[kWarps];
  int64_t list = blockIdx.x, member = list % members;
  int64_t source = list < members ? index : member;
  int64_t target = list < members ? member : index;
  int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int64_t each = (rows + listThreads - 1) / listThreads * kWarp;
  int64_t begin = warp * each, end = begin + each;
  auto isListed = [&](int64_t row) {
    return row < rows && extents.goes(ids, source, target, row);
  };
  int counted = 0;
  for (int64_t row = begin + lane; row < end; row += kWarp)
    counted += __popc(__ballot_sync(kAll, isListed(row)));
  if (lane == 0)
    own[warp] = counted;
  __syncthreads();
  int place = 0, all = 0;
  for (int other = 0; other < kWarps; ++other) {
    place += other < warp ? own[other] : 0;
    all += own[other];
  }
  if (threadIdx.x == 0)
    counts[list] = all;
  for (int64_t row = begin + lane; row < end; row += kWarp) {
    bool listed = isListed(row);
    unsigned together = __ballot_sync(kAll, listed);
    if (listed)
      lists[list * rows + place + __popc(together & ((1u << lane) - 1))] =
          int(row);
    place += __popc(together);
  }
}

extern "C" __global__ void __launch_bounds__(rowThreads)
    plait_pack_rows(char *packed, const char *in, const int *lists,
                    const int *counts, int64_t first, int64_t most,
                    PLAIT_EXTENTS) {
  Extents extents = PLAIT_EXTENTS_GIVEN;
  int64_t place = rowOfWarp(), member = place / most;
  int64_t number = first + place % most;
  if (member < members && member != index && number < counts[member])
    copyRow(packed + place * bytes,
            in + extents.placeIn(member, lists[member * rows + number]), bytes);
}

extern "C" __global__ void __launch_bounds__(rowThreads)
    plait_unpack_rows(char *out, const char *packed, const int *lists,
                      const int *counts, int64_t first, int64_t most,
                      PLAIT_EXTENTS) {
  Extents extents = PLAIT_EXTENTS_GIVEN;
  int64_t place = rowOfWarp(), member = place / most;
  int64_t number = first + place % most, list = members + member;
  if (member < members && member != index && number < counts[list])
    copyRow(out + extents.placeOut(member, lists[list * rows + number]),
            packed + place * bytes, bytes);
}
