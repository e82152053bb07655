//===- ColumnsTest.cpp - Kernels over blocks of columns -------------------===//
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

class Columns : public testing::TestWithParam<std::tuple<int64_t, int64_t>> {
protected:
  int64_t rows = std::get<0>(GetParam()), columns = std::get<1>(GetParam());
  std::string sized(std::string text) {
    return test::sized(std::move(text), rows, columns);
  }
};

INSTANTIATE_TEST_SUITE_P(Sizes, Columns,
                         testing::Combine(testing::Values(1, 3, 5),
                                          testing::Values(1, 7, 33, 64, 97,
                                                          1000)));

/// The gradients of a norm's weight and bias, with the elements they sum up.
TEST_P(Columns, GradientsOfANorm) {
  std::string full = sized("tensor<RxCxf32>"), row = sized("tensor<Rxf32>"),
              column = sized("tensor<Cxf32>");
  Kernel kernel({{full, full, row},
                 {column, column, full, row},
                 sized(R"(
    %r = nn.broadcast %2 dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %n = nn.mul %1, %r : tensor<RxCxf32>
    %p = nn.mul %0, %n : tensor<RxCxf32>
    %w = nn.reduce sum %p dims [0] : tensor<RxCxf32> -> tensor<Cxf32>
    %b = nn.reduce max %0 dims [0] : tensor<RxCxf32> -> tensor<Cxf32>
    %h = nn.scale %b by 0.5 : tensor<Cxf32>
    %q = nn.scale %2 by 2.0 : tensor<Rxf32>
    plan.yield %w, %h, %p, %q : tensor<Cxf32>, tensor<Cxf32>, tensor<RxCxf32>, tensor<Rxf32>)"),
                 "1, 2, 0, 0"});
  Buffer dy(rows * columns), x(rows * columns), rstd(rows), w(columns),
      b(columns), p(rows * columns), q(rows);
  dy.randomize(1), x.randomize(2), rstd.randomize(3);
  w.fill(1), b.fill(NAN);
  kernel({&dy, &x, &rstd, &w, &b, &p, &q}, {1});
  for (int64_t j = 0; j < columns; ++j) {
    double sum = 1;
    float top = -INFINITY;
    for (int64_t i = 0; i < rows; ++i) {
      sum += double(dy[i * columns + j]) * x[i * columns + j] * rstd[i];
      top = std::max(top, dy[i * columns + j]);
    }
    EXPECT_NEAR(w[j], sum, 1e-5) << j;
    EXPECT_EQ(b[j], 0.5f * top) << j;
  }
  for (int64_t i = 0; i < rows; ++i) {
    EXPECT_EQ(q[i], 2 * rstd[i]);
    for (int64_t j = 0; j < columns; ++j)
      EXPECT_EQ(p[i * columns + j],
                dy[i * columns + j] * (x[i * columns + j] * rstd[i]));
  }
}

TEST_P(Columns, SumsOverLeadingDimensions) {
  Kernel kernel(
      {{sized("tensor<4x3xCxf32>")}, {sized("tensor<3xCxf32>")}, sized(R"(
    %s = nn.reduce sum %0 dims [0] : tensor<4x3xCxf32> -> tensor<3xCxf32>
    plan.yield %s : tensor<3xCxf32>)")});
  Buffer x(12 * columns), y(3 * columns);
  x.randomize(1);
  kernel({&x, &y});
  for (int64_t index = 0; index < 3 * columns; ++index) {
    float sum = 0;
    for (int64_t outer = 0; outer < 4; ++outer)
      sum += x[outer * 3 * columns + index];
    // Numbers below 2, four of them, in any order.
    EXPECT_NEAR(y[index], sum, 2e-6) << index;
  }
  kernel.expectSplit({&x, &y}, 1);
}

TEST_P(Columns, SumsOverAMiddleDimension) {
  Kernel kernel({{sized("tensor<2xRxCxf32>")},
                 {sized("tensor<2xCxf32>")},
                 test::sized(R"(
    %s = nn.reduce sum %0 dims [1] : tensor<2xRxCxf32> -> tensor<2xCxf32>
    plan.yield %s : tensor<2xCxf32>)",
                             rows, columns)});
  Buffer x(2 * rows * columns), y(2 * columns);
  x.randomize(1);
  kernel({&x, &y});
  for (int64_t index = 0; index < 2 * columns; ++index) {
    double sum = 0;
    for (int64_t row = 0; row < rows; ++row)
      sum += x[(index / columns * rows + row) * columns + index % columns];
    EXPECT_NEAR(y[index], sum, 1e-5) << index;
  }
  kernel.expectSplit({&x, &y}, 1);
}

TEST(ColumnsTest, SingleRow) {
  Kernel kernel({{"tensor<1x1x70xf32>"},
                 {"tensor<70xf32>"},
                 R"(
    %s = nn.reduce sum %0 dims [0, 1] : tensor<1x1x70xf32> -> tensor<70xf32>
    plan.yield %s : tensor<70xf32>)",
                 "1"});
  Buffer x(70), y(70);
  x.randomize(1), y.fill(1);
  kernel({&x, &y});
  for (int index = 0; index < 70; ++index)
    EXPECT_EQ(y[index], x[index] + 1);
}

