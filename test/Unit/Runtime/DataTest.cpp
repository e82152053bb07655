//===- DataTest.cpp - Which tokens a step sees ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Data.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
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
    Status status = batches.readRow(step, row, kind, /*first=*/0, tokens);
    EXPECT_TRUE(status.ok()) << status.message();
    return tokens;
  }
  std::string textError() {
    auto batches = Batches::fromText(path, plan);
    return batches.ok() ? "" : batches.status().message();
  }
};

using Tokens = std::vector<int32_t>;

TEST_F(DataTest, SamplesOverlapByOneAndWrap) {
  // 12 tokens and a last target: 6 samples, 4 rows a step.
  writeFile(path, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13});
  auto batches = Batches::fromText(path, plan);
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  EXPECT_EQ(batches->order().samples(), 6u);
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
  auto batches = Batches::fromText(path, plan);
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

TEST_F(DataTest, DocumentsStartBehindTheirEnds) {
  fb::PlanT longer = makePlan();
  longer.sequence = 6;
  auto packed = plan::packPlan(longer);
  // Samples 9 1 1 9 9 1 and 1 9 1 1 1 9, of which 9 ends a document.
  writeFile(path, {9, 1, 1, 9, 9, 1, 1, 9, 1, 1, 1, 9, 1});
  auto batches = Batches::fromText(path, *fb::GetPlan(packed.data()));
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  auto starts = [&](int64_t row, int64_t first, size_t count) {
    Tokens found(count, -1);
    Status status =
        batches->readRow(1, row, fb::InputKind::Starts, first, found);
    EXPECT_TRUE(status.ok()) << status.message();
    return found;
  };
  EXPECT_EQ(starts(0, 0, 6), (Tokens{0, 0, 0, 0, 0, 0}));
  std::string before = batches->describe();
  ASSERT_TRUE(batches->endDocuments(9).ok());
  EXPECT_EQ(starts(0, 0, 6), (Tokens{0, 1, 1, 1, 4, 5}));
  // What a sample before ended with does not count.
  EXPECT_EQ(starts(1, 0, 6), (Tokens{0, 0, 2, 2, 2, 2}));
  // A rank of cp has a part of the positions.
  EXPECT_EQ(starts(0, 2, 3), (Tokens{1, 1, 4}));
  EXPECT_EQ(starts(1, 4, 2), (Tokens{2, 2}));
  // The samples are the same, so that a run with it goes on from one without.
  EXPECT_EQ(batches->describe(), before);
  EXPECT_EQ(batches->endDocuments(uint64_t(longer.vocab_size)).message(),
            "`document-end` is " + std::to_string(longer.vocab_size) +
                ", the vocabulary has " + std::to_string(longer.vocab_size) +
                " tokens");
}

TEST_F(DataTest, TokensHaveTwoOrFourBytes) {
  writeFile(path, {1, 0, 2, 0, 3, 0});
  auto batches = Batches::fromTokens(path, "", plan);
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  EXPECT_EQ(row(*batches, 1, 0, fb::InputKind::Targets), (Tokens{2, 3}));
  fb::PlanT large = makePlan();
  large.vocab_size = 65537;
  auto packed = plan::packPlan(large);
  writeFile(path, {0, 0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0});
  batches = Batches::fromTokens(path, "", *fb::GetPlan(packed.data()));
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  EXPECT_EQ(row(*batches, 1, 0), (Tokens{65536, 2}));
}

/// Of a plan for 2 tokens that takes features [2, 3] and context [].
class RowsTest : public DataTest {
protected:
  void SetUp() override {
    fb::PlanT made = makePlan();
    fb::FloatInputT &features = append(made.float_inputs);
    features.name = "features";
    features.of_positions = true;
    features.shape = {3};
    append(made.float_inputs).name = "context";
    bytes = plan::packPlan(made);
    taking = fb::GetPlan(bytes.data());
  }

  /// Row r has the tokens r, r + 1, r + 2 and the numbers r + 0.5, r + 1.5, …
  static std::vector<int32_t> makeRows(int count) {
    std::vector<int32_t> words;
    for (int r = 0; r < count; ++r) {
      for (int i = 0; i < 3; ++i)
        words.push_back(r + i);
      for (int i = 0; i < 7; ++i)
        words.push_back(std::bit_cast<int32_t>(float(r + i) + 0.5F));
    }
    return words;
  }
  void write(const std::vector<int32_t> &words) {
    auto data = std::as_bytes(std::span(words));
    const auto *first = reinterpret_cast<const uint8_t *>(data.data());
    writeFile(path, std::vector<uint8_t>(first, first + data.size()));
  }
  std::vector<float> floats(const Batches &batches, int64_t row, uint32_t input,
                            int64_t first, size_t count) {
    std::vector<int32_t> found(count);
    Status status = batches.readFloats(1, row, input, first, found);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<float> result;
    for (int32_t word : found)
      result.push_back(std::bit_cast<float>(word));
    return result;
  }
  std::vector<uint8_t> bytes;
  const fb::Plan *taking = nullptr;
};

