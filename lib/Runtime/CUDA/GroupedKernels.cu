//===- GroupedKernels.cu - Rows with matrices of their own ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How many rows an expert has stays on the GPU: a launch has as many blocks as
// any routing needs, each finds its tile, and those without one end. So a step
// can be recorded, and the host waits for nothing.
//
// Tiles are of one size, and the terms of a sum are added in one order: what is
// computed of a row does not depend on which others there are. bf16 goes
// through tensor cores (mma.sync, sm_80), f32 does not.
//
//===----------------------------------------------------------------------===//

#include "GroupedKernels.h"

using namespace plait::runtime;

namespace {

constexpr int kRows = groupedTileRows, kColumns = groupedTileColumns,
              kDepth = groupedTileDepth, kThreads = groupedThreads;
constexpr unsigned kWarp = 32, kAll = 0xffffffff;

/// A bf16. What is computed is f32.
struct Half {
  uint16_t bits;
};

__device__ float widen(float value) { return value; }
__device__ float widen(Half value) {
  return __uint_as_float(uint32_t(value.bits) << 16);
}

template <typename T> __device__ T narrow(float value);
template <> __device__ float narrow<float>(float value) { return value; }
template <> __device__ Half narrow<Half>(float value) {
  Half half;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
  return half;
}

template <typename Out> __device__ void put(Out &c, float value, bool add) {
  c = narrow<Out>(add ? value + widen(c) : value);
}

//===----------------------------------------------------------------------===//
// Tiles of operands
//===----------------------------------------------------------------------===//

/// Which rows of a tensor an operand is: those that `order` names, if it does,
/// each of which is one of `repeat`.
template <typename T> struct Operand {
  const T *data;
  int64_t columns;
  const int *order;
  int64_t repeat;

  __device__ const T *row(int64_t index) const {
    if (order)
      index = uint32_t(order[index]) / uint32_t(repeat);
    return data + index * columns;
  }
};

/// A tile of `Height` rows and `Width` columns, on its way from a tensor
/// through registers into shared memory. What is beyond `end` or beyond the
/// columns is zero. Steps go along the rows or, with `Down`, from row to row.
template <typename T, int Height, int Width, bool Down> class Tile {
public:
  /// 16 bytes more than a row has: 8 rows that a warp reads at once lie in all
  /// banks.
  static constexpr int kUnit = 16 / sizeof(T), kPitch = Width + kUnit;
  static constexpr int kElements = Height * kPitch;

  __device__ Tile(const Operand<T> &operand, int64_t firstRow, int64_t endRow,
                  int64_t firstColumn)
      : operand(operand), firstRow(firstRow), endRow(endRow),
        firstColumn(firstColumn) {
    auto start = reinterpret_cast<uint64_t>(operand.data);
    isWide = ((start | operand.columns * sizeof(T)) & 15) == 0;
    if (!Down)
      locate(0);
  }

  __device__ void load(int64_t step) {
    if (Down)
      locate(step);
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      int64_t column = firstColumn + columnOf(i) + (Down ? 0 : step);
      held[i] = fetch(rows[i], column);
    }
  }

  __device__ void store(T *tile) const {
#pragma unroll
    for (int i = 0; i < kUnits; ++i)
      *reinterpret_cast<uint4 *>(tile + rowOf(i) * kPitch + columnOf(i)) =
          held[i];
  }

private:
  static constexpr int kUnitsOfRow = Width / kUnit;
  static constexpr int kUnits = Height * kUnitsOfRow / kThreads;

  __device__ static int rowOf(int i) {
    return (threadIdx.x + i * kThreads) / kUnitsOfRow;
  }
  __device__ static int columnOf(int i) {
    return (threadIdx.x + i * kThreads) % kUnitsOfRow * kUnit;
  }

