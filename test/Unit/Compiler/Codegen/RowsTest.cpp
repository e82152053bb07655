//===- RowsTest.cpp - Kernels over rows -----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace plait;
using namespace plait::test;

static constexpr float kTolerance = 2e-6f;

static void expectNear(float got, double want, size_t index) {
  if (std::isinf(want) || std::isnan(want)) {
    EXPECT_EQ(std::isnan(want), std::isnan(got)) << "at " << index;
    if (std::isinf(want))
      EXPECT_EQ(want, got) << "at " << index;
    return;
  }
  EXPECT_NEAR(got, want, kTolerance * (1.0 + std::abs(want))) << "at " << index;
}

/// Every kernel with rows is tried on odd sizes: no tail, only a tail, both.
class Rows : public testing::TestWithParam<std::tuple<int64_t, int64_t>> {
protected:
  int64_t rows = std::get<0>(GetParam()), columns = std::get<1>(GetParam());
  std::string sized(std::string text) {
    return test::sized(std::move(text), rows, columns);
  }
};

INSTANTIATE_TEST_SUITE_P(Sizes, Rows,
                         testing::Combine(testing::Values(1, 3, 5),
                                          testing::Values(1, 7, 33, 64, 97,
                                                          1000)));

TEST_P(Rows, Elementwise) {
  Kernel kernel({{sized("tensor<RxCxf32>"), sized("tensor<Cxf32>")},
                 {sized("tensor<RxCxf32>")},
                 sized(R"(
    %b = nn.broadcast %1 dims [1] : tensor<Cxf32> -> tensor<RxCxf32>
    %x = nn.add %0, %b : tensor<RxCxf32>
    %s = nn.sigmoid %x : tensor<RxCxf32>
    %y = nn.mul %x, %s : tensor<RxCxf32>
    plan.yield %y : tensor<RxCxf32>)")});
  Buffer x(rows * columns), b(columns), y(rows * columns);
  x.randomize(1), b.randomize(2), y.fill(NAN);
  kernel({&x, &b, &y});
  for (int64_t index = 0; index < rows * columns; ++index) {
    double sum = double(x[index]) + b[index % columns];
    expectNear(y[index], sum / (1.0 + std::exp(-sum)), index);
  }
  kernel.expectSplit({&x, &b, &y}, 2);
}

static const char *const kLayerNorm = R"(
    %sum = nn.reduce sum %0 dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %mean = nn.scale %sum by SCALE : tensor<Rxf32>
    %m = nn.broadcast %mean dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %c = nn.sub %0, %m : tensor<RxCxf32>
    %q = nn.mul %c, %c : tensor<RxCxf32>
    %qs = nn.reduce sum %q dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %var = nn.scale %qs by SCALE : tensor<Rxf32>
    %e = nn.shift %var by 1.0e-05 : tensor<Rxf32>
    %rstd = nn.rsqrt %e : tensor<Rxf32>
    %r = nn.broadcast %rstd dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %n = nn.mul %c, %r : tensor<RxCxf32>
    %w = nn.broadcast %1 dims [1] : tensor<Cxf32> -> tensor<RxCxf32>
    %b = nn.broadcast %2 dims [1] : tensor<Cxf32> -> tensor<RxCxf32>
    %p = nn.mul %n, %w : tensor<RxCxf32>
    %y = nn.add %p, %b : tensor<RxCxf32>
    plan.yield %y, %mean, %rstd : tensor<RxCxf32>, tensor<Rxf32>, tensor<Rxf32>)";

TEST_P(Rows, LayerNorm) {
  std::string body = sized(kLayerNorm);
  for (size_t at; (at = body.find("SCALE")) != std::string::npos;)
    body.replace(at, 5, std::to_string(1.0 / columns));
  float inverse = std::stof(std::to_string(1.0 / columns));
  std::string full = sized("tensor<RxCxf32>"), column = sized("tensor<Cxf32>"),
              row = sized("tensor<Rxf32>");
  Kernel kernel({{full, column, column}, {full, row, row}, body});
  Buffer x(rows * columns), w(columns), b(columns), y(rows * columns),
      mean(rows), rstd(rows);
  x.randomize(1), w.randomize(2), b.randomize(3);
  kernel({&x, &w, &b, &y, &mean, &rstd});
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < columns; ++j)
      sum += x[row * columns + j];
    double average = sum * inverse;
    for (int64_t j = 0; j < columns; ++j)
      squares += std::pow(x[row * columns + j] - average, 2);
    double factor = 1.0 / std::sqrt(squares * inverse + 1e-5);
    expectNear(mean[row], average, row);
    EXPECT_NEAR(rstd[row], factor, 1e-5 * factor);
    for (int64_t j = 0; j < columns; ++j) {
      double want = (x[row * columns + j] - average) * factor * w[j] + b[j];
      EXPECT_NEAR(y[row * columns + j], want, 2e-5) << row << ", " << j;
    }
  }
  kernel.expectSplit({&x, &w, &b, &y, &mean, &rstd}, 3);
}