TEST_F(RowsTest, FilesHaveTokensAndNumbers) {
  write(makeRows(5));
  auto batches = Batches::fromTokens(path, "", *taking);
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  EXPECT_EQ(batches->order().samples(), 5u);
  EXPECT_EQ(row(*batches, 1, 2), (Tokens{2, 3}));
  EXPECT_EQ(row(*batches, 1, 2, fb::InputKind::Targets), (Tokens{3, 4}));
  EXPECT_EQ(floats(*batches, 2, 0, 0, 6),
            (std::vector<float>{2.5F, 3.5F, 4.5F, 5.5F, 6.5F, 7.5F}));
  EXPECT_EQ(floats(*batches, 2, 0, 3, 3),
            (std::vector<float>{5.5F, 6.5F, 7.5F}));
  EXPECT_EQ(floats(*batches, 3, 1, 0, 1), (std::vector<float>{9.5F}));
}

TEST_F(RowsTest, GivenRowsAreThoseOfFiles) {
  Batches batches = Batches::given(*taking);
  ASSERT_TRUE(batches.setRows(makeRows(4)).ok());
  EXPECT_EQ(row(batches, 1, 3), (Tokens{3, 4}));
  EXPECT_EQ(floats(batches, 3, 1, 0, 1), (std::vector<float>{9.5F}));
}

TEST_F(RowsTest, RefusesWhatIsNoRow) {
  std::vector<int32_t> rows = makeRows(4);
  auto fileError = [&](std::vector<int32_t> words) {
    write(words);
    auto batches = Batches::fromTokens(path, "", *taking);
    return batches.ok() ? "" : batches.status().message();
  };
  rows.pop_back();
  EXPECT_NE(fileError(rows).find("which are no rows of 40: of each 3 tokens "
                                 "and 7 numbers"),
            std::string::npos);
  Batches batches = Batches::given(*taking);
  EXPECT_NE(batches.setRows(rows).message().find("4 rows with 10 words each"),
            std::string::npos);
  rows = makeRows(4);
  rows[14] = std::bit_cast<int32_t>(NAN);
  EXPECT_EQ(batches.setRows(rows).message(),
            "number 1 of 'features' in row 1 is nan, expected a finite one");
  rows = makeRows(4);
  rows[11] = -1;
  EXPECT_NE(batches.setRows(rows).message().find("token 1 of row 1 is -1"),
            std::string::npos);
  EXPECT_NE(Batches::fromText(path, *taking)
                .status()
                .message()
                .find("'features', numbers that texts do not have"),
            std::string::npos);
}