  __device__ void locate(int64_t step) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      int64_t row = firstRow + rowOf(i) + step;
      rows[i] = row < endRow ? operand.row(row) : nullptr;
    }
  }

  __device__ uint4 fetch(const T *row, int64_t column) const {
    uint4 unit = {0, 0, 0, 0};
    if (!row || column >= operand.columns)
      return unit;
    if (isWide)
      return *reinterpret_cast<const uint4 *>(row + column);
    T *parts = reinterpret_cast<T *>(&unit);
#pragma unroll
    for (int i = 0; i < kUnit; ++i)
      if (column + i < operand.columns)
        parts[i] = row[column + i];
    return unit;
  }

  Operand<T> operand;
  int64_t firstRow, endRow, firstColumn;
  bool isWide;
  const T *rows[kUnits];
  uint4 held[kUnits];
};

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// The sums of a tile of a result, some in each thread. An operand's tile is
/// `Turned` where its rows are not those of the result (left) or of the sum
/// (right). They are written to the row that rowOf(i) gives for row i, null
/// where it has none, and as many columns as there are.
template <typename T, bool LeftTurned, bool RightTurned> class Sums;

template <bool LeftTurned, bool RightTurned>
class Sums<float, LeftTurned, RightTurned> {
public:
  template <int LeftPitch, int RightPitch>
  __device__ void add(const float *left, const float *right) {
#pragma unroll 4
    for (int k = 0; k < kDepth; ++k) {
      float l[8], r[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        int m = row(i), n = column(i);
        l[i] = LeftTurned ? left[k * LeftPitch + m] : left[m * LeftPitch + k];
        r[i] =
            RightTurned ? right[n * RightPitch + k] : right[k * RightPitch + n];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j)
          values[i][j] = fmaf(l[i], r[j], values[i][j]);
    }
  }

  template <typename Out, typename RowOf>
  __device__ void write(RowOf rowOf, int64_t columns, bool add) const {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (Out *c = rowOf(row(i)))
#pragma unroll
        for (int j = 0; j < 8; ++j)
          if (column(j) < columns)
            put(c[column(j)], values[i][j], add);
  }

private:
  __device__ static int row(int i) { return threadIdx.x / 16 + 8 * i; }
  __device__ static int column(int j) { return threadIdx.x % 16 + 16 * j; }

  float values[8][8] = {};
};

/// Four blocks of 8 by 8 numbers, in the layout that mma.sync takes: lane l has
/// numbers 2 (l % 4) and the next of row l / 4. Lanes 8 i to 8 i + 7 say where
/// the rows of block i are; Turned blocks are transposed on the way.
template <bool Turned>
__device__ void loadBlocks(uint32_t (&blocks)[4], const Half *row) {
  auto address = uint32_t(__cvta_generic_to_shared(row));
  if (Turned)
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
        : "r"(address));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]),
                   "=r"(blocks[3])
                 : "r"(address));
}

__device__ void multiply(float (&sum)[4], const uint32_t (&left)[4],
                         uint32_t right0, uint32_t right1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]),
                 "r"(right0), "r"(right1));
}

/// Each of four warps has 32 rows and 64 columns.
template <bool LeftTurned, bool RightTurned>
class Sums<Half, LeftTurned, RightTurned> {
public:
  template <int LeftPitch, int RightPitch>
  __device__ void add(const Half *left, const Half *right) {
    int lane = threadIdx.x % kWarp, odd = lane / 8 % 2 * 8,
        high = lane / 16 * 8, in = lane % 8;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t l[2][4], r[4][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        int m = firstRow() + 16 * i;
        loadBlocks<LeftTurned>(
            l[i], LeftTurned ? left + (k + high + in) * LeftPitch + m + odd
                             : left + (m + odd + in) * LeftPitch + k + high);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        int n = firstColumn() + 16 * j;
        loadBlocks<!RightTurned>(
            r[j], RightTurned ? right + (n + high + in) * RightPitch + k + odd
                              : right + (k + odd + in) * RightPitch + n + high);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j)
          multiply(values[i][j], l[i], r[j / 2][j % 2 * 2],
                   r[j / 2][j % 2 * 2 + 1]);
    }
  }

  template <typename Out, typename RowOf>
  __device__ void write(RowOf rowOf, int64_t columns, bool add) const {
    int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (Out *c = rowOf(firstRow() + 8 * i + lane / 4))
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          int column = firstColumn() + j / 2 * 8 + lane % 4 * 2 + j % 2;
          if (column < columns)
            put(c[column], values[i / 2][j / 2][i % 2 * 2 + j % 2], add);
        }
  }