/// The exponentials wait where the softmax is to lie, in the place of the
/// second operand. The sweep in which they are made still reads that.
TEST_P(Rows, KeepsOperandsForStoresOfTheSameSweep) {
  std::string full = sized("tensor<RxCxf32>");
  Kernel kernel({{full, full}, {full, full}, sized(R"(
    %e = nn.exp %0 : tensor<RxCxf32>
    %sum = nn.reduce sum %e dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %u = nn.broadcast %sum dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %y = nn.div %e, %u : tensor<RxCxf32>
    %z = nn.add %0, %1 : tensor<RxCxf32>
    plan.yield %y, %z : tensor<RxCxf32>, tensor<RxCxf32>)")});
  Buffer x(rows * columns), b(rows * columns), z(rows * columns);
  x.randomize(1), b.randomize(2), z.fill(NAN);
  std::vector<float> addend(b.floats(), b.floats() + b.size());
  kernel({&x, &b, &b, &z});
  for (int64_t index = 0; index < rows * columns; ++index)
    EXPECT_EQ(z[index], x[index] + addend[index]) << "at " << index;
}

TEST_P(Rows, CausalSoftmax) {
  Kernel kernel({{sized("tensor<2xRxCxf32>")},
                 {sized("tensor<2xRxCxf32>"), sized("tensor<2xRxf32>")},
                 test::sized(R"(
    %s = nn.scale %0 by 0.5 : tensor<2xRxCxf32>
    %x = nn.causal_mask %s : tensor<2xRxCxf32>
    %top = nn.reduce max %x dims [2] : tensor<2xRxCxf32> -> tensor<2xRxf32>
    %t = nn.broadcast %top dims [0, 1] : tensor<2xRxf32> -> tensor<2xRxCxf32>
    %d = nn.sub %x, %t : tensor<2xRxCxf32>
    %w = nn.exp %d : tensor<2xRxCxf32>
    %sum = nn.reduce sum %w dims [2] : tensor<2xRxCxf32> -> tensor<2xRxf32>
    %u = nn.broadcast %sum dims [0, 1] : tensor<2xRxf32> -> tensor<2xRxCxf32>
    %y = nn.div %w, %u : tensor<2xRxCxf32>
    %l = nn.log %sum : tensor<2xRxf32>
    %lse = nn.add %top, %l : tensor<2xRxf32>
    plan.yield %y, %lse : tensor<2xRxCxf32>, tensor<2xRxf32>)",
                             rows, columns)});
  Buffer x(2 * rows * columns), y(2 * rows * columns), lse(2 * rows);
  x.randomize(1, -20, 20);
  kernel({&x, &y, &lse});
  for (int64_t row = 0; row < 2 * rows; ++row) {
    int64_t seen = std::min(columns, row % rows + 1);
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < seen; ++j)
      top = std::max(top, 0.5 * x[row * columns + j]);
    for (int64_t j = 0; j < seen; ++j)
      sum += std::exp(0.5 * x[row * columns + j] - top);
    expectNear(lse[row], top + std::log(sum), row);
    for (int64_t j = 0; j < columns; ++j)
      expectNear(y[row * columns + j],
                 j < seen ? std::exp(0.5 * x[row * columns + j] - top) / sum
                          : 0.0,
                 row * columns + j);
  }
  kernel.expectSplit({&x, &y, &lse}, 1);
}

