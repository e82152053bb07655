//===- GemmLayoutTest.cpp - GEMMs as cuBLASLt sees them -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Multiplies by what layoutGemm says, by the rules of cuBLASLt's documentation,
// and compares with the plan's own definition of a GEMM.
//
//===----------------------------------------------------------------------===//

#include "CUDA/GemmLayout.h"

#include "plait/Plan/Check.h"

#include <gtest/gtest.h>
#include <numeric>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

namespace {

struct Case {
  const char *name;
  fb::GemmStepT step;
};

fb::GemmStepT gemm(int64_t m, int64_t n, int64_t k, bool transposeA,
                   bool transposeB) {
  fb::GemmStepT step;
  step.m = m, step.n = n, step.k = k;
  step.a_row = transposeA ? 1 : k + 2, step.a_col = transposeA ? m + 1 : 1;
  step.b_row = transposeB ? 1 : n + 3, step.b_col = transposeB ? k + 1 : 1;
  step.c_row = n + 1;
  return step;
}

fb::GemmStepT batched(fb::GemmStepT step, std::vector<int64_t> sizes,
                      std::vector<int64_t> a, std::vector<int64_t> b,
                      std::vector<int64_t> c) {
  step.batch = std::move(sizes);
  step.a_batch = std::move(a);
  step.b_batch = std::move(b);
  step.c_batch = std::move(c);
  return step;
}

/// By Plan.fbs. Without the batch dimensions from `dim` on.
void multiply(const fb::GemmStepT &step, const float *a, const float *b,
              float *c, size_t dim = 0) {
  if (dim < step.batch.size()) {
    for (int64_t i = 0; i < step.batch[dim]; ++i)
      multiply(step, a + i * step.a_batch[dim], b + i * step.b_batch[dim],
               c + i * step.c_batch[dim], dim + 1);
    return;
  }
  for (int64_t i = 0; i < step.m; ++i)
    for (int64_t j = 0; j < step.n; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < step.k; ++k)
        sum += a[i * step.a_row + k * step.a_col] *
               b[k * step.b_row + j * step.b_col];
      c[i * step.c_row + j] = sum;
    }
}

/// Element (row, column) of op(matrix), column-major.
float element(const GemmMatrix &matrix, const float *data, int64_t row,
              int64_t column) {
  if (matrix.transposed)
    std::swap(row, column);
  EXPECT_LT(row, matrix.rows);
  EXPECT_LT(column, matrix.columns);
  return data[column * matrix.leading + row];
}

/// By the documentation of cublasLtMatmul: A is the step's B. `c` is
/// overwritten by what does not add to it.
void multiply(const GemmLayout &layout, const float *a, const float *b,
              float *c) {
  int64_t inner = layout.a.transposed ? layout.a.rows : layout.a.columns;
  EXPECT_GE(layout.a.leading, layout.a.rows);
  EXPECT_GE(layout.b.leading, layout.b.rows);
  EXPECT_GE(layout.c.leading, layout.c.rows);
  for (const GemmLayout::Place &place : layout.places)
    for (int64_t i = 0; i < layout.batch; ++i)
      for (int64_t column = 0; column < layout.c.columns; ++column)
        for (int64_t row = 0; row < layout.c.rows; ++row) {
          float sum = 0;
          for (int64_t k = 0; k < inner; ++k)
            sum += element(layout.a, a + place.a + i * layout.a.batchStride,
                           row, k) *
                   element(layout.b, b + place.b + i * layout.b.batchStride, k,
                           column);
          float &result = c[place.c + i * layout.c.batchStride +
                            column * layout.c.leading + row];
          result = layout.adds ? result + sum : sum;
        }
}

std::vector<GemmLayout> layouts(fb::GemmStepT step) {
  for (auto *ref : {&step.a, &step.b, &step.c})
    if (!*ref)
      *ref = std::make_unique<fb::Ref>(0, -1);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::GemmStep::Pack(builder, &step));
  return layoutGemm(
      *flatbuffers::GetRoot<fb::GemmStep>(builder.GetBufferPointer()));
}

GemmLayout layout(fb::GemmStepT step) {
  std::vector<GemmLayout> parts = layouts(std::move(step));
  EXPECT_EQ(parts.size(), 1u);
  return parts.front();
}

class GemmLayoutTest : public ::testing::TestWithParam<Case> {};

TEST_P(GemmLayoutTest, IsTheSameGemm) {
  const fb::GemmStepT &step = GetParam().step;
  std::vector<float> a(4096), b(4096), expected(4096, -1), found(4096, -1);
  // Small integers: every order of addition gives the same sum.
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = float(i * 7 % 11), b[i] = float(i * 5 % 13);
  multiply(step, a.data(), b.data(), expected.data());
  multiply(layout(step), b.data(), a.data(), found.data());
  EXPECT_EQ(found, expected);
}