private:
  __device__ static int firstRow() { return threadIdx.x / kWarp % 2 * 32; }
  __device__ static int firstColumn() { return threadIdx.x / kWarp / 2 * 64; }

  float values[2][8][4] = {};
};

/// Adds up `depth` terms. While one step is multiplied, the next is on its way.
template <typename T, typename Left, typename Right, typename Sum>
__device__ void addSteps(Left &left, Right &right, int64_t depth, Sum &sums) {
  __shared__ __align__(16) T leftTile[Left::kElements];
  __shared__ __align__(16) T rightTile[Right::kElements];
  if (depth <= 0)
    return;
  left.load(0);
  right.load(0);
  for (int64_t step = 0; step < depth; step += kDepth) {
    __syncthreads();
    left.store(leftTile);
    right.store(rightTile);
    __syncthreads();
    if (step + kDepth < depth) {
      left.load(step + kDepth);
      right.load(step + kDepth);
    }
    sums.template add<Left::kPitch, Right::kPitch>(leftTile, rightTile);
  }
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

__device__ int64_t endOf(const int *begins, int64_t group, int64_t rows,
                         int64_t experts) {
  return group == experts ? rows : begins[group + 1];
}

/// Group g, the experts and last the rows of none, has the row tiles from
/// begins[g] / kRows + g on: as many as it needs, or some more.
template <typename In, typename Out, bool Turned>
__device__ void computeRows(Out *c, const In *a, const In *b, const int *order,
                            const int *begins, int64_t rows, int64_t repeat,
                            int64_t experts, int64_t k, int64_t n, bool add) {
  __shared__ int found;
  int64_t across = groupedTiles(n, kColumns), slot = blockIdx.x / across;
  for (int64_t group = threadIdx.x; group <= experts; group += kThreads) {
    int64_t first = begins[group] / kRows + group;
    int64_t last = endOf(begins, group, rows, experts) / kRows + group;
    if (first <= slot && slot <= last)
      found = int(group);
  }
  __syncthreads();
  int64_t group = found, end = endOf(begins, group, rows, experts);
  int64_t begin =
      begins[group] + (slot - begins[group] / kRows - group) * kRows;
  bool hasNone = group == experts;
  if (begin >= end || (hasNone && add))
    return;
  int64_t column = blockIdx.x % across * kColumns;
  Tile<In, kRows, kDepth, false> left({a, k, order, repeat}, begin, end, 0);
  const In *matrix = b + (hasNone ? 0 : group) * k * n;
  Sums<In, false, Turned> sums;
  if constexpr (Turned) {
    Tile<In, kColumns, kDepth, false> right({matrix, k, nullptr, 1}, column, n,
                                            0);
    addSteps<In>(left, right, hasNone ? 0 : k, sums);
  } else {
    Tile<In, kDepth, kColumns, true> right({matrix, n, nullptr, 1}, 0, k,
                                           column);
    addSteps<In>(left, right, hasNone ? 0 : k, sums);
  }
  auto rowOf = [&](int i) {
    return begin + i < end ? c + order[begin + i] * n + column : nullptr;
  };
  sums.template write<Out>(rowOf, n - column, add);
}

template <typename In, typename Out>
__device__ void
computeMatrices(Out *c, const In *left, const In *right, const int *order,
                const int *begins, int64_t rows, int64_t leftRepeat,
                int64_t rightRepeat, int64_t experts, int64_t leftColumns,
                int64_t rightColumns, bool add) {
  int64_t across = groupedTiles(rightColumns, kColumns),
          down = groupedTiles(leftColumns, kRows);
  int64_t expert = blockIdx.x / (across * down);
  int64_t row = blockIdx.x / across % down * kRows,
          column = blockIdx.x % across * kColumns;
  int64_t begin = begins[expert], end = endOf(begins, expert, rows, experts);
  Tile<In, kDepth, kRows, true> l({left, leftColumns, order, leftRepeat}, begin,
                                  end, row);
  Tile<In, kDepth, kColumns, true> r({right, rightColumns, order, rightRepeat},
                                     begin, end, column);
  Sums<In, true, false> sums;
  addSteps<In>(l, r, end - begin, sums);
  c += expert * leftColumns * rightColumns;
  auto rowOf = [&](int i) {
    bool isThere = row + i < leftColumns;
    return isThere ? c + (row + i) * rightColumns + column : nullptr;
  };
  sums.template write<Out>(rowOf, rightColumns - column, add);
}

} // namespace

