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
    batches.readRow(step, row, kind, /*first=*/0, tokens);
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

/// The numbers are the reference implementation's (random123, philox4x32-10) of
/// the counter (row, 0, step, 0) under the key (seed, 0).
TEST_F(DataTest, KeysFollowFromSeedStepAndRow) {
  writeFile(path, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13});
  auto batches = Batches::fromTextFile(path, plan);
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  batches->drawKeys(7);
  EXPECT_EQ(row(*batches, 1, 0, fb::InputKind::Keys),
            (Tokens{2126179728, 2126179728}));
  EXPECT_EQ(row(*batches, 3, 2, fb::InputKind::Keys),
            (Tokens{1601570834, 1601570834}));
  // Replicas side by side: the same rows of the global batch, the same keys.
  batches->interleave(2, 1);
  EXPECT_EQ(row(*batches, 3, 1, fb::InputKind::Keys),
            (Tokens{1601570834, 1601570834}));
}

TEST_F(DataTest, TokensHaveTwoOrFourBytes) {
  writeFile(path, {1, 0, 2, 0, 3, 0});
  auto batches = Batches::fromTokenFile(path, "", plan);
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  EXPECT_EQ(row(*batches, 1, 0, fb::InputKind::Targets), (Tokens{2, 3}));
  fb::PlanT large = makePlan();
  large.vocab_size = 65537;
  auto packed = plan::packPlan(large);
  writeFile(path, {0, 0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0});
  batches = Batches::fromTokenFile(path, "", *fb::GetPlan(packed.data()));
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  EXPECT_EQ(row(*batches, 1, 0), (Tokens{65536, 2}));
}

/// The tokens 1, 2, 3 (and 0), `bytes` each.
std::vector<uint8_t> makeTokens(size_t bytes) {
  std::vector<uint8_t> content(4 * bytes);
  for (size_t i = 0; i < 3; ++i)
    content[i * bytes] = i + 1;
  return content;
}

TEST_F(DataTest, WiderTokensAreDeclared) {
  auto read = [&](const char *type) {
    auto batches = Batches::fromTokenFile(path, type, plan);
    return batches.ok() ? "" : batches.status().message();
  };
  const std::string advice =
      ": as uint16 every other token is 0; say with --token-type what it is";
  for (auto [type, bytes] : {std::pair("int32", 4), {"int64", 8}}) {
    writeFile(path, makeTokens(bytes));
    EXPECT_EQ(read(""), "'" + path + "' looks like " + type + advice);
    EXPECT_EQ(read("uint16"), "");
    auto batches = Batches::fromTokenFile(path, type, plan);
    ASSERT_TRUE(batches.ok()) << batches.status().message();
    EXPECT_EQ(row(*batches, 1, 0, fb::InputKind::Targets), (Tokens{2, 3}));
  }
  writeFile(path, makeTokens(2));
  EXPECT_EQ(read(""), "");
  writeFile(path, std::vector<uint8_t>(64)); // zeros are zeros in any type
  EXPECT_EQ(read(""), "");
  writeFile(path, {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_NE(read("int32").find("token 0 is 4294967295"), std::string::npos);
  EXPECT_EQ(read("int8"), "token type 'int8' is unknown, expected one of "
                          "uint16, int32, int64");
  std::string array = "\x93NUMPY and so on.";
  writeFile(path, {array.begin(), array.end()});
  EXPECT_NE(read("").find("is a NumPy file"), std::string::npos);
}

TEST_F(DataTest, InterleavesTheMicrobatchesOfReplicas) {
  std::vector<uint8_t> text;
  for (int i = 0; i < 81; ++i)
    text.push_back(i);
  writeFile(path, text);
  auto whole = Batches::fromTextFile(path, plan);
  auto together = Batches::fromTextFile(path, plan);
  ASSERT_TRUE(whole.ok() && together.ok());
  together->interleave(2, 1);
  // The plan's 4 rows: replica 0 has 0 and 1, replica 1 has 2 and 3.
  for (auto [asked, expected] : {std::pair(0, 0), {1, 2}, {2, 1}, {3, 3}})
    EXPECT_EQ(row(*together, 1, asked), row(*whole, 1, expected));
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
  auto batches = Batches::fromTokenFile(path, "", plan);
  ASSERT_FALSE(batches.ok());
  EXPECT_NE(batches.status().message().find("not a multiple of 2"),
            std::string::npos);
}

} // namespace