INSTANTIATE_TEST_SUITE_P(
    Gemms, GemmLayoutTest,
    ::testing::Values(
        Case{"Plain", gemm(3, 5, 4, false, false)},
        Case{"TransposedA", gemm(3, 5, 4, true, false)},
        Case{"TransposedB", gemm(3, 5, 4, false, true)},
        Case{"TransposedBoth", gemm(3, 5, 4, true, true)},
        Case{"OneRow", gemm(1, 5, 4, false, false)},
        Case{"OneColumn", gemm(3, 1, 4, false, false)},
        Case{"OneTerm", gemm(3, 5, 1, false, true)},
        Case{"OneTermTransposed", gemm(3, 5, 1, true, false)},
        Case{"Batch",
             batched(gemm(2, 3, 4, false, true), {5}, {20}, {24}, {10})},
        Case{"BroadcastB",
             batched(gemm(2, 3, 4, false, false), {5}, {20}, {0}, {10})},
        Case{"BatchesThatJoin", batched(gemm(2, 3, 4, false, false), {3, 5},
                                        {100, 20}, {150, 30}, {50, 10})},
        // Heads of attention: rows of all heads side by side.
        Case{"Heads", batched(gemm(2, 3, 4, false, true), {2, 3}, {300, 8},
                              {400, 24}, {60, 20})},
        Case{"ThreeBatches", batched(gemm(2, 3, 4, true, false), {2, 1, 3},
                                     {400, 9, 40}, {300, 9, 0}, {90, 9, 30})}),
    [](const auto &info) { return std::string(info.param.name); });

TEST(GemmBatchTest, JoinsBatchesThatFollowEachOther) {
  GemmLayout joined = layout(batched(gemm(2, 3, 4, false, false), {3, 5},
                                     {100, 20}, {150, 30}, {50, 10}));
  EXPECT_EQ(joined.batch, 15);
  EXPECT_EQ(joined.places.size(), 1u);
  // The larger of two that do not join is cuBLASLt's batch.
  GemmLayout heads = layout(batched(gemm(2, 3, 4, false, true), {2, 3},
                                    {300, 8}, {400, 24}, {60, 20}));
  EXPECT_EQ(heads.batch, 3);
  EXPECT_EQ(heads.places,
            (std::vector<GemmLayout::Place>{{0, 0, 0}, {400, 300, 60}}));
}

TEST(GemmAlignmentTest, PromisesTheAlignmentThatAllMatricesHave) {
  fb::GemmStepT step = gemm(16, 16, 16, false, false);
  EXPECT_EQ(layout(step).alignment, 64u);
  step.b = std::make_unique<fb::Ref>(16, 0);
  EXPECT_EQ(layout(step).alignment, 16u);
  step.c = std::make_unique<fb::Ref>(4, 0);
  EXPECT_EQ(layout(step).alignment, 4u);
  EXPECT_EQ(layout(batched(gemm(2, 3, 4, false, false), {5}, {18}, {64}, {64}))
                .alignment,
            8u);
  // Of halves: 36 bytes; the numbers of C are counted in its own type.
  fb::GemmStepT halves =
      batched(gemm(2, 3, 4, false, false), {5}, {18}, {64}, {64});
  halves.dtype = fb::DType::BF16;
  EXPECT_EQ(layout(halves).alignment, 4u);
  halves.a_batch = {32}, halves.c_batch = {8};
  EXPECT_EQ(layout(halves).alignment, 32u);
  halves.c_dtype = fb::DType::BF16;
  EXPECT_EQ(layout(halves).alignment, 16u);
}

TEST(GemmAlignmentTest, TellsThatOfEpiloguesApart) {
  fb::GemmStepT step = gemm(16, 16, 16, false, false);
  EXPECT_EQ(layout(step).epilogueAlignment, 64u);
  step.epilogue = fb::Epilogue::BiasGelu;
  step.bias = std::make_unique<fb::Ref>(1024 + 16, 0);
  EXPECT_EQ(layout(step).epilogueAlignment, 16u);
  EXPECT_EQ(layout(step).alignment, 64u);
  EXPECT_FALSE(layout(step).hasGeluInput);
  step.gelu_input = std::make_unique<fb::Ref>(4, 0);
  EXPECT_EQ(layout(step).epilogueAlignment, 4u);
  EXPECT_TRUE(layout(step).hasGeluInput);
}

