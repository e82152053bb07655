//===- FloatGemm.cpp - f32 GEMMs by dnnl_sgemm ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where no operand is copied, one call with all threads. Else a thread computes
// whole blocks of C, each by calls of its own.
//
//===----------------------------------------------------------------------===//

#include "FloatGemm.h"

#include "Team.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

/// Rows and columns of a block of C: multiples of those that oneDNN computes at
/// once, since it adds up what is left over in another order. At most so many
/// that a copy of usual depth is still in the last cache when it is multiplied;
/// the operand that is not copied is then read a few times only.
static constexpr int64_t kStep = 96, kWidest = 4 * kStep;
/// Longer sums, as of a vocabulary, are computed in parts: a copy is 3 MiB.
static constexpr int64_t kDeepest = 2048;

namespace {

/// An operand as dnnl_sgemm wants it: row-major, plain or transposed, with a
/// leading dimension no smaller than a row.
struct Matrix {
  const float *data;
  char transposed;
  int64_t stride;

  bool isPlain() const { return transposed == 'N'; }
};

/// Plain where its columns are contiguous and its rows do not overlap; else its
/// strides are those of the transposed one. A row of a one-column matrix may
/// have any stride below the width that the interface wants; it is never used
/// then.
Matrix describe(const float *data, int64_t rows, int64_t rowStride,
                int64_t columns, int64_t columnStride) {
  if (columnStride == 1 && (rowStride >= columns || rows == 1))
    return {data, 'N', std::max(rowStride, columns)};
  return {data, 'T', std::max(columnStride, rows)};
}

Matrix describeA(const fb::GemmStepT &shape, const float *a) {
  return describe(a, shape.m, shape.a_row, shape.k, shape.a_col);
}

Matrix describeB(const fb::GemmStepT &shape, const float *b) {
  return describe(b, shape.k, shape.b_row, shape.n, shape.b_col);
}

/// oneDNN's criterion on AVX2 for reading operands where they lie
/// (gemm_driver.cpp, nocopy_checker_avx2); others are packed.
bool isReadInPlace(const fb::GemmStepT &shape) {
  return 1.0 / double(shape.m) + 1.0 / double(shape.n) >= 0.0038;
}

/// Strides of a batch may be any; dnnl_sgemm wants one of each operand to be 1.
bool hasRows(const fb::GemmStepT &shape) {
  return (describeA(shape, nullptr).isPlain() || shape.a_row == 1) &&
         (describeB(shape, nullptr).isPlain() || shape.b_row == 1);
}

/// The block of `extent` that a thread takes at a time. Of a single GEMM every
/// thread gets one, if that is not too little.
int64_t blockOf(int64_t extent, bool copied, bool single, int64_t threads) {
  if (!copied)
    return extent;
  int64_t share = (extent + threads - 1) / threads;
  share = std::min((share + kStep - 1) / kStep * kStep, kWidest);
  return std::min(extent, single ? share : kWidest);
}

/// The sums over `depth` of a block of C. The stride of a single row is never
/// used, but must not be shorter than it.
dnnl_status_t multiply(int64_t height, int64_t width, int64_t depth, Matrix a,
                       Matrix b, float *c, int64_t stride, bool add) {
  return dnnl_sgemm(a.transposed, b.transposed, height, width, depth, 1.0f,
                    a.data, a.stride, b.data, b.stride, add ? 1.0f : 0.0f, c,
                    std::max(stride, width));
}

/// Columns [first, first + count) of `rows` rows, at `room`.
Matrix copyColumns(Matrix source, int64_t rows, int64_t first, int64_t count,
                   float *room) {
  int64_t stride = spreadRows(count);
  for (int64_t row = 0; row < rows; ++row)
    std::copy_n(source.data + row * source.stride + first, count,
                room + row * stride);
  return {room, source.transposed, stride};
}

} // namespace

/// Asks for what oneDNN will use, which its environment variables can limit.
bool FloatGemm::machineReadsInPlace() {
  // Names of instruction sets are sets of bits.
  constexpr unsigned wide = dnnl_cpu_isa_avx512_core;
  return (dnnl_get_effective_cpu_isa() & wide) != wide;
}

