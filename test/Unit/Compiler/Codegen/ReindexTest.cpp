//===- ReindexTest.cpp - Ops that read at other indices -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "ReindexOp.h"
#include "plait/Interfaces/Padding.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace plait;
using namespace plait::test;

namespace {

/// The same map as attributes of test.reindex.
std::string write(const IndexMap &map) {
  std::string ends, shifts, negated;
  for (const IndexMap::Piece &piece : map.pieces) {
    const char *comma = ends.empty() ? "" : ", ";
    ends += comma + std::to_string(piece.end);
    shifts += comma + std::to_string(piece.shift);
    negated += std::string(comma) + (piece.negated ? "true" : "false");
  }
  return "{dim = " + std::to_string(map.dim) + ", ends = [" + ends +
         "], shifts = [" + shifts + "], negated = [" + negated + "]}";
}

/// What the map finds for `index` where `at` gives an element.
template <typename At>
float look(const IndexMap &map, int64_t index, const At &at) {
  for (const IndexMap::Piece &piece : map.pieces)
    if (index < piece.end)
      return (piece.negated ? -1.0f : 1.0f) * at(index + piece.shift);
  return 0.0f;
}

/// Of a dimension of `extent` elements: all as they are, rolled, with a part
/// negated, what is left of a shift, cut in three next to its ends.
std::vector<IndexMap> makeMaps(int64_t dim, int64_t extent) {
  int64_t third = (extent + 2) / 3, rest = extent - third;
  std::vector<IndexMap> maps = {
      {dim, {{extent, 0}}},
      {dim, {{rest, third}, {extent, -rest}}},
      {dim, {{rest, third, true}, {extent, -rest}}},
      {dim, {{third, rest}, {extent, -third, true}}},
      {dim, {{rest, third}}},
      {dim, {{rest, third, true}}},
  };
  // Of a shift that fewer lanes divide than the piece.
  if (extent > 2)
    maps.push_back({dim, {{extent / 2, 1}}});
  if (extent > 2)
    maps.push_back(
        {dim,
         {{1, extent - 1, true}, {extent - 1, 0}, {extent, 1 - extent, true}},
         {}});
  return maps;
}

/// Of one operand, which the op reads alone.
Kernel makeKernel(const std::string &type, const IndexMap &map) {
  return Kernel({{type},
                 {type},
                 "%y = \"test.reindex\"(%0) " + write(map) + " : (" + type +
                     ") -> " + type + "\nplan.yield %y : " + type});
}

class Reindex : public testing::TestWithParam<int64_t> {};

} // namespace

TEST_P(Reindex, LastDimension) {
  int64_t rows = 3, columns = GetParam();
  std::string type = sized("tensor<RxCxf32>", rows, columns);
  for (const IndexMap &map : makeMaps(1, columns)) {
    SCOPED_TRACE(write(map));
    Kernel kernel({{type, type},
                   {type},
                   "%y = \"test.reindex\"(%0, %1) " + write(map) + " : (" +
                       type + ", " + type + ") -> " + type +
                       "\nplan.yield %y : " + type});
    ASSERT_TRUE(kernel.valid()) << kernel.errors;
    Buffer x(rows * columns), z(rows * columns), y(rows * columns);
    x.randomize(1), z.randomize(2);
    kernel({&x, &z, &y});
    for (int64_t index = 0; index < rows * columns; ++index) {
      int64_t row = index / columns;
      float read = look(map, index % columns,
                        [&](int64_t j) { return x[row * columns + j]; });
      EXPECT_EQ(y[index], read + z[index]) << index;
    }
    kernel.expectSplit({&x, &z, &y}, 2);
  }
}

TEST_P(Reindex, FirstDimension) {
  int64_t rows = 7, columns = GetParam();
  std::string type = sized("tensor<RxCxf32>", rows, columns);
  for (const IndexMap &map : makeMaps(0, rows)) {
    SCOPED_TRACE(write(map));
    Kernel kernel = makeKernel(type, map);
    ASSERT_TRUE(kernel.valid()) << kernel.errors;
    Buffer x(rows * columns), y(rows * columns);
    x.randomize(1);
    kernel({&x, &y});
    for (int64_t index = 0; index < rows * columns; ++index)
      EXPECT_EQ(y[index], look(map, index / columns,
                               [&](int64_t row) {
                                 return x[row * columns + index % columns];
                               }))
          << index;
    kernel.expectSplit({&x, &y}, 1);
  }
}