/// Of bf16, in rows at multiples of 8 elements.
fb::GemmStepT halves(int64_t m, int64_t n, int64_t k, bool transposeA,
                     bool transposeB) {
  fb::GemmStepT step = gemm(m, n, k, transposeA, transposeB);
  step.dtype = step.c_dtype = fb::DType::BF16;
  auto lengthen = [](int64_t row) { return (row + 7) / 8 * 8; };
  for (int64_t *row :
       {&step.a_row, &step.a_col, &step.b_row, &step.b_col, &step.c_row})
    if (*row != 1)
      *row = lengthen(*row);
  return step;
}

/// Sizes of the parts, m x n x k.
std::string cutsOf(const fb::GemmStepT &step) {
  std::string text;
  for (const GemmLayout &part : layouts(step))
    text += (text.empty() ? "" : ", ") + std::to_string(part.c.columns) + "x" +
            std::to_string(part.c.rows) + "x" +
            std::to_string(part.b.transposed ? part.b.columns : part.b.rows) +
            (part.adds ? "+" : "");
  return text;
}

/// Sizes along which bf16 is contiguous are cut where they are odd.
TEST(GemmCutTest, CutsOddSizes) {
  // The three GEMMs of a vocabulary: logits, their input's gradient, that of
  // the table.
  EXPECT_EQ(cutsOf(halves(4, 2051, 5, false, true)), "4x3x5, 4x2048x5");
  EXPECT_EQ(cutsOf(halves(4, 5, 2051, false, false)), "4x5x3, 4x5x2048+");
  EXPECT_EQ(cutsOf(halves(2051, 5, 4, true, false)), "3x5x4, 2048x5x4");
  EXPECT_EQ(cutsOf(halves(4, 2051, 2053, false, false)),
            "4x3x5, 4x2048x5, 4x3x2048+, 4x2048x2048+");
}

TEST(GemmCutTest, LeavesAloneWhatACutDoesNotHelp) {
  EXPECT_EQ(cutsOf(halves(4, 2047, 5, false, true)), "4x2047x5"); // small
  EXPECT_EQ(cutsOf(halves(4, 2056, 5, false, true)), "4x2056x5"); // even
  // Nothing is contiguous along the rows of A, or the terms.
  EXPECT_EQ(cutsOf(halves(2051, 8, 8, false, true)), "2051x8x8");
  EXPECT_EQ(cutsOf(halves(8, 8, 2051, true, false)), "8x8x2051");
  fb::GemmStepT odd = halves(4, 2051, 5, false, true);
  odd.c_row = 2051;
  EXPECT_EQ(cutsOf(odd), "4x2051x5");
  fb::GemmStepT wide = halves(4, 2051, 5, false, true);
  wide.dtype = wide.c_dtype = fb::DType::F32;
  EXPECT_EQ(cutsOf(wide), "4x2051x5");
  fb::GemmStepT biased = halves(4, 2051, 5, false, true);
  biased.epilogue = fb::Epilogue::Bias;
  biased.bias = std::make_unique<fb::Ref>(0, -1);
  EXPECT_EQ(cutsOf(biased), "4x2051x5");
}

TEST(GemmCutTest, PartsAreTheSameGemm) {
  for (const fb::GemmStepT &step :
       {halves(4, 2051, 5, false, true), halves(4, 5, 2051, false, false),
        halves(2051, 5, 4, true, false), halves(3, 2051, 2053, false, false),
        batched(halves(2, 2051, 3, false, true), {2}, {16}, {2051 * 8},
                {2 * 2056})}) {
    std::vector<float> a(1 << 15), b(1 << 23), expected(1 << 15, -1),
        found(1 << 15, -1);
    for (size_t i = 0; i < a.size(); ++i)
      a[i] = float(i * 7 % 11);
    for (size_t i = 0; i < b.size(); ++i)
      b[i] = float(i * 5 % 3);
    multiply(step, a.data(), b.data(), expected.data());
    ASSERT_GT(layouts(step).size(), 1u);
    for (const GemmLayout &part : layouts(step))
      multiply(part, b.data(), a.data(), found.data());
    EXPECT_EQ(found, expected) << cutsOf(step);
  }
}

/// Nothing is counted in 32 bits: logits of 64 sequences, and a batch of them.
TEST(GemmLayout, CountsBeyond32Bits) {
  fb::GemmStepT step = gemm(65536, 50257, 768, false, true);
  step.c_row = 50257;
  step = batched(std::move(step), {3, 2}, {0, 0}, {0, 0},
                 {2 * int64_t(65536) * 50257, int64_t(65536) * 50257});
  GemmLayout found = layout(step);
  EXPECT_EQ(found.c.rows * found.c.columns, int64_t(3293642752));
  int64_t last =
      found.places.back().c + (found.batch - 1) * found.c.batchStride;
  EXPECT_EQ(last, 5 * int64_t(3293642752));
}

} // namespace
