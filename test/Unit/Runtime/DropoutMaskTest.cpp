//===- DropoutMaskTest.cpp - Masks look like chance -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Counts of independent draws are within four standard deviations of what is
// expected but for one test in 16,000; the draws are the same in every run.
//
//===----------------------------------------------------------------------===//

#include "plait/Support/DropoutMask.h"
#include "plait/Runtime/Data.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"

#include <cmath>
#include <functional>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

constexpr uint32_t kKey = 0x3c6ef372;

bool isKept(uint32_t key, uint32_t site, uint32_t row, uint32_t column,
            double probability) {
  uint32_t hash = key;
  for (uint32_t number : {site, row, column})
    hash = extendMaskHash(MaskWords(), hash, number);
  return hash < getMaskThreshold(probability);
}

/// Standard deviations that `count` of `draws` is off, each being of this
/// probability.
double deviation(int64_t count, int64_t draws, double probability) {
  return (count - draws * probability) /
         std::sqrt(draws * probability * (1 - probability));
}

constexpr uint32_t kRows = 512, kColumns = 768;

TEST(DropoutMask, DropsAsOftenAsAsked) {
  for (double probability : {0.001, 0.1, 0.5, 0.9}) {
    int64_t dropped = 0;
    for (uint32_t row = 0; row < kRows; ++row)
      for (uint32_t column = 0; column < kColumns; ++column)
        dropped += !isKept(kKey, 2, row, column, probability);
    EXPECT_LT(std::abs(deviation(dropped, kRows * kColumns, probability)), 4)
        << probability;
  }
}

/// Rows and columns of one mask drop as often as they would by chance: the sum
/// of squared deviations is that of a chi-squared distribution.
TEST(DropoutMask, HasNoStripes) {
  for (bool byRow : {true, false}) {
    uint32_t lines = byRow ? kRows : kColumns,
             length = byRow ? kColumns : kRows;
    double squares = 0;
    for (uint32_t line = 0; line < lines; ++line) {
      int64_t dropped = 0;
      for (uint32_t at = 0; at < length; ++at)
        dropped += !isKept(kKey, 2, byRow ? line : at, byRow ? at : line, 0.1);
      squares += std::pow(deviation(dropped, length, 0.1), 2);
    }
    EXPECT_LT(std::abs(squares - lines) / std::sqrt(2.0 * lines), 4) << byRow;
  }
}

/// Two masks, or a mask and itself moved, drop an element together as often as
/// if neither knew of the other.
TEST(DropoutMask, IsLikeNoOther) {
  std::vector<uint8_t> bytes = plan::packPlan(makePlan());
  auto batches = Batches::random(0, *fb::GetPlan(bytes.data()));
  ASSERT_TRUE(batches.ok());
  auto key = [&](uint64_t seed, uint64_t step, int64_t row) {
    int32_t found;
    batches->drawKeys(seed);
    EXPECT_TRUE(
        batches
            ->readRow(step, row, fb::InputKind::Keys, 0, std::span(&found, 1))
            .ok());
    return uint32_t(found);
  };
  struct Other {
    const char *name;
    uint32_t key, site, row, column;
  };
  const uint32_t own = key(3, 1, 0);
  const Other others[] = {{"the column beside", own, 2, 0, 1},
                          {"a vector further", own, 2, 0, 16},
                          {"the row below", own, 2, 1, 0},
                          {"the next dropout", own, 3, 0, 0},
                          {"another layer's", own, 41, 0, 0},
                          {"the next key", own + 1, 2, 0, 0},
                          {"the next row of the batch", key(3, 1, 1), 2, 0, 0},
                          {"the next step", key(3, 2, 0), 2, 0, 0},
                          {"another seed", key(4, 1, 0), 2, 0, 0}};
  for (const Other &other : others)
    for (double probability : {0.1, 0.5}) {
      int64_t both = 0;
      for (uint32_t row = 0; row < kRows; ++row)
        for (uint32_t column = 0; column < kColumns; ++column)
          both += !isKept(own, 2, row, column, probability) &&
                  !isKept(other.key, other.site, row + other.row,
                          column + other.column, probability);
      EXPECT_LT(std::abs(deviation(both, kRows * kColumns,
                                   probability * probability)),
                4)
          << other.name << ", " << probability;
    }
}

TEST(DropoutMask, MixesAsPublished) {
  // lowbias32(1), of the published source by hand.
  uint32_t word = 1;
  word = (word ^ word >> 16) * 0x7feb352du;
  word = (word ^ word >> 15) * 0x846ca68bu;
  EXPECT_EQ(extendMaskHash(MaskWords(), 1, 0), word ^ word >> 16);
  EXPECT_EQ(getMaskThreshold(0), uint64_t(1) << 32);
  EXPECT_EQ(getMaskThreshold(0.25), uint64_t(3) << 30);
  EXPECT_EQ(getMaskScale(0.5), 2.0f);
}

} // namespace