TEST_P(Rows, LossOverAllRows) {
  Kernel kernel({{sized("tensor<RxCxf32>"), sized("tensor<Rxi32>")},
                 {"tensor<f32>", "tensor<f32>"},
                 sized(R"(
    %e = nn.exp %0 : tensor<RxCxf32>
    %sum = nn.reduce sum %e dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %l = nn.log %sum : tensor<Rxf32>
    %p = nn.pick %0, %1 : tensor<RxCxf32>, tensor<Rxi32> -> tensor<RxCxf32>
    %t = nn.reduce sum %p dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %d = nn.sub %l, %t : tensor<Rxf32>
    %v = nn.valid %1 ignore -100 : tensor<Rxi32> -> tensor<Rxf32>
    %m = nn.mul %d, %v : tensor<Rxf32>
    %loss = nn.reduce sum %m dims [0] : tensor<Rxf32> -> tensor<f32>
    %count = nn.reduce sum %v dims [0] : tensor<Rxf32> -> tensor<f32>
    plan.yield %loss, %count : tensor<f32>, tensor<f32>)"),
                 "1, 2"});
  Buffer x(rows * columns), ids(rows), loss(1), count(1);
  x.randomize(1);
  double want = 0, valid = 0;
  for (int64_t row = 0; row < rows; ++row) {
    ids.ints()[row] = row == 1 ? -100 : row * 7 % columns;
    double sum = 0;
    for (int64_t j = 0; j < columns; ++j)
      sum += std::exp(double(x[row * columns + j]));
    if (row == 1)
      continue;
    want += std::log(sum) - x[row * columns + ids.ints()[row]];
    ++valid;
  }
  loss[0] = 10, count[0] = NAN;
  kernel({&x, &ids, &loss, &count}, {1});
  expectNear(loss[0], want + 10, 0);
  EXPECT_EQ(count[0], valid);
  kernel({&x, &ids, &loss, &count}, {0});
  EXPECT_EQ(count[0], 2 * valid);
}

TEST_P(Rows, EmbeddingWithPositions) {
  Kernel kernel({{sized("tensor<9xCxf32>"), sized("tensor<RxCxf32>"),
                  sized("tensor<2xRxi32>")},
                 {sized("tensor<2xRxCxf32>")},
                 test::sized(R"(
    %t = nn.embedding %0, %2 {begin = #nn.begin<"tp" * 9>}
      : (tensor<9xCxf32>, tensor<2xRxi32>) -> tensor<2xRxCxf32>
    %i = nn.iota along 0 : tensor<Rxi32>
    %p = nn.embedding %1, %i : (tensor<RxCxf32>, tensor<Rxi32>) -> tensor<RxCxf32>
    %b = nn.broadcast %p dims [1, 2] : tensor<RxCxf32> -> tensor<2xRxCxf32>
    %y = nn.add %t, %b : tensor<2xRxCxf32>
    plan.yield %y : tensor<2xRxCxf32>)",
                             rows, columns)});
  Buffer table(9 * columns), positions(rows * columns), ids(2 * rows),
      y(2 * rows * columns);
  table.randomize(1), positions.randomize(2);
  for (int64_t index = 0; index < 2 * rows; ++index)
    ids.ints()[index] = index * 5 % 27 - 1;
  kernel({&table, &positions, &ids, &y}, {9});
  for (int64_t index = 0; index < 2 * rows * columns; ++index) {
    int64_t row = index / columns, j = index % columns;
    int64_t id = ids.ints()[row] - 9;
    float looked = id >= 0 && id < 9 ? table[id * columns + j] : 0.0f;
    EXPECT_EQ(y[index], looked + positions[row % rows * columns + j]) << index;
  }
  kernel.expectSplit({&table, &positions, &ids, &y}, 3, {9});
}