/// The code that reads in place reads along rows of k: a plain B and a
/// transposed A.
FloatGemm::Cut FloatGemm::cut(const fb::GemmStepT &shape) const {
  Cut cut = {};
  Matrix a = describeA(shape, nullptr), b = describeB(shape, nullptr);
  if (readsInPlace && isReadInPlace(shape) && hasRows(shape)) {
    cut.copyA = !a.isPlain() && isWorthCopying(a.stride, shape.n);
    cut.copyB = b.isPlain() && isWorthCopying(b.stride, shape.m);
  }
  cut.gemms = countGemms(shape);
  bool single = cut.gemms == 1;
  cut.height = blockOf(shape.m, cut.copyA, single, threads);
  cut.width = blockOf(shape.n, cut.copyB, single, threads);
  cut.rows = (shape.m + cut.height - 1) / cut.height;
  cut.columns = (shape.n + cut.width - 1) / cut.width;
  return cut;
}

/// Only where every thread gets a block: the others would wait.
bool FloatGemm::copies(const fb::GemmStepT &shape) const {
  Cut cut = this->cut(shape);
  return (cut.copyA || cut.copyB) && cut.tasks() >= threads;
}

void FloatGemm::prepare(const fb::GemmStepT &shape) {
  if (!copies(shape))
    return;
  Cut cut = this->cut(shape);
  int64_t depth = std::min(shape.k, kDeepest);
  int64_t floats = depth * ((cut.copyA ? spreadRows(cut.height) : 0) +
                            (cut.copyB ? spreadRows(cut.width) : 0));
  rooms.resize(threads);
  for (std::vector<Line> &room : rooms)
    room.resize(std::max<size_t>(room.size(), floats / kLineFloats));
}

/// One block of C, in parts along k: copies of what it needs of A and B, and
/// their product.
dnnl_status_t FloatGemm::multiplyBlock(const fb::GemmStepT &shape,
                                       const Cut &cut, const Operands &operands,
                                       int64_t task, float *room) {
  GemmOffsets at = offsetsOf(shape, task / (cut.rows * cut.columns));
  int64_t m = task / cut.columns % cut.rows * cut.height;
  int64_t n = task % cut.columns * cut.width;
  int64_t height = std::min(cut.height, shape.m - m);
  int64_t width = std::min(cut.width, shape.n - n);
  float *c = operands.c + at.c + m * shape.c_row + n;
  dnnl_status_t status = dnnl_success;
  for (int64_t k = 0; k < shape.k && status == dnnl_success; k += kDeepest) {
    int64_t depth = std::min(kDeepest, shape.k - k);
    Matrix a = describeA(shape, operands.a + at.a + k * shape.a_col);
    Matrix b = describeB(shape, operands.b + at.b + k * shape.b_row);
    float *free = room;
    if (cut.copyA) {
      a = copyColumns(a, depth, m, height, free);
      free += depth * a.stride;
    }
    if (cut.copyB)
      b = copyColumns(b, depth, n, width, free);
    bool add = operands.add || k > 0;
    status = multiply(height, width, depth, a, b, c, shape.c_row, add);
  }
  return status;
}

/// Parts are cut here and not by parallelFor(), since each needs a room of its
/// own. Inside of its loop oneDNN takes no other threads.
Status FloatGemm::run(const fb::GemmStepT &shape, const float *a,
                      const float *b, float *c, bool add) {
  if (!copies(shape))
    return checkDnnl(multiply(shape.m, shape.n, shape.k, describeA(shape, a),
                              describeB(shape, b), c, shape.c_row, add));
  Cut cut = this->cut(shape);
  Operands operands = {a, b, c, add};
  int64_t parts = threads, tasks = cut.tasks();
  std::vector<dnnl_status_t> results(parts, dnnl_success);
  parallelFor(threads, parts, 1, [&](int64_t from, int64_t to) {
    for (int64_t part = from; part < to; ++part)
      for (int64_t task = tasks * part / parts;
           task < tasks * (part + 1) / parts && results[part] == dnnl_success;
           ++task)
        results[part] = multiplyBlock(shape, cut, operands, task,
                                      rooms[part].data()->floats);
  });
  for (dnnl_status_t result : results)
    PLAIT_RETURN_IF_ERROR(checkDnnl(result));
  return Status::success();
}
