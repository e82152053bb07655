//===- GroupedKernelsTest.cpp - Grouped GEMMs of a GPU, interpreted -------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CUDA/GroupedKernels.h"
#include "GroupedCases.h"
#include "PtxInterpreter.h"

#include <numeric>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

/// The kernels as they are shipped, in a grid whose blocks come in order or
/// from the last on.
class GroupedKernelsTest : public testing::Test {
protected:
  void SetUp() override { ASSERT_EQ(module.parse(groupedKernelsPtx), ""); }

  /// Orders the rows of `ids` as the kernel does.
  Status groupRows(std::span<const int32_t> ids, int64_t first, int64_t limit,
                   int64_t experts) {
    order.assign(ids.size(), -1);
    begins.assign(experts + 1, -1);
    return launch(
        PLAIT_GROUP_ROWS, experts + 1,
        {result(order),
         result(begins),
         {const_cast<int32_t *>(ids.data()), ids.size_bytes(), false}},
        {int64_t(ids.size()), first, limit, experts});
  }

  Status run(const fb::GroupedGemmStep &step, int64_t first,
             const GroupedMemory &memory, bool add) {
    std::span<const int32_t> ids(
        reinterpret_cast<const int32_t *>(memory.ids.data()), step.rows());
    PLAIT_RETURN_IF_ERROR(groupRows(ids, first, step.limit(), step.experts()));
    bool makes = step.kind() == fb::GroupedKind::Matrices;
    std::string types = step.dtype() == fb::DType::F32 ? PLAIT_GROUPED_F32
                        : step.c_dtype() == fb::DType::BF16
                            ? PLAIT_GROUPED_BF16
                            : PLAIT_GROUPED_WIDE;
    PtxBuffer a = operand(memory.a), b = operand(memory.b),
              c = {memory.c.data(), memory.c.size()};
    std::vector<PtxBuffer> buffers = {c, a, b, operand(order), operand(begins)};
    if (!makes)
      return launch(
          PLAIT_GROUPED_ROWS +
              std::string(step.transposed() ? PLAIT_GROUPED_TRANSPOSED : "") +
              types,
          groupedRowBlocks(step.rows(), step.experts(), step.n()), buffers,
          {step.rows(), step.repeat(), step.experts(), step.k(), step.n(),
           add});
    std::vector<int64_t> scalars = {
        step.rows(), step.repeat(), 1, step.experts(), step.k(), step.n(), add};
    if (step.transposed()) {
      std::swap(buffers[1], buffers[2]);
      std::swap(scalars[1], scalars[2]);
      std::swap(scalars[4], scalars[5]);
    }
    return launch(PLAIT_GROUPED_MATRICES + types,
                  groupedMatrixBlocks(step.experts(), scalars[4], scalars[5]),
                  buffers, scalars);
  }

  template <typename In, typename Out> void expectAll(GroupedSizes sizes) {
    expectGroups<In, Out>(sizes,
                          [&](auto &&...operands) { return run(operands...); });
  }

  PtxModule module;
  std::vector<int32_t> order, begins;
  bool reversed = false;

private:
  static PtxBuffer result(std::vector<int32_t> &list) {
    return {list.data(), list.size() * sizeof(int32_t)};
  }
  static PtxBuffer operand(std::span<std::byte> bytes) {
    return {bytes.data(), bytes.size(), false};
  }
  static PtxBuffer operand(std::vector<int32_t> &list) {
    return {list.data(), list.size() * sizeof(int32_t), false};
  }

  Status launch(const std::string &symbol, int64_t blocks,
                const std::vector<PtxBuffer> &buffers,
                const std::vector<int64_t> &scalars) {
    reversed = !reversed;
    std::string error =
        module.launch(symbol, blocks, buffers, scalars, reversed);
    return error.empty() ? Status::success() : Status::failure(error);
  }
};

/// One row; fewer rows than experts, of sizes that are no multiple of what is
/// loaded at once; several tiles of rows, of columns and of what is summed.
constexpr GroupedSizes kSizes[] = {
    {1, 1, 1, 1, 1}, {8, 2, 9, 5, 7}, {150, 3, 2, 40, 136}};

TEST_F(GroupedKernelsTest, F32) {
  for (GroupedSizes sizes : kSizes)
    expectAll<float, float>(sizes);
}

TEST_F(GroupedKernelsTest, BF16) {
  for (GroupedSizes sizes : kSizes)
    expectAll<BFloat16, BFloat16>(sizes);
}

TEST_F(GroupedKernelsTest, BF16IntoF32) {
  for (GroupedSizes sizes : kSizes)
    expectAll<BFloat16, float>(sizes);
}

/// Several passes of a warp, and more experts than threads of a tile: rows keep
/// their order within an expert, and those of none come last.
TEST_F(GroupedKernelsTest, OrdersRows) {
  std::mt19937 generator(7);
  std::vector<int32_t> ids(1100);
  for (int32_t &id : ids)
    id = int32_t(generator() % 160) - 10;
  constexpr int64_t first = 5, limit = 130, experts = 135;
  Status status = groupRows(ids, first, limit, experts);
  ASSERT_TRUE(status.ok()) << status.message();
  auto groupOf = [&](int32_t row) {
    int64_t expert = ids[row] - first;
    return expert >= 0 && ids[row] < limit ? expert : experts;
  };
  std::vector<int32_t> expected(ids.size());
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
    return groupOf(a) < groupOf(b);
  });
  EXPECT_EQ(order, expected);
  for (int64_t group = 0; group <= experts; ++group)
    EXPECT_EQ(begins[group],
              std::count_if(expected.begin(), expected.end(),
                            [&](int32_t row) { return groupOf(row) < group; }));
}

/// What is computed of a row has the same bits with other rows around it.
TEST_F(GroupedKernelsTest, RowsDoNotDependOnOthers) {
  GroupedTrial<BFloat16, float> all({90, 1, 3, 40, 24}, fb::GroupedKind::Rows,
                                    false, Choice::One);
  auto some = all;
  for (size_t row = 0; row < some.ids.size(); ++row)
    if (row % 4 != 1)
      some.ids[row] = int32_t(some.first) + 1 + int32_t(row % 2);
  auto multiply = [&](auto &&...operands) { return run(operands...); };
  ASSERT_TRUE(all.run(false, multiply).ok());
  ASSERT_TRUE(some.run(false, multiply).ok());
  for (size_t i = 0; i < all.c.size(); ++i)
    if (i / 24 % 4 == 1)
      EXPECT_EQ(all.c[i], some.c[i]) << i;
}

} // namespace