TEST_P(Rows, SliceOfTheLastDimension) {
  int64_t whole = 2 * columns - columns / 2;
  std::string type =
      "tensor<" + std::to_string(rows) + "x" + std::to_string(whole) + "xf32>";
  std::string part = "tensor<" + std::to_string(rows) + "x" +
                     std::to_string((whole + 1) / 2) + "xf32>";
  Kernel kernel({{type},
                 {part},
                 "%s = dist.slice %0 on @mesh[\"tp\"] dim 1 : " + type +
                     " -> " + part + "\nplan.yield %s : " + part});
  int64_t local = (whole + 1) / 2;
  Buffer x(rows * whole), y(rows * local);
  x.randomize(1);
  for (int64_t rank = 0; rank < 2; ++rank) {
    kernel({&x, &y}, {rank * local});
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t j = 0; j < local; ++j) {
        int64_t from = rank * local + j;
        EXPECT_EQ(y[row * local + j],
                  from < whole ? x[row * whole + from] : 0.0f);
      }
  }
}

TEST(RowsTest, SliceOfRows) {
  Kernel kernel({{"tensor<2x5x7xi32>"},
                 {"tensor<2x3x7xi32>"},
                 "%s = dist.slice %0 on @mesh[\"tp\"] dim 1 : "
                 "tensor<2x5x7xi32> -> tensor<2x3x7xi32>\n"
                 "plan.yield %s : tensor<2x3x7xi32>"});
  Buffer x(70), y(42);
  for (int index = 0; index < 70; ++index)
    x.ints()[index] = index + 1;
  kernel({&x, &y}, {3});
  for (int a = 0; a < 2; ++a)
    for (int b = 0; b < 3; ++b)
      for (int c = 0; c < 7; ++c)
        EXPECT_EQ(y.ints()[(a * 3 + b) * 7 + c],
                  b + 3 < 5 ? x.ints()[(a * 5 + b + 3) * 7 + c] : 0);
}

/// Six chunks of two, as they lie in zig-zag order.
static constexpr int kZigzag[] = {0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7};

TEST(RowsTest, Reorder) {
  // Along rows, and along the innermost dimension, whose vectors meet chunks.
  for (bool inverse : {false, true})
    for (int inner : {1, 7, 64}) {
      std::string type = sized("tensor<2x12xCxi32>", 0, inner);
      if (inner == 1)
        type = "tensor<2x12xi32>";
      Kernel kernel({{type},
                     {type},
                     "%s = nn.reorder %0 dim 1 zigzag 6" +
                         std::string(inverse ? " inverse" : "") + " : " + type +
                         "\nplan.yield %s : " + type});
      Buffer x(24 * inner), y(24 * inner);
      for (int index = 0; index < 24 * inner; ++index)
        x.ints()[index] = index + 1;
      kernel({&x, &y});
      for (int a = 0; a < 2; ++a)
        for (int b = 0; b < 12; ++b)
          for (int c = 0; c < inner; ++c) {
            int in = a * 12 + (inverse ? b : kZigzag[b]);
            int out = a * 12 + (inverse ? kZigzag[b] : b);
            EXPECT_EQ(y.ints()[out * inner + c], x.ints()[in * inner + c]);
          }
    }
}

