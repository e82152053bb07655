//===- CudaGroupedGemmsTest.cpp - Grouped GEMMs of a GPU ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CUDA/CudaBackend.h"
#include "GroupedCases.h"
#include "TestPlan.h"

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

/// One rank's device, or the test is skipped.
class CudaGroupedGemmsTest : public ::testing::Test {
protected:
  static constexpr uint64_t operandBytes = 2 << 20, workspaceBytes = 4096;

  void SetUp() override {
    plan = packWorkspacePlan(4 * operandBytes, workspaceBytes);
    ExecutorOptions options;
    options.devices = 1;
    auto made = createCudaThreadBackend(*fb::GetPlan(plan.data()), {}, options);
    if (!made.ok() && made.status().message().starts_with("this plan is for "))
      GTEST_SKIP() << made.status().message();
    ASSERT_TRUE(made.ok()) << made.status().message();
    backend = std::move(*made);
    ASSERT_TRUE(device().attachThread().ok());
  }

  Device &device() { return *backend.parts.front().device; }

  /// The operands lie one after the other in the arena.
  Status run(const fb::GroupedGemmStep &step, int64_t first,
             const GroupedMemory &memory, bool add) {
    const std::pair<uint64_t, std::span<std::byte>> parts[] = {
        {0, memory.a},
        {operandBytes, memory.b},
        {2 * operandBytes, memory.ids},
        {3 * operandBytes, memory.c}};
    for (auto [place, bytes] : parts)
      PLAIT_RETURN_IF_ERROR(device().write(place, bytes));
    auto prepared = device().prepareGroupedGemm(step, first);
    if (!prepared.ok())
      return prepared.status();
    std::byte *arena = device().arena();
    PLAIT_RETURN_IF_ERROR(device().groupedGemm(*prepared,
                                               {arena, arena + operandBytes,
                                                arena + 2 * operandBytes,
                                                arena + 3 * operandBytes},
                                               add));
    return device().read(3 * operandBytes, memory.c);
  }

  MultiplyGroups multiplier() {
    return [this](auto &&...operands) { return run(operands...); };
  }

  std::vector<uint8_t> plan;
  Backend backend;
};

/// One row; fewer rows than experts; sizes that are multiples of what is loaded
/// at once and others; several tiles of rows, of columns, and of what is
/// summed.
constexpr GroupedSizes kSizes[] = {{1, 1, 1, 1, 1},
                                   {8, 2, 9, 5, 7},
                                   {780, 2, 2, 40, 136},
                                   {50, 1, 2, 2100, 5},
                                   {300, 3, 140, 24, 17}};

TEST_F(CudaGroupedGemmsTest, F32) {
  for (GroupedSizes sizes : kSizes)
    expectGroups<float, float>(sizes, multiplier());
}

TEST_F(CudaGroupedGemmsTest, BF16) {
  for (GroupedSizes sizes : kSizes) {
    expectGroups<BFloat16, BFloat16>(sizes, multiplier());
    expectGroups<BFloat16, float>(sizes, multiplier());
  }
}

TEST_F(CudaGroupedGemmsTest, NeedsItsWorkspace) {
  GroupedTrial<float, float> trial({1100, 1, 2, 3, 3}, fb::GroupedKind::Rows,
                                   false, Choice::Any);
  EXPECT_EQ(trial.run(false, multiplier()).message(),
            "a grouped GEMM of 1100 rows needs a workspace of 4412 bytes, the "
            "plan has 4096");
}

} // namespace