/// A block counts the rows of its expert, and of those before it, then writes
/// the numbers of its own in their order. A warp has the rows of one stretch.
extern "C" __global__ void __launch_bounds__(groupThreads)
    plait_group_rows(int *order, int *begins, const int *ids, int64_t rows,
                     int64_t first, int64_t limit, int64_t experts) {
  constexpr int kWarps = groupThreads / kWarp;
  __shared__ int own[kWarps], before[kWarps];
  int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int64_t each = groupedTiles(rows, groupThreads) * kWarp;
  int64_t begin = warp * each, end = begin + each;
  int64_t group = blockIdx.x;
  auto groupOf = [&](int64_t row) {
    if (row >= rows)
      return experts + 1;
    int64_t id = ids[row], expert = id - first;
    bool isHere = 0 <= expert && expert < experts && (!limit || id < limit);
    return isHere ? expert : experts;
  };
  int counted = 0, lower = 0;
#pragma unroll 4
  for (int64_t row = begin + lane; row < end; row += kWarp) {
    int64_t its = groupOf(row);
    counted += __popc(__ballot_sync(kAll, its == group));
    lower += __popc(__ballot_sync(kAll, its < group));
  }
  if (lane == 0)
    own[warp] = counted, before[warp] = lower;
  __syncthreads();
  int place = 0;
  for (int other = 0; other < kWarps; ++other)
    place += before[other] + (other < warp ? own[other] : 0);
  if (threadIdx.x == 0)
    begins[group] = place;
#pragma unroll 4
  for (int64_t row = begin + lane; row < end; row += kWarp) {
    bool isOwn = groupOf(row) == group;
    unsigned all = __ballot_sync(kAll, isOwn);
    if (isOwn)
      order[place + __popc(all & ((1u << lane) - 1))] = int(row);
    place += __popc(all);
  }
}

#define PLAIT_KERNELS(suffix, In, Out)                                         \
  extern "C" __global__ void __launch_bounds__(groupedThreads)                 \
      plait_grouped_rows##suffix(                                              \
          Out *c, const In *a, const In *b, const int *order,                  \
          const int *begins, int64_t rows, int64_t repeat, int64_t experts,    \
          int64_t k, int64_t n, int64_t add) {                                 \
    computeRows<In, Out, false>(c, a, b, order, begins, rows, repeat, experts, \
                                k, n, add);                                    \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(groupedThreads)                 \
      plait_grouped_rows_transposed##suffix(                                   \
          Out *c, const In *a, const In *b, const int *order,                  \
          const int *begins, int64_t rows, int64_t repeat, int64_t experts,    \
          int64_t k, int64_t n, int64_t add) {                                 \
    computeRows<In, Out, true>(c, a, b, order, begins, rows, repeat, experts,  \
                               k, n, add);                                     \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(groupedThreads)                 \
      plait_grouped_matrices##suffix(                                          \
          Out *c, const In *left, const In *right, const int *order,           \
          const int *begins, int64_t rows, int64_t leftRepeat,                 \
          int64_t rightRepeat, int64_t experts, int64_t leftColumns,           \
          int64_t rightColumns, int64_t add) {                                 \
    computeMatrices<In, Out>(c, left, right, order, begins, rows, leftRepeat,  \
                             rightRepeat, experts, leftColumns, rightColumns,  \
                             add);                                             \
  }

PLAIT_KERNELS(_f32, float, float)
PLAIT_KERNELS(_bf16, Half, Half)
PLAIT_KERNELS(_bf16_f32, Half, float)