/// The op's last dimension is not the kernel's: one number a row is read.
TEST_P(Reindex, DimensionOfRows) {
  int64_t rows = 6, columns = GetParam();
  std::string line = sized("tensor<5xRxf32>", rows, columns);
  std::string type = sized("tensor<5xRxCxf32>", rows, columns);
  for (const IndexMap &map : makeMaps(1, rows)) {
    SCOPED_TRACE(write(map));
    Kernel kernel({{line, type},
                   {type},
                   "%r = \"test.reindex\"(%0) " + write(map) + " : (" + line +
                       ") -> " + line +
                       "\n%b = nn.broadcast %r dims [0, 1] : " + line + " -> " +
                       type + "\n%y = nn.add %b, %1 : " + type +
                       "\nplan.yield %y : " + type});
    ASSERT_TRUE(kernel.valid()) << kernel.errors;
    Buffer x(5 * rows), z(5 * rows * columns), y(5 * rows * columns);
    x.randomize(1), z.randomize(2);
    kernel({&x, &z, &y});
    for (int64_t index = 0; index < 5 * rows * columns; ++index) {
      int64_t row = index / columns;
      float read = look(map, row % rows,
                        [&](int64_t j) { return x[row / rows * rows + j]; });
      EXPECT_EQ(y[index], read + z[index]) << index;
    }
    kernel.expectSplit({&x, &z, &y}, 2);
  }
}

TEST_P(Reindex, Halves) {
  int64_t rows = 3, columns = GetParam();
  std::string type = sized("tensor<RxCxbf16>", rows, columns);
  for (const IndexMap &map : makeMaps(1, columns)) {
    SCOPED_TRACE(write(map));
    Kernel kernel = makeKernel(type, map);
    ASSERT_TRUE(kernel.valid()) << kernel.errors;
    Buffer x(rows * columns, true), y(rows * columns, true);
    for (int64_t index = 0; index < rows * columns; ++index)
      x.halves()[index] = BFloat16(0.5f * float(index % 97) - 20.0f);
    kernel({&x, &y});
    for (int64_t index = 0; index < rows * columns; ++index) {
      int64_t row = index / columns;
      EXPECT_EQ(
          float(y.halves()[index]),
          look(map, index % columns,
               [&](int64_t j) { return float(x.halves()[row * columns + j]); }))
          << index;
    }
    kernel.expectSplit({&x, &y}, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, Reindex,
                         testing::Values(2, 3, 8, 12, 16, 50, 96, 128, 257));

/// An op alone has a loop over its map's dimension, however short.
TEST(ReindexTest, OneElement) {
  IndexMap map = {1, {{1, 0, true}}};
  Kernel kernel = makeKernel("tensor<4x1xf32>", map);
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer x(4), y(4);
  x.randomize(1);
  kernel({&x, &y});
  for (int64_t index = 0; index < 4; ++index)
    EXPECT_EQ(y[index], -x[index]);
}

TEST(ReindexTest, NeedsALoop) {
  IndexMap map = {1, {{1, 0, true}}};
  Kernel kernel({{"tensor<4x1xf32>", "tensor<4x8xf32>"},
                 {"tensor<4x8xf32>"},
                 "%r = \"test.reindex\"(%0) " + write(map) +
                     R"( : (tensor<4x1xf32>) -> tensor<4x1xf32>
    %s = nn.reduce sum %r dims [1] : tensor<4x1xf32> -> tensor<4xf32>
    %b = nn.broadcast %s dims [0] : tensor<4xf32> -> tensor<4x8xf32>
    %y = nn.add %b, %1 : tensor<4x8xf32>
    plan.yield %y : tensor<4x8xf32>)"});
  EXPECT_FALSE(kernel.valid());
  EXPECT_NE(kernel.errors.find("reads elsewhere along a dimension that its "
                               "cluster has no loop over"),
            std::string::npos)
      << kernel.errors;
}

TEST(ReindexTest, OfWhatTheKernelMakes) {
  IndexMap map = {0, {{8, 0, true}}};
  Kernel kernel({{"tensor<8xf32>"},
                 {"tensor<8xf32>"},
                 "%z = nn.neg %0 : tensor<8xf32>\n%y = \"test.reindex\"(%z) " +
                     write(map) +
                     " : (tensor<8xf32>) -> tensor<8xf32>\n"
                     "plan.yield %y : tensor<8xf32>"});
  EXPECT_NE(kernel.errors.find("reads elsewhere in a tensor that its own "
                               "cluster computes"),
            std::string::npos)
      << kernel.errors;
}

/// What lies in the padding of the first dimension where that of the operand
/// has 2s.
static NumberRange derive(const IndexMap &map) {
  mlir::MLIRContext context;
  context.loadDialect<mlir::func::FuncDialect, TestDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      "func.func @f(%x: tensor<4x8xf32>) {\n%y = \"test.reindex\"(%x) " +
          write(map) + " : (tensor<4x8xf32>) -> tensor<4x8xf32>\nreturn\n}",
      &context);
  NumberRange found = NumberRange::any();
  module->walk([&](ShardableOpInterface op) {
    found = derivePadding(op, 0, NumberRange::exactly(2))[0];
  });
  return found;
}

TEST(ReindexTest, Padding) {
  EXPECT_TRUE(derive({1, {{5, 3}, {8, -5}}}).is(2));
  EXPECT_TRUE(derive({1, {{8, 0, true}}}).is(-2));
  NumberRange both = derive({1, {{5, 3, true}, {8, -5}}});
  EXPECT_TRUE(both.contains(2) && both.contains(-2));
  EXPECT_FALSE(both.contains(3));
  NumberRange cut = derive({1, {{5, 3}}});
  EXPECT_TRUE(cut.contains(2) && cut.contains(0));
  EXPECT_FALSE(cut.contains(-1));
}
