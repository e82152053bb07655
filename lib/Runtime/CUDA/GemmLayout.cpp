//===- GemmLayout.cpp - GEMMs as cuBLASLt sees them -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GemmLayout.h"

#include "plait/Plan/Check.h"
#include "plait/Plan/Defaults.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

namespace {

/// A batch dimension: its size and the strides of the step's A, B and C.
/// Strides are in elements; 0 for an operand that is the same in all GEMMs.
struct BatchDim {
  int64_t size, a, b, c;

  /// Whether this dimension, inside `outer`, continues it.
  bool continues(const BatchDim &outer) const {
    return outer.a == a * size && outer.b == b * size && outer.c == c * size;
  }
};

/// The batch dimensions with more than one GEMM, joined where possible.
/// Heads and sequences of attention, for example, are one batch where they lie
/// so. Joining works from the outside in, as the step lists its dimensions.
std::vector<BatchDim> batchDims(const fb::GemmStep &step) {
  std::vector<BatchDim> dims;
  for (uint32_t i = 0; i < plan::length(step.batch()); ++i) {
    BatchDim dim = {step.batch()->Get(i), step.a_batch()->Get(i),
                    step.b_batch()->Get(i), step.c_batch()->Get(i)};
    if (dim.size == 1)
      continue;
    if (dims.empty() || !dim.continues(dims.back())) {
      dims.push_back(dim);
      continue;
    }
    dim.size *= dims.back().size;
    dims.back() = dim;
  }
  return dims;
}

/// A row-major matrix of `rows` x `columns` with the given strides, seen as the
/// column-major `columns` x `rows`.
/// `leading` is the distance of what cuBLASLt calls columns, and must be at
/// least the number of its rows.
GemmMatrix matrix(fb::DType type, int64_t rows, int64_t rowStride,
                  int64_t columns, int64_t columnStride) {
  // A row of a one-row matrix may have any stride; it is never used then, but
  // must not be below the length of the row.
  if (columnStride == 1 && (rowStride >= columns || rows == 1))
    return {false, columns, rows, std::max(rowStride, columns), 0, type};
  return {true, rows, columns, std::max(columnStride, rows), 0, type};
}

/// The largest power of two up to 64 that divides all of `values`.
/// 0 is a multiple of everything, which `bits` gets right by itself.
uint32_t commonAlignment(std::initializer_list<uint64_t> values) {
  uint64_t bits = 64;
  for (uint64_t value : values)
    bits |= value;
  return static_cast<uint32_t>(bits & -bits);
}

/// A range of a dimension of the step's GEMM.
struct Range {
  int64_t begin, size;
};

/// Whether a dimension of `size` is better cut. Where `rows`, the distances of
/// the rows that run along it, are odd as well, a cut does not help.
bool isCut(int64_t size, const std::vector<int64_t> &rows) {
  constexpr int64_t vector = 8;   // 16 bytes
  constexpr int64_t least = 2048; // of less, a second call would cost as much
  auto isOdd = [](int64_t value) { return value % vector != 0; };
  return size >= least && isOdd(size) && !rows.empty() &&
         std::none_of(rows.begin(), rows.end(), isOdd);
}

/// The rest first: what it leaves in C is rounded to bf16 before the others are
/// added, and small.
std::vector<Range> cutOdd(int64_t size) {
  constexpr int64_t tile = 64;
  int64_t rest = size % tile;
  return {{size - rest, rest}, {0, size - rest}};
}

/// A part of a step, of rows `m`, columns `n` and terms `k`.
/// 1. Exchange the operands, by which cuBLASLt computes C^T.
/// 2. Make the largest batch dimension the library's own, since each of the
///    others multiplies the number of calls.
/// 3. Unroll the others to places: offsets for every combination of their
///    indices, the innermost dimension last.
/// 4. Find what alignment all matrices of all calls have in common: the
///    heuristic may then choose algorithms that load 16 bytes at once.
GemmLayout layoutPart(const fb::GemmStep &step, Range m, Range n, Range k) {
  GemmLayout layout;
  // 1.
  layout.a = matrix(step.dtype(), k.size, step.b_row(), n.size, step.b_col());
  layout.b = matrix(step.dtype(), m.size, step.a_row(), k.size, step.a_col());
  layout.c = matrix(step.c_dtype(), m.size, step.c_row(), n.size, 1);
  layout.places = {{k.begin * step.b_row() + n.begin * step.b_col(),
                    m.begin * step.a_row() + k.begin * step.a_col(),
                    m.begin * step.c_row() + n.begin}};

  // 2.
  std::vector<BatchDim> dims = batchDims(step);
  if (!dims.empty()) {
    auto largest = std::max_element(
        dims.begin(), dims.end(),
        [](const BatchDim &x, const BatchDim &y) { return x.size < y.size; });
    layout.batch = largest->size;
    layout.a.batchStride = largest->b;
    layout.b.batchStride = largest->a;
    layout.c.batchStride = largest->c;
    dims.erase(largest);
  }
  // 3.
  for (const BatchDim &dim : dims) {
    std::vector<GemmLayout::Place> outer = std::move(layout.places);
    layout.places.clear();
    for (const GemmLayout::Place &place : outer)
      for (int64_t i = 0; i < dim.size; ++i)
        layout.places.push_back(
            {place.a + i * dim.b, place.b + i * dim.a, place.c + i * dim.c});
  }

  // 4.
  uint64_t unit = plan::elementBytes(step.dtype());
  uint64_t unitC = plan::elementBytes(step.c_dtype());
  layout.alignment = commonAlignment(
      {step.a()->offset(), step.b()->offset(), step.c()->offset(),
       layout.a.batchStride * unit, layout.b.batchStride * unit,
       layout.c.batchStride * unitC});
  for (const GemmLayout::Place &place : layout.places)
    layout.alignment = commonAlignment(
        {layout.alignment, place.a * unit, place.b * unit, place.c * unitC});
  layout.epilogue = step.epilogue();
  layout.hasGeluInput = step.gelu_input() != nullptr;
  for (const fb::Ref *ref : {step.bias(), step.gelu_input()})
    if (ref)
      layout.epilogueAlignment =
          commonAlignment({layout.epilogueAlignment, ref->offset()});
  return layout;
}

} // namespace

/// Only of bf16, where tensor cores make the difference, and without an
/// epilogue, which would have to be cut as well.
std::vector<GemmLayout> runtime::layoutGemm(const fb::GemmStep &step) {
  bool mayCut =
      step.dtype() == fb::DType::BF16 && step.epilogue() == fb::Epilogue::None;
  // Of the matrices that are contiguous along a dimension, how far apart rows
  // lie.
  std::vector<int64_t> m, n = {step.c_row()}, k;
  if (step.a_col() == 1)
    k.push_back(step.a_row());
  else
    m.push_back(step.a_col());
  if (step.b_col() == 1)
    n.push_back(step.b_row());
  else
    k.push_back(step.b_col());
  auto cut = [&](int64_t size, const std::vector<int64_t> &rows) {
    return mayCut && isCut(size, rows) ? cutOdd(size)
                                       : std::vector<Range>{{0, size}};
  };
  std::vector<GemmLayout> parts;
  for (const Range &terms : cut(step.k(), k))
    for (const Range &rows : cut(step.m(), m))
      for (const Range &columns : cut(step.n(), n)) {
        parts.push_back(layoutPart(step, rows, columns, terms));
        parts.back().adds = terms.begin + terms.size < step.k();
      }
  return parts;
}
