//===- DataTest.cpp - Which tokens a step sees ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Data.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"

#include <gtest/gtest.h>
#include <set>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

class DataTest : public ::testing::Test {
protected:
  std::string path = makeDirectory() + "/tokens";
  std::vector<uint8_t> bytes = plan::packPlan(makePlan());
  const fb::Plan &plan = *fb::GetPlan(bytes.data());

  std::vector<int32_t> row(const Batches &batches, uint64_t step, int64_t row,
                           fb::InputKind kind = fb::InputKind::Tokens) {
    std::vector<int32_t> tokens(2);
    batches.readRow(step, row, kind, tokens.data());
    return tokens;
  }
  std::string textError() {
    auto batches = Batches::fromTextFile(path, plan);
    return batches.ok() ? "" : batches.status().message();
  }
};

using Tokens = std::vector<int32_t>;

TEST_F(DataTest, SamplesOverlapByOneAndWrap) {
  // 12 tokens and a last target: 6 samples, 4 rows a step.
  writeFile(path, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13});
  auto batches = Batches::fromTextFile(path, plan);
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  EXPECT_EQ(batches->samples(), 6u);
  EXPECT_EQ(row(*batches, 1, 0), (Tokens{0, 1}));
  EXPECT_EQ(row(*batches, 1, 0, fb::InputKind::Targets), (Tokens{1, 2}));
  EXPECT_EQ(row(*batches, 2, 1), (Tokens{10, 11}));
  EXPECT_EQ(row(*batches, 2, 1, fb::InputKind::Targets), (Tokens{11, 12}));
  EXPECT_EQ(row(*batches, 2, 2), (Tokens{0, 1}));
}

TEST_F(DataTest, TokensHaveTwoOrFourBytes) {
  writeFile(path, {1, 0, 2, 0, 3, 0});
  auto batches = Batches::fromTokenFile(path, plan);
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  EXPECT_EQ(row(*batches, 1, 0, fb::InputKind::Targets), (Tokens{2, 3}));
  fb::PlanT large = makePlan();
  large.vocab_size = 65537;
  auto packed = plan::packPlan(large);
  writeFile(path, {0, 0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0});
  batches = Batches::fromTokenFile(path, *fb::GetPlan(packed.data()));
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  EXPECT_EQ(row(*batches, 1, 0), (Tokens{65536, 2}));
}

TEST_F(DataTest, ShuffleIsAPermutation) {
  std::vector<uint8_t> text;
  for (int i = 0; i < 81; ++i)
    text.push_back(i);
  writeFile(path, text);
  auto one = Batches::fromTextFile(path, plan);
  auto two = Batches::fromTextFile(path, plan);
  one->shuffle(5);
  two->shuffle(5);
  std::set<int32_t> seen;
  bool moved = false;
  for (int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(row(*one, 1, i), row(*two, 1, i));
    seen.insert(row(*one, 1, i)[0]);
    moved |= row(*one, 1, i)[0] != 2 * i;
  }
  EXPECT_EQ(seen.size(), 40u);
  EXPECT_TRUE(moved);
}

TEST_F(DataTest, NamesWhatIsWrong) {
  EXPECT_NE(textError().find("No such file"), std::string::npos);
  writeFile(path, {1, 2});
  EXPECT_NE(textError().find("has 2 tokens, one sample needs 3"),
            std::string::npos);
  writeFile(path, {1, 2, 3, 4, 100, 5});
  EXPECT_NE(textError().find("token 4 is 100, the vocabulary has 100"),
            std::string::npos);
  writeFile(path, {1, 2, 3});
  auto batches = Batches::fromTokenFile(path, plan);
  ASSERT_FALSE(batches.ok());
  EXPECT_NE(batches.status().message().find("not a multiple of 2"),
            std::string::npos);
}

} // namespace