/// Modes 0, 1 and 2: overwrite, add, add unless it is the first microbatch.
static void checkScatter(int64_t rows, int64_t columns, int mode) {
  std::string gradient = sized("tensor<2xRxCxf32>", rows, columns);
  std::string ids = sized("tensor<2xRxi32>", rows, columns);
  std::string table = sized("tensor<6xCxf32>", rows, columns);
  Kernel kernel({{gradient, ids},
                 {table},
                 "%g = nn.embedding_grad %0, %1 {begin = "
                 "#nn.begin<\"tp\" * 6>} : (" +
                     gradient + ", " + ids + ") -> " + table +
                     "\nplan.yield %g : " + table,
                 std::to_string(mode)});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer x(2 * rows * columns), at(2 * rows), y(6 * columns);
  x.randomize(1);
  for (int64_t index = 0; index < 2 * rows; ++index)
    at.ints()[index] = index * 3 % 20 - 2;
  for (bool first : {true, false}) {
    bool keeps = mode == 1 || (mode == 2 && !first);
    y.fill(keeps ? 0.5f : NAN);
    std::vector<int64_t> scalars;
    for (const codegen::RankScalar &scalar : kernel.info.scalars)
      scalars.push_back(scalar.firstMicrobatch ? first : 6);
    kernel({&x, &at, &y}, scalars);
    std::vector<float> want(6 * columns, keeps ? 0.5f : 0.0f);
    for (int64_t index = 0; index < 2 * rows; ++index)
      for (int64_t j = 0; j < columns; ++j)
        if (int64_t row = at.ints()[index] - 6; row >= 0 && row < 6)
          want[row * columns + j] += x[index * columns + j];
    for (int64_t index = 0; index < 6 * columns; ++index)
      EXPECT_EQ(y[index], want[index]) << index;
    if (mode == 0)
      kernel.expectSplit({&x, &at, &y}, 2, scalars);
  }
}

TEST_P(Columns, Scatter) {
  for (int mode : {0, 1, 2})
    checkScatter(rows, columns, mode);
}

/// Rows are added to a table where it lies: the operand, which stands for that,
/// is not read.
TEST_P(Columns, ScatterIntoTable) {
  std::string gradient = sized("tensor<2xRxCxf32>");
  std::string ids = sized("tensor<2xRxi32>");
  std::string table = sized("tensor<6xCxf32>");
  Kernel kernel({{gradient, ids, table},
                 {table},
                 "%g = nn.embedding_grad %0, %1 : (" + gradient + ", " + ids +
                     ") -> " + table + "\n%s = nn.add %g, %2 : " + table +
                     "\nplan.yield %s : " + table});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer x(2 * rows * columns), at(2 * rows), t(6 * columns), y(6 * columns);
  x.randomize(1), t.fill(NAN), y.fill(0.5f);
  std::vector<float> want(6 * columns, 0.5f);
  for (int64_t index = 0; index < 2 * rows; ++index) {
    int64_t row = at.ints()[index] = index * 3 % 5;
    for (int64_t j = 0; j < columns; ++j)
      want[row * columns + j] += x[index * columns + j];
  }
  kernel({&x, &at, &t, &y});
  for (int64_t index = 0; index < 6 * columns; ++index)
    EXPECT_EQ(y[index], want[index]) << index;
}

TEST(ColumnsTest, ScatterByPosition) {
  Kernel kernel({{"tensor<5x70xf32>"},
                 {"tensor<8x70xf32>"},
                 R"(
    %i = nn.iota along 0 : tensor<5xi32>
    %g = nn.embedding_grad %0, %i : (tensor<5x70xf32>, tensor<5xi32>) -> tensor<8x70xf32>
    plan.yield %g : tensor<8x70xf32>)"});
  Buffer x(350), y(560);
  x.randomize(1), y.fill(NAN);
  kernel({&x, &y});
  for (int index = 0; index < 560; ++index)
    EXPECT_EQ(y[index], index < 350 ? x[index] : 0.0f);
}
