//===- GroupedGemmTest.cpp - Grouped GEMMs of a processor -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CPU/GroupedGemm.h"
#include "CPU/Team.h"
#include "GroupedCases.h"

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

static MultiplyGroups multiplyWith(unsigned threads) {
  return [=](const fb::GroupedGemmStep &step, int64_t first,
             const GroupedMemory &memory, bool add) {
    setTeamSize(threads);
    GroupedGemmLibrary library(threads);
    uint32_t number = library.prepare(step, first);
    return library.run(
        number,
        {memory.a.data(), memory.b.data(), memory.ids.data(), memory.c.data()},
        add);
  };
}

/// One row; fewer rows than experts; more than a block of rows, of columns, of
/// what is summed; matrices that are copied (isWorthCopying()).
constexpr GroupedSizes kSizes[] = {{1, 1, 1, 1, 1},
                                   {8, 2, 9, 5, 7},
                                   {780, 2, 2, 5, 400},
                                   {50, 1, 2, 2100, 5},
                                   {400, 1, 2, 33, 512}};

TEST(GroupedGemm, F32) {
  for (GroupedSizes sizes : kSizes)
    expectGroups<float, float>(sizes, multiplyWith(2));
}

TEST(GroupedGemm, BF16) {
  for (GroupedSizes sizes : kSizes) {
    expectGroups<BFloat16, BFloat16>(sizes, multiplyWith(2));
    expectGroups<BFloat16, float>(sizes, multiplyWith(2));
  }
}

/// The number of threads changes no bit.
TEST(GroupedGemm, DoesNotDependOnThreads) {
  for (auto kind : {fb::GroupedKind::Rows, fb::GroupedKind::Matrices}) {
    GroupedTrial<float, float> one({900, 3, 5, 400, 450}, kind, true,
                                   Choice::Any);
    auto two = one;
    ASSERT_TRUE(one.run(false, multiplyWith(1)).ok());
    ASSERT_TRUE(two.run(false, multiplyWith(2)).ok());
    EXPECT_EQ(one.c, two.c);
  }
}

/// What becomes of a row does not depend on how many others its expert has,
/// which ranks of experts change: not on how they are cut for oneDNN, nor on
/// whether the matrix is copied for them.
TEST(GroupedGemm, RowsDoNotDependOnOthers) {
  constexpr GroupedSizes sizes = {420, 1, 3, 68, 512};
  static_assert(isWorthCopying(sizes.n, 64) && !isWorthCopying(sizes.n, 63));
  for (bool transposed : {false, true}) {
    GroupedTrial<float, float> all(sizes, fb::GroupedKind::Rows, transposed,
                                   Choice::One);
    GroupedTrial<float, float> some = all;
    ASSERT_TRUE(all.run(false, multiplyWith(1)).ok());
    for (int64_t kept = 1; kept < sizes.rows; ++kept) {
      // The others are of nobody.
      std::fill_n(some.ids.begin(), kept, int(some.first));
      std::fill(some.ids.begin() + kept, some.ids.end(), INT32_MAX);
      ASSERT_TRUE(some.run(false, multiplyWith(1)).ok());
      ASSERT_TRUE(std::equal(all.c.begin(), all.c.begin() + kept * sizes.n,
                             some.c.begin()))
          << kept << " rows, " << transposed;
    }
  }
}