TEST_F(RowsTest, RandomNumbersAreFromMinusOneToOne) {
  auto batches = Batches::random(3, *taking);
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  std::vector<float> found = floats(*batches, 1, 0, 0, 6);
  EXPECT_EQ(std::set<float>(found.begin(), found.end()).size(), 6u);
  for (float number : found)
    EXPECT_LE(std::abs(number), 1);
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
    auto batches = Batches::fromTokens(path, type, plan);
    return batches.ok() ? "" : batches.status().message();
  };
  const std::string advice =
      ": as uint16 every other token is 0; say with `token-type` what it is";
  for (auto [type, bytes] : {std::pair("int32", 4), {"int64", 8}}) {
    writeFile(path, makeTokens(bytes));
    EXPECT_EQ(read(""), "'" + path + "' looks like " + type + advice);
    EXPECT_EQ(read("uint16"), "");
    auto batches = Batches::fromTokens(path, type, plan);
    ASSERT_TRUE(batches.ok()) << batches.status().message();
    EXPECT_EQ(row(*batches, 1, 0, fb::InputKind::Targets), (Tokens{2, 3}));
  }
  writeFile(path, makeTokens(2));
  EXPECT_EQ(read(""), "");
  writeFile(path, std::vector<uint8_t>(64)); // zeros are zeros in any type
  EXPECT_EQ(read(""), "");
  writeFile(path, {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_NE(read("int32").find("token 0 is -1"), std::string::npos);
  EXPECT_EQ(read("int8"), "token type 'int8' is unknown, expected one of "
                          "uint16, uint32, int32, int64");
  std::string array = "\x93NUMPY and so on.";
  writeFile(path, {array.begin(), array.end()});
  EXPECT_NE(read("").find("is a NumPy file"), std::string::npos);
}

/// A shard of llm.c with the tokens 1, 2, 3.
std::vector<uint8_t> makeShard(std::array<uint32_t, 3> words, size_t bytes) {
  std::vector<uint8_t> content(1024), tokens = makeTokens(bytes);
  std::memcpy(content.data(), words.data(), sizeof(words));
  content.insert(content.end(), tokens.begin(), tokens.begin() + 3 * bytes);
  return content;
}

TEST_F(DataTest, ShardsOfLlmC) {
  auto read = [&](const char *type = "") {
    auto batches = Batches::fromTokens(path, type, plan);
    return batches.ok() ? "" : batches.status().message();
  };
  for (auto [magic, version, type, bytes] :
       {std::tuple(20240520u, 1u, "uint16", size_t(2)),
        {20240801u, 7u, "uint32", size_t(4)}}) {
    std::vector<uint8_t> shard = makeShard({magic, version, 3}, bytes);
    writeFile(path, shard);
    for (const char *given : {"", type}) {
      auto batches = Batches::fromTokens(path, given, plan);
      ASSERT_TRUE(batches.ok()) << batches.status().message();
      EXPECT_EQ(row(*batches, 1, 0), (Tokens{1, 2}));
      EXPECT_EQ(row(*batches, 1, 0, fb::InputKind::Targets), (Tokens{2, 3}));
    }
    EXPECT_NE(read("int64").find("`token-type` says int64"), std::string::npos);
    shard.pop_back();
    writeFile(path, shard);
    EXPECT_NE(read().find("a shard of llm.c of 3 tokens"), std::string::npos);
    shard.resize(1000);
    writeFile(path, shard);
    EXPECT_NE(read().find("is truncated: it has 1000 bytes, the header of "
                          "llm.c alone 1024"),
              std::string::npos);
    writeFile(path, makeShard({magic, 9, 3}, bytes));
    EXPECT_NE(read().find("of version 9, expected"), std::string::npos);
    writeFile(path, makeShard({magic, version, 0xffffffff}, bytes));
    EXPECT_NE(read().find("of 4294967295 tokens"), std::string::npos);
  }
  writeFile(path, makeShard({20240522, 1, 3}, 2));
  EXPECT_NE(read().find("is an evaluation of llm.c"), std::string::npos);
}

/// Other files are no lists of tokens, though any bytes are tokens to a large
/// vocabulary. Said to be tokens, text is read.
TEST_F(DataTest, FilesOfOtherFormats) {
  fb::PlanT large = makePlan();
  large.vocab_size = 65536;
  auto packed = plan::packPlan(large);
  auto read = [&](std::string_view begin, const char *type = "") {
    std::string text(begin);
    text.resize(600);
    writeFile(path, {text.begin(), text.end()});
    auto batches = Batches::fromTokens(path, type, *fb::GetPlan(packed.data()));
    return batches.ok() ? "" : batches.status().message();
  };
  using namespace std::string_view_literals;
  for (std::string_view begin :
       {"\x7f"
        "ELF"sv,
        "\x1f\x8b\x08\0"sv, "PK\x03\x04"sv, "GGUF"sv, "\x28\xb5\x2f\xfd"sv,
        "PAR1"sv, "MMIDIDX\0\0"sv, "PLAITPLN"sv, "\x93NUMPY\x01\0"sv,
        "\x02\0\0\0\0\0\0\0{}"sv})
    for (const char *type : {"", "uint16"})
      EXPECT_EQ(read(begin, type).find("'" + path + "' is a"), 0u) << begin;
  EXPECT_EQ(read("\x02\0\0\0\0\0\0\0{}"sv)
                .find("'" + path + "' is a safetensors file"),
            0u);
  // A length of a header without a header.
  EXPECT_EQ(read("\x02\0\0\0\0\0\0\0[]"sv, "uint16"), "");
  std::string tar(257, 'x');
  EXPECT_NE(read(tar + "ustar").find("is a tar file"), std::string::npos);
  std::string text(600, 'a');
  EXPECT_NE(read(text).find("looks like text"), std::string::npos);
  EXPECT_EQ(read(text, "uint16"), "");
  EXPECT_EQ(read("\n" + text.substr(2) + "\x01"), "");
  // It is that before its bytes are too many for a token, or beyond those of a
  // small vocabulary.
  packed = plan::packPlan(makePlan());
  EXPECT_NE(read(text).find("looks like text"), std::string::npos);
  writeFile(path, std::vector<uint8_t>(601, 'a'));
  auto odd = Batches::fromTokens(path, "", *fb::GetPlan(packed.data()));
  ASSERT_FALSE(odd.ok());
  EXPECT_NE(odd.status().message().find("looks like text"), std::string::npos);
}

/// Zeros between the tokens of a few may be meant, and an odd number of tokens
/// is no half as many wider ones.
TEST_F(DataTest, FewTokensAreWhatTheyAre) {
  for (size_t count : {3, 4, 6, 33}) {
    std::vector<uint8_t> tokens(2 * count);
    for (size_t i = 0; i < count; i += 2)
      tokens[2 * i] = i + 1;
    writeFile(path, tokens);
    auto batches = Batches::fromTokens(path, "", plan);
    EXPECT_TRUE(batches.ok()) << batches.status().message();
  }
}

TEST_F(DataTest, InterleavesTheMicrobatchesOfReplicas) {
  std::vector<uint8_t> text;
  for (int i = 0; i < 81; ++i)
    text.push_back(i);
  writeFile(path, text);
  auto whole = Batches::fromText(path, plan);
  auto together = Batches::fromText(path, plan);
  ASSERT_TRUE(whole.ok() && together.ok());
  together->interleave(2, 1);
  // The plan's 4 rows: replica 0 has 0 and 1, replica 1 has 2 and 3.
  for (auto [asked, expected] : {std::pair(0, 0), {1, 2}, {2, 1}, {3, 3}})
    EXPECT_EQ(row(*together, 1, asked), row(*whole, 1, expected));
}

/// Every pass has each sample once, whatever the size, and another order.
TEST(SampleOrderTest, PassesArePermutations) {
  for (uint64_t size : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000}) {
    auto order = SampleOrder::create({size}, {}, {"a"});
    ASSERT_TRUE(order.ok());
    order->shuffle(5);
    std::vector<uint64_t> before;
    for (uint64_t pass = 0; pass < 3; ++pass) {
      std::vector<uint64_t> entries;
      for (uint64_t i = 0; i < size; ++i)
        entries.push_back(order->find(pass * size + i).index);
      EXPECT_EQ(std::set(entries.begin(), entries.end()).size(), size);
      EXPECT_TRUE(size < 16 || entries != before);
      before = entries;
    }
  }
}