TEST(RowsTest, PositionsInZigzagOrder) {
  // The third rank of three has the last four of the list.
  Kernel mask({{"tensor<4x12xf32>"},
               {"tensor<4x12xf32>"},
               R"(
    %m = nn.causal_mask %0 {begin = #nn.begin<"tp" * 4 of 12 zigzag 6>} : tensor<4x12xf32>
    plan.yield %m : tensor<4x12xf32>)"});
  Kernel count({{},
                {"tensor<4xi32>"},
                R"(
    %i = nn.iota along 0 {begin = #nn.begin<"tp" * 4 of 12 zigzag 6>} : tensor<4xi32>
    plan.yield %i : tensor<4xi32>)"});
  Buffer x(48), y(48), positions(4);
  x.randomize(1);
  mask({&x, &y}, {8});
  count({&positions}, {8});
  for (int query = 0; query < 4; ++query) {
    int position = kZigzag[8 + query];
    EXPECT_EQ(positions.ints()[query], position);
    for (int key = 0; key < 12; ++key)
      EXPECT_EQ(y[query * 12 + key],
                key <= position ? x[query * 12 + key] : -INFINITY);
  }
}

TEST(RowsTest, RotaryEmbedding) {
  for (int64_t size : {2, 6, 64, 80, 128, 256}) {
    Kernel kernel(
        {{sized("tensor<2x3x4xCxf32>", 0, size),
          sized("tensor<3xCxf32>", 0, size), sized("tensor<3xCxf32>", 0, size)},
         {sized("tensor<2x3x4xCxf32>", 0, size)},
         sized(R"(
    %c = nn.broadcast %1 dims [1, 3] : tensor<3xCxf32> -> tensor<2x3x4xCxf32>
    %s = nn.broadcast %2 dims [1, 3] : tensor<3xCxf32> -> tensor<2x3x4xCxf32>
    %k = nn.mul %0, %c : tensor<2x3x4xCxf32>
    %h = nn.rotate_half %0 : tensor<2x3x4xCxf32>
    %t = nn.mul %h, %s : tensor<2x3x4xCxf32>
    %y = nn.add %k, %t : tensor<2x3x4xCxf32>
    plan.yield %y : tensor<2x3x4xCxf32>)",
               0, size)});
    Buffer x(24 * size), c(3 * size), s(3 * size), y(24 * size);
    x.randomize(1), c.randomize(2), s.randomize(3);
    kernel({&x, &c, &s, &y});
    for (int64_t index = 0; index < 24 * size; ++index) {
      int64_t j = index % size, position = index / size / 4 % 3;
      float turned = j < size / 2 ? -x[index + size / 2] : x[index - size / 2];
      double want = double(x[index]) * c[position * size + j] +
                    double(turned) * s[position * size + j];
      expectNear(y[index], want, index);
    }
    kernel.expectSplit({&x, &c, &s, &y}, 3);
  }
}

TEST(RowsTest, LongVectorsAreCutIntoBlocks) {
  const int64_t count = 10007;
  Kernel kernel({{"tensor<10007xf32>", "tensor<f32>"},
                 {"tensor<10007xf32>"},
                 R"(
    %b = nn.broadcast %1 dims [] : tensor<f32> -> tensor<10007xf32>
    %y = nn.mul %0, %b : tensor<10007xf32>
    plan.yield %y : tensor<10007xf32>)",
                 "2"});
  // Blocks that fit a cache, or an element a thread.
  EXPECT_EQ(kernel.info.extent, onGPU() ? count : 3);
  Buffer x(count), f(1), y(count);
  x.randomize(1), f[0] = 3, y.fill(NAN);
  kernel({&x, &f, &y}, {1});
  for (int64_t index = 0; index < count; ++index)
    EXPECT_EQ(y[index], 3 * x[index]);
  kernel.expectSplit({&x, &f, &y}, 2, {1});
  kernel({&x, &f, &y}, {0});
  for (int64_t index = 0; index < count; ++index)
    EXPECT_EQ(y[index], 6 * x[index]);
}

TEST(RowsTest, SumOfALongVector) {
  Kernel kernel({{"tensor<11x13x97xf32>"},
                 {"tensor<f32>"},
                 R"(
    %q = nn.mul %0, %0 : tensor<11x13x97xf32>
    %s = nn.reduce sum %q dims [0, 1, 2] : tensor<11x13x97xf32> -> tensor<f32>
    %n = nn.sqrt %s : tensor<f32>
    plan.yield %n : tensor<f32>)"});
  EXPECT_EQ(kernel.info.extent, 1);
  Buffer x(11 * 13 * 97), y(1);
  x.randomize(1);
  kernel({&x, &y});
  double sum = 0;
  for (size_t index = 0; index < x.size(); ++index)
    sum += double(x[index]) * x[index];
  expectNear(y[0], std::sqrt(sum), 0);
}

TEST(RowsTest, ScalarsAndShortVectors) {
  Kernel kernel({{"tensor<f32>", "tensor<5xf32>"},
                 {"tensor<f32>", "tensor<5xf32>", "tensor<1x1xf32>"},
                 R"(
    %a = nn.shift %0 by 1.0 : tensor<f32>
    %b = nn.broadcast %a dims [] : tensor<f32> -> tensor<5xf32>
    %y = nn.add %1, %b : tensor<5xf32>
    %o = nn.broadcast %a dims [] : tensor<f32> -> tensor<1x1xf32>
    plan.yield %a, %y, %o : tensor<f32>, tensor<5xf32>, tensor<1x1xf32>)"});
  Buffer f(1), x(5), a(1), y(5), o(1);
  f[0] = 2, x.randomize(1);
  kernel({&f, &x, &a, &y, &o});
  EXPECT_EQ(a[0], 3.0f);
  EXPECT_EQ(o[0], 3.0f);
  for (int index = 0; index < 5; ++index)
    EXPECT_EQ(y[index], x[index] + 3.0f);
}

TEST(RowsTest, NormOfOneRow) {
  Kernel kernel({{"tensor<1x1x100xf32>"},
                 {"tensor<1x1x100xf32>"},
                 R"(
    %s = nn.reduce sum %0 dims [2] : tensor<1x1x100xf32> -> tensor<1x1xf32>
    %b = nn.broadcast %s dims [0, 1] : tensor<1x1xf32> -> tensor<1x1x100xf32>
    %y = nn.div %0, %b : tensor<1x1x100xf32>
    plan.yield %y : tensor<1x1x100xf32>)"});
  Buffer x(100), y(100);
  x.randomize(1, 1, 2);
  kernel({&x, &y});
  double sum = 0;
  for (int index = 0; index < 100; ++index)
    sum += x[index];
  for (int index = 0; index < 100; ++index)
    expectNear(y[index], x[index] / sum, index);
}

TEST(RowsTest, PaddingIsMaskedByGlobalIndex) {
  Kernel kernel({{"tensor<3x4x5xf32>"},
                 {"tensor<3x4x5xf32>"},
                 R"(
    %y = nn.mask_padding %0 dim 1 begin <"tp" * 4> limit 6 by 9.0 : tensor<3x4x5xf32>
    plan.yield %y : tensor<3x4x5xf32>)"});
  ASSERT_EQ(kernel.info.scalars.size(), 1u) << kernel.errors;
  EXPECT_EQ(kernel.info.scalars[0].scale, 4);
  Buffer x(60), y(60);
  x.randomize(1);
  kernel({&x, &y}, {4});
  for (int index = 0; index < 60; ++index)
    EXPECT_EQ(y[index], index / 5 % 4 < 2 ? x[index] : 9.0f);
}

/// The index along several axes is a sum of as many scalars.
TEST(RowsTest, BlocksOverTwoAxes) {
  Kernel kernel({{"tensor<5x3xf32>", "tensor<8xi32>"},
                 {"tensor<8x3xf32>"},
                 R"(
    %y = nn.embedding %0, %1 {begin = #nn.begin<"tp" * 10, "dp" * 5>, limit = 18 : i64}
      : (tensor<5x3xf32>, tensor<8xi32>) -> tensor<8x3xf32>
    plan.yield %y : tensor<8x3xf32>)"});
  ASSERT_EQ(kernel.info.scalars.size(), 2u) << kernel.errors;
  EXPECT_EQ(kernel.info.scalars[0].axis.getValue(), "tp");
  EXPECT_EQ(kernel.info.scalars[0].scale, 10);
  EXPECT_EQ(kernel.info.scalars[1].axis.getValue(), "dp");
  EXPECT_EQ(kernel.info.scalars[1].scale, 5);
  Buffer table(15), ids(8), y(24);
  table.randomize(1);
  const int named[] = {0, 4, 9, 14, 15, 17, 18, 19};
  std::copy(std::begin(named), std::end(named), ids.ints());
  // The ranks of rows 10 to 14 and of 15 to 17.
  for (int64_t dp : {0, 1}) {
    kernel({&table, &ids, &y}, {10, 5 * dp});
    for (int row = 0; row < 8; ++row)
      for (int column = 0; column < 3; ++column) {
        int64_t own = named[row] - 10 - 5 * dp;
        bool found = own >= 0 && own < 5 && named[row] < 18;
        EXPECT_EQ(y[row * 3 + column], found ? table[own * 3 + column] : 0.0f)
            << named[row] << " of dp " << dp;
      }
  }
}

/// Both sums ask whether the microbatch is the first one.
TEST(RowsTest, TwoTotalsAddToWhatIsThere) {
  Kernel kernel({{"tensor<2x3xf32>", "tensor<2xf32>"},
                 {"tensor<f32>", "tensor<f32>"},
                 R"(
    %b = nn.broadcast %1 dims [0] : tensor<2xf32> -> tensor<2x3xf32>
    %p = nn.mul %0, %b : tensor<2x3xf32>
    %s = nn.reduce sum %p dims [0, 1] : tensor<2x3xf32> -> tensor<f32>
    %t = nn.reduce sum %0 dims [0, 1] : tensor<2x3xf32> -> tensor<f32>
    plan.yield %s, %t : tensor<f32>, tensor<f32>)",
                 "2, 2"});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer x(6), f(2), s(1), t(1);
  for (int64_t index = 0; index < 6; ++index)
    x[index] = index;
  f[0] = 1, f[1] = 2, s[0] = t[0] = 100;
  kernel({&x, &f, &s, &t}, {1});
  EXPECT_EQ(s[0], 27.0f);
  EXPECT_EQ(t[0], 15.0f);
  kernel({&x, &f, &s, &t}, {0});
  EXPECT_EQ(s[0], 54.0f);
  EXPECT_EQ(t[0], 30.0f);
}

/// One number a row, which lies where its row does not: of heads and then
/// positions, rows of positions and then heads.
TEST(RowsTest, NumbersInAnotherOrder) {
  for (int64_t columns : {2, 7, 64, 97}) {
    Kernel kernel({{sized("tensor<2x3x5xf32>", 0, columns),
                    sized("tensor<3xf32>", 0, columns),
                    sized("tensor<2x5x3xCxf32>", 0, columns)},
                   {sized("tensor<2x5x3xCxf32>", 0, columns)},
                   sized(R"(
    %h = nn.broadcast %1 dims [1] : tensor<3xf32> -> tensor<2x3x5xf32>
    %n = nn.sub %0, %h : tensor<2x3x5xf32>
    %b = nn.broadcast %n dims [0, 2, 1] : tensor<2x3x5xf32> -> tensor<2x5x3xCxf32>
    %y = nn.mul %2, %b : tensor<2x5x3xCxf32>
    plan.yield %y : tensor<2x5x3xCxf32>)",
                         0, columns)});
    ASSERT_TRUE(kernel.valid()) << kernel.errors;
    Buffer numbers(30), heads(3), x(30 * columns), y(30 * columns);
    numbers.randomize(1), heads.randomize(2), x.randomize(3), y.fill(NAN);
    kernel({&numbers, &heads, &x, &y});
    for (int64_t index = 0; index < 30 * columns; ++index) {
      int64_t row = index / columns, head = row % 3, position = row / 3 % 5;
      int64_t from = (row / 15 * 3 + head) * 5 + position;
      expectNear(y[index], (double(numbers[from]) - heads[head]) * x[index],
                 index);
    }
    kernel.expectSplit({&numbers, &heads, &x, &y}, 3);
  }
}

TEST(RowsTest, ErrorsNameTheOp) {
  Kernel across({{"tensor<4x8xf32>", "tensor<8x4xf32>"},
                 {"tensor<8x4xf32>", "tensor<4x8x1xf32>"},
                 R"(
    %y = nn.neg %1 : tensor<8x4xf32>
    %b = nn.broadcast %y dims [1, 0] : tensor<8x4xf32> -> tensor<4x8x1xf32>
    plan.yield %y, %b : tensor<8x4xf32>, tensor<4x8x1xf32>)"});
  EXPECT_NE(across.errors.find("does not fit the loops over its largest"),
            std::string::npos)
      << across.errors;
  Kernel mixed({{"tensor<4x8xf32>"},
                {"tensor<4xf32>", "tensor<8xf32>"},
                R"(
    %r = nn.reduce sum %0 dims [1] : tensor<4x8xf32> -> tensor<4xf32>
    %c = nn.reduce sum %0 dims [0] : tensor<4x8xf32> -> tensor<8xf32>
    plan.yield %r, %c : tensor<4xf32>, tensor<8xf32>)"});
  EXPECT_FALSE(mixed.valid());
  EXPECT_NE(mixed.errors.find("'nn.reduce' op reduces other dimensions"),
            std::string::npos)
      << mixed.errors;
  Kernel late({{"tensor<4x8xf32>"},
               {"tensor<4x8xf32>"},
               R"(
    %s = nn.reduce sum %0 dims [0, 1] : tensor<4x8xf32> -> tensor<f32>
    %b = nn.broadcast %s dims [] : tensor<f32> -> tensor<4x8xf32>
    plan.yield %b : tensor<4x8xf32>)"});
  // One loop over all elements is one row, whose sum is known before its end.
  EXPECT_TRUE(late.valid()) << late.errors;
  Kernel rows({{"tensor<4x8xf32>", "tensor<4xf32>"},
               {"tensor<4x8xf32>"},
               R"(
    %s = nn.reduce sum %0 dims [0, 1] : tensor<4x8xf32> -> tensor<f32>
    %b = nn.broadcast %s dims [] : tensor<f32> -> tensor<4x8xf32>
    %r = nn.broadcast %1 dims [0] : tensor<4xf32> -> tensor<4x8xf32>
    %y = nn.add %b, %r : tensor<4x8xf32>
    plan.yield %y : tensor<4x8xf32>)"});
  EXPECT_NE(rows.errors.find("before the first row"), std::string::npos)
      << rows.errors;
  Kernel counts({{"tensor<4xi32>"},
                 {"tensor<2xi32>"},
                 "%s = dist.slice %0 on @mesh[\"tp\"] dim 0 : tensor<4xi32> "
                 "-> tensor<2xi32>\nplan.yield %s : tensor<2xi32>",
                 "1"});
  EXPECT_NE(counts.errors.find("accumulates 'tensor<2xi32>', which is not of "
                               "floats"),
            std::string::npos)
      << counts.errors;
  Kernel none(
      {{"tensor<0xf32>"},
       {"tensor<0xf32>"},
       "%y = nn.neg %0 : tensor<0xf32>\nplan.yield %y : tensor<0xf32>"});
  EXPECT_NE(none.errors.find("at least 1"), std::string::npos) << none.errors;
  Kernel cpu({{"tensor<4xf32>"},
              {"tensor<4xf32>"},
              "%y = nn.neg %0 : tensor<4xf32>\nplan.yield %y : tensor<4xf32>"},
             codegen::TargetCPU{"abacus", ""});
  EXPECT_NE(cpu.errors.find("unknown processor 'abacus'"), std::string::npos);
}
