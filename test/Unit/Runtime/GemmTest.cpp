//===- GemmTest.cpp - Matrix products against a plain loop ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CPU/Gemm.h"

#include "CPU/Team.h"

#include <gtest/gtest.h>
#include <memory>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

namespace {

std::vector<float> valuesOf(size_t count, int salt) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = float((i * 7919 + salt) % 1001) / 500.0f - 1.0f;
  return values;
}

/// Calls `visit(a, b, c offsets)` for every product of the batch.
template <typename Visit>
void forEachProduct(const fb::GemmStepT &shape, size_t dim, int64_t a,
                    int64_t b, int64_t c, Visit visit) {
  if (dim == shape.batch.size())
    return visit(a, b, c);
  for (int64_t i = 0; i < shape.batch[dim]; ++i)
    forEachProduct(shape, dim + 1, a + i * shape.a_batch[dim],
                   b + i * shape.b_batch[dim], c + i * shape.c_batch[dim],
                   visit);
}

void multiply(const fb::GemmStepT &shape, const std::vector<float> &a,
              const std::vector<float> &b, std::vector<float> &c, bool add) {
  forEachProduct(shape, 0, 0, 0, 0, [&](int64_t atA, int64_t atB, int64_t atC) {
    for (int64_t i = 0; i < shape.m; ++i)
      for (int64_t j = 0; j < shape.n; ++j) {
        float &target = c[atC + i * shape.c_row + j];
        double sum = add ? target : 0;
        for (int64_t k = 0; k < shape.k; ++k)
          sum += double(a[atA + i * shape.a_row + k * shape.a_col]) *
                 b[atB + k * shape.b_row + j * shape.b_col];
        target = float(sum);
      }
  });
}

/// Compares all of C, so that what lies between its rows must stay.
void expectProduct(GemmLibrary &library, const fb::GemmStepT &shape) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::GemmStep::Pack(builder, &shape));
  auto prepared = library.prepare(
      *flatbuffers::GetRoot<fb::GemmStep>(builder.GetBufferPointer()));
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  std::vector<float> a = valuesOf(100000, 1), b = valuesOf(100000, 2);
  for (bool add : {false, true}) {
    std::vector<float> expected = valuesOf(100000, 3), found = expected;
    multiply(shape, a, b, expected, add);
    Status status =
        library.run(*prepared, reinterpret_cast<std::byte *>(a.data()),
                    reinterpret_cast<std::byte *>(b.data()),
                    reinterpret_cast<std::byte *>(found.data()), add);
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 1e-4) << "element " << i;
  }
}

/// A product with rows longer than necessary by `slack`.
fb::GemmStepT makeShape(int64_t m, int64_t n, int64_t k, bool transposeA,
                        bool transposeB, int64_t slack) {
  fb::GemmStepT shape;
  shape.m = m, shape.n = n, shape.k = k;
  shape.a_row = transposeA ? 1 : k + slack;
  shape.a_col = transposeA ? m + slack : 1;
  shape.b_row = transposeB ? 1 : n + slack;
  shape.b_col = transposeB ? k + slack : 1;
  shape.c_row = n + slack;
  return shape;
}

class GemmTest : public ::testing::TestWithParam<unsigned> {
protected:
  void SetUp() override { setTeamSize(GetParam()); }
  void TearDown() override { setTeamSize(1); }
  GemmLibrary library;
};

TEST_P(GemmTest, AllLayouts) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                         {1, 7, 5},
                         {5, 1, 7},
                         {7, 5, 1},
                         {33, 65, 17}})
    for (bool transposeA : {false, true})
      for (bool transposeB : {false, true})
        for (int64_t slack : {0, 5})
          expectProduct(library,
                        makeShape(m, n, k, transposeA, transposeB, slack));
}

TEST_P(GemmTest, Attention) {
  // [batch, sequence, head, width], as the projections leave it: both kinds of
  // products of attention and of its gradient.
  constexpr int64_t batch = 2, length = 9, heads = 3, width = 8;
  std::vector<int64_t> tokens = {length * heads * width, width};
  std::vector<int64_t> scores = {heads * length * length, length * length};
  fb::GemmStepT shape;
  shape.batch = {batch, heads};
  shape.m = length, shape.n = length, shape.k = width;
  shape.a_batch = shape.b_batch = tokens;
  shape.c_batch = scores;
  shape.a_row = heads * width, shape.a_col = 1;
  shape.b_row = 1, shape.b_col = heads * width;
  shape.c_row = length;
  expectProduct(library, shape);
  for (bool transposed : {false, true}) {
    shape.m = length, shape.n = width, shape.k = length;
    shape.a_batch = scores;
    shape.b_batch = shape.c_batch = tokens;
    shape.a_row = transposed ? 1 : length;
    shape.a_col = transposed ? length : 1;
    shape.b_row = heads * width, shape.b_col = 1;
    shape.c_row = heads * width;
    expectProduct(library, shape);
  }
}

TEST_P(GemmTest, RepeatedOperand) {
  // Grouped queries: two heads share one B.
  fb::GemmStepT shape = makeShape(4, 6, 5, false, true, 0);
  shape.batch = {3, 2};
  shape.a_batch = {40, 20};
  shape.b_batch = {30, 0};
  shape.c_batch = {48, 24};
  expectProduct(library, shape);
}

TEST_P(GemmTest, EqualShapesShare) {
  fb::GemmStepT shape = makeShape(4, 6, 5, false, true, 0);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::GemmStep::Pack(builder, &shape));
  const auto &step =
      *flatbuffers::GetRoot<fb::GemmStep>(builder.GetBufferPointer());
  EXPECT_EQ(*library.prepare(step), *library.prepare(step));
}

INSTANTIATE_TEST_SUITE_P(Threads, GemmTest, ::testing::Values(1u, 2u));

} // namespace