/// Over many seeds each of the 24 orders of four samples is as likely: the
/// chi-square statistic of 23 degrees of freedom is below 58.6 but for once in
/// 20,000 (upper quantile).
TEST(SampleOrderTest, AllOrdersAreAlikeOften) {
  std::map<std::vector<uint64_t>, int> counts;
  constexpr int draws = 24000;
  for (int seed = 0; seed < draws; ++seed) {
    auto order = SampleOrder::create({4}, {}, {"a"});
    order->shuffle(seed);
    std::vector<uint64_t> entries;
    for (uint64_t i = 0; i < 4; ++i)
      entries.push_back(order->find(i).index);
    ++counts[entries];
  }
  EXPECT_EQ(counts.size(), 24u);
  double chiSquare = 0, expected = draws / 24.0;
  for (auto &[entries, count] : counts)
    chiSquare += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chiSquare, 58.6);
}

TEST(SampleOrderTest, WeightsAreMet) {
  auto order = SampleOrder::create({10, 1, 7}, {0.7, 0, 0.3}, {"a", "b", "c"});
  ASSERT_TRUE(order.ok());
  EXPECT_FALSE(order->passSamples());
  std::vector<int> counts(3);
  for (uint64_t i = 0; i < 200000; ++i) {
    Sample sample = order->find(i);
    ++counts[sample.source];
    // Evenly: never a whole sample off.
    EXPECT_NEAR(counts[0], 0.7 * double(i + 1), 1.0);
  }
  EXPECT_EQ(counts, (std::vector{140000, 0, 60000}));
  auto tiny = SampleOrder::create({1, 1}, {1, 1e-7}, {"a", "b"});
  ASSERT_FALSE(tiny.ok());
  EXPECT_EQ(tiny.status().message(),
            "'b' has the weight 1e-07, less than 1/100000 of all");
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
  auto batches = Batches::fromTokens(path, "", plan);
  ASSERT_FALSE(batches.ok());
  EXPECT_NE(batches.status().message().find(
                "has 3 bytes, not a multiple of 2, the size of a token"),
            std::string::npos);
}

} // namespace
