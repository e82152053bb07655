//===- CompressionTest.cpp - What is said of compressed gradients ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Configuration/Configuration.h"

#include <gtest/gtest.h>

using namespace plait;

TEST(Compression, IsReadAndWritten) {
  for (const char *text :
       {"none", "int8", "int8:32", "int8:4096", "int8+feedback",
        "int8:128+feedback", "int4:64", "int8+replicas:4",
        "int8:64+feedback+replicas:2", "topk:64+keep:2+feedback+rounds:4",
        "sign+rounds:16", "randk+feedback+rounds:2+replicas:4", "powersgd",
        "powersgd:2+feedback", "powersgd+feedback+replicas:2", "int8+both",
        "topk:64+keep:2+feedback+rounds:2+both+replicas:4"}) {
    Compression value;
    Status status = parse("compress", text, value);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(print(value), text);
  }
  // What means the same is the same.
  for (auto [text, same] :
       {std::pair("int8:256", "int8"),
        {"int8+replicas:2+feedback", "int8+feedback+replicas:2"},
        {"topk:4096+keep:64", "topk"},
        {"topk:32+keep:1", "topk:32"},
        {"topk+feedback+keep:5", "topk+keep:5+feedback"},
        {"qsgd4:256", "qsgd4"},
        {"topk+rounds:1", "topk"},
        {"sign+rounds:2+feedback", "sign+feedback+rounds:2"},
        {"onebit-adam:4096", "onebit-adam"},
        {"onebit-adam:32+replicas:2", "onebit-adam:32+replicas:2"},
        {"randk:128+keep:2", "randk:128"},
        {"int8+both+feedback", "int8+feedback+both"},
        {"powersgd:4+feedback", "powersgd+feedback"}}) {
    Compression value;
    ASSERT_TRUE(parse("compress", text, value).ok());
    EXPECT_EQ(print(value), same);
  }
}

TEST(Compression, SaysWhatItCannotRead) {
  for (auto [text, message] :
       {std::pair("", "compress is \"\", expected none, int8, int4, "
                      "sign, topk, qsgd8, qsgd4, qsgd2, randk, "
                      "ef21-topk, onebit-adam or powersgd"),
        {"int2", "compress is \"int2\", expected none, int8, int4, "
                 "sign, topk, qsgd8, qsgd4, qsgd2, randk, "
                 "ef21-topk, onebit-adam or powersgd"},
        {"none+feedback", "compress is \"none\", expected none, int8, int4, "
                          "sign, topk, qsgd8, qsgd4, qsgd2, randk, "
                          "ef21-topk, onebit-adam or powersgd"},
        {"int8:", "compress has chunks of \"\", expected 32 to 4096"},
        {"int8:16", "compress has chunks of \"16\", expected 32 to 4096"},
        {"int8:8192", "compress has chunks of \"8192\", expected 32 to 4096"},
        {"int8:96",
         "compress has chunks of 96 elements, expected a power of two"},
        {"int8:64x", "compress has chunks of \"64x\", expected 32 to 4096"},
        {"int8+", "compress has \"\" behind the scheme, expected feedback, "
                  "rounds:R, both or replicas:N, each once"},
        {"int8+feedback+feedback",
         "compress has \"feedback\" behind the scheme, expected feedback, "
         "rounds:R, both or replicas:N, each once"},
        {"int8+feedback:1",
         "compress has \"feedback\" behind the scheme, expected feedback, "
         "rounds:R, both or replicas:N, each once"},
        {"sign+keep:1", "compress has \"keep\" behind the scheme, expected "
                        "feedback, rounds:R, both or replicas:N, each once"},
        {"topk+keep:1+keep:2", "compress has \"keep\" behind the scheme, "
                               "expected feedback, keep:K, "
                               "rounds:R, both or replicas:N, each once"},
        {"topk+keep", "compress has keep \"\", expected 1 to 4096"},
        {"topk+keep:0", "compress has keep \"0\", expected 1 to 4096"},
        {"qsgd8+keep:1", "compress has \"keep\" behind the scheme, expected "
                         "feedback, rounds:R, both or replicas:N, each once"},
        {"ef21-topk+feedback",
         "compress has \"feedback\" behind the scheme, expected keep:K or "
         "replicas:N, each once"},
        {"onebit-adam+feedback",
         "compress has \"feedback\" behind the scheme, expected replicas:N, "
         "each once"},
        {"onebit-adam+rounds:2",
         "compress has \"rounds\" behind the scheme, expected replicas:N, each "
         "once"},
        {"topk+rounds:0", "compress has rounds \"0\", expected 1 to 16"},
        {"topk+rounds:17", "compress has rounds \"17\", expected 1 to 16"},
        {"topk+rounds", "compress has rounds \"\", expected 1 to 16"},
        {"ef21-topk+rounds:2",
         "compress has \"rounds\" behind the scheme, expected keep:K or "
         "replicas:N, each once"},
        {"qsgd4+rounds:2",
         "compress is qsgd4+rounds:2, but what a message of qsgd4 leaves out "
         "grows from round to round, expected feedback, which makes it shrink"},
        {"randk+rounds:2",
         "compress is randk+rounds:2, but what a message of randk leaves out "
         "grows from round to round, expected feedback, which makes it shrink"},
        {"int8+both:2",
         "compress has \"both\" behind the scheme, expected feedback, "
         "rounds:R, both or replicas:N, each once"},
        {"powersgd+both",
         "compress has \"both\" behind the scheme, expected feedback or "
         "replicas:N, each once"},
        {"ef21-topk+both",
         "compress has \"both\" behind the scheme, expected keep:K or "
         "replicas:N, each once"},
        {"randk+keep:0", "compress has keep \"0\", expected 1 to 4096"},
        {"topk:64+keep:65", "compress has keep \"65\", expected 1 to 64"},
        {"powersgd:0", "compress has a rank of \"0\", expected 1 to 64"},
        {"powersgd:65", "compress has a rank of \"65\", expected 1 to 64"},
        {"powersgd:2x", "compress has a rank of \"2x\", expected 1 to 64"},
        {"powersgd+keep:2", "compress has \"keep\" behind the scheme, expected "
                            "feedback or replicas:N, each once"},
        {"powersgd+rounds:2",
         "compress has \"rounds\" behind the scheme, expected feedback or "
         "replicas:N, each once"},
        {"int8+replicas", "compress has replicas \"\", expected 1 to 16777216"},
        {"int8+replicas:0",
         "compress has replicas \"0\", expected 1 to 16777216"}}) {
    Compression value;
    EXPECT_EQ(parse("compress", text, value).message(), message);
  }
}

TEST(Compression, CountsWholeChunks) {
  Compression value;
  ASSERT_TRUE(parse("compress", "int8", value).ok());
  EXPECT_EQ(value.getMessageBytes(256), 260u);
  EXPECT_EQ(value.getMessageBytes(257), 520u);
  EXPECT_EQ(value.getMessageBytes(1), 260u);
  // 3.94 times less than fp32.
  EXPECT_NEAR(4.0 * (1 << 20) / double(value.getMessageBytes(1 << 20)), 3.94,
              0.005);
  ASSERT_TRUE(parse("compress", "int4:32", value).ok());
  EXPECT_EQ(value.getMessageBytes(33), 40u);
  // Each round has as many.
  ASSERT_TRUE(parse("compress", "int4:32+rounds:3", value).ok());
  EXPECT_EQ(value.getMessageBytes(33), 120u);
}

/// By the formats of docs/Communication.md.
TEST(Compression, SaysWhichAreSentInFewestBytes) {
  auto count = [](const char *text) {
    Compression value;
    EXPECT_TRUE(parse("compress", text, value).ok()) << text;
    return value.getMessageBytes(uint64_t(value.block));
  };
  EXPECT_EQ(count("sign"), 4096u / 8 + 4);
  EXPECT_EQ(count("sign:32"), 8u);
  // 16 bits for each of 64 and of 255, up to a whole word.
  EXPECT_EQ(count("topk"), 64u * 2 + 64 * 4);
  EXPECT_EQ(count("topk+keep:255"), 256u * 2 + 255 * 4);
  EXPECT_EQ(count("topk:32"), 4u + 4);
  // A bit for each of all.
  EXPECT_EQ(count("topk+keep:257"), 4096u / 8 + 257 * 4);
  EXPECT_EQ(count("topk+keep:4096"), 4096u / 8 + 4096 * 4);
  EXPECT_EQ(count("topk:32+keep:3"), 4u + 3 * 4);
  EXPECT_EQ(count("qsgd8"), 256u + 4);
  EXPECT_EQ(count("qsgd2:32"), 8u + 4);
  // All ranks know which.
  EXPECT_EQ(count("randk"), 64u * 4);
  EXPECT_EQ(count("randk:32+keep:32"), 32u * 4);
  EXPECT_EQ(count("ef21-topk:32+keep:3"), count("topk:32+keep:3"));
}

TEST(Compression, ExcludesWhatDividesOrRounds) {
  TrainingConfiguration configuration;
  ASSERT_TRUE(setField(configuration, "compress", "int8+feedback").ok());
  EXPECT_TRUE(checkExecutable(configuration).ok());
  configuration.zero = 1;
  EXPECT_TRUE(checkExecutable(configuration).ok());
  configuration.zero = 2;
  EXPECT_TRUE(checkExecutable(configuration).ok());
  configuration.zero = 3;
  EXPECT_TRUE(checkExecutable(configuration).ok());
  configuration.zero = 2;
  for (const char *other : {"int8", "powersgd+feedback"}) {
    ASSERT_TRUE(setField(configuration, "compress", other).ok());
    EXPECT_EQ(checkExecutable(configuration).message(),
              std::string("compress is ") + other +
                  ", which takes zero 0 or 1, not 2: zero 2 adds gradients to "
                  "errors of blocks, which it does not keep");
  }
  configuration.zero = 1;
  ASSERT_TRUE(setField(configuration, "compress", "int8+feedback+both").ok());
  EXPECT_EQ(checkExecutable(configuration).message(),
            "compress is int8+feedback+both, which compresses what replicas "
            "get back. By zero 1 these are weights: it takes zero 0");
  configuration.zero = 0;
  EXPECT_TRUE(checkExecutable(configuration).ok());
  ASSERT_TRUE(setField(configuration, "compress", "int8+feedback").ok());
  configuration.reducePrecision = Precision::BF16;
  EXPECT_EQ(checkExecutable(configuration).message(),
            "compress is int8+feedback, which takes reduce-precision fp32, not "
            "bf16");
  configuration.reducePrecision = Precision::FP32;
  ASSERT_TRUE(setField(configuration, "compress", "ef21-topk").ok());
  EXPECT_EQ(checkExecutable(configuration).message(),
            "compress is ef21-topk, which is defined for optimizer sgd, not "
            "adamw");
  configuration.optimizer = "sgd";
  EXPECT_TRUE(checkExecutable(configuration).ok());
}

/// The cut with the least sum of sides; of equal ones the first.
TEST(Compression, TakesTensorsForMatrices) {
  for (auto [shape, cut, rows, columns] :
       {std::tuple(std::vector<int64_t>{6, 4}, 1, 6, 4),
        {{2, 3, 4}, 2, 6, 4},
        {{8, 2, 4}, 1, 8, 8},
        {{2, 2, 2}, 1, 2, 4}}) {
    MatrixSides sides = getMatrixSides(shape);
    EXPECT_EQ(sides.cut, size_t(cut));
    EXPECT_EQ(sides.rows, rows);
    EXPECT_EQ(sides.columns, columns);
  }
}

TEST(Compression, SendsFactorsOfMatricesAlone) {
  Compression value;
  ASSERT_TRUE(parse("compress", "powersgd", value).ok());
  EXPECT_TRUE(sendsFactors(value));
  EXPECT_TRUE(compresses(value, 2));
  EXPECT_FALSE(compresses(value, 1));
  ASSERT_TRUE(parse("compress", "int8", value).ok());
  EXPECT_FALSE(sendsFactors(value));
  EXPECT_TRUE(compresses(value, 1));
  EXPECT_FALSE(compresses(value, 0));
}

TEST(Compression, SendsMomentumOfAdamWOnly) {
  TrainingConfiguration configuration;
  ASSERT_TRUE(setField(configuration, "compress", "onebit-adam").ok());
  EXPECT_TRUE(checkExecutable(configuration).ok());
  configuration.zero = 1;
  EXPECT_EQ(checkExecutable(configuration).message(),
            "compress is onebit-adam, for which each replica has all of the "
            "momentum: it takes zero 0, not 1");
  configuration.zero = 0;
  configuration.offload.optimizer = MemoryPlace::Host;
  EXPECT_EQ(checkExecutable(configuration).message(),
            "compress is onebit-adam, which takes no offload of the optimizer, "
            "but it is optimizer");
  configuration.offload = {};
  for (const char *other : {"sgd", "lion", "muon"}) {
    configuration.optimizer = other;
    EXPECT_EQ(checkExecutable(configuration).message(),
              std::string("compress is onebit-adam, which is defined for "
                          "optimizer adamw, not ") +
                  other);
  }
  EXPECT_EQ(getCompressionStates(configuration.compress).size(), 1u);
}

/// Of sums there is an error only where they are compressed and fed back.
TEST(Compression, KeepsAnErrorOfSums) {
  for (auto [text, states] : {std::pair("int8", 0u),
                              {"int8+feedback", 1},
                              {"int8+both", 0},
                              {"int8+feedback+both", 2}}) {
    Compression value;
    ASSERT_TRUE(parse("compress", text, value).ok());
    EXPECT_EQ(getCompressionStates(value).size(), states) << text;
    EXPECT_EQ(keepsSumError(value), states == 2) << text;
  }
}

/// Matrices that an optimizer updates as a whole are in no rows of packs.
TEST(Compression, TakesZero0WithMatrices) {
  TrainingConfiguration configuration;
  configuration.optimizer = "muon";
  for (const char *text : {"int8", "topk+feedback", "powersgd:2"}) {
    ASSERT_TRUE(parse("compress", text, configuration.compress).ok());
    configuration.zero = 0;
    EXPECT_TRUE(checkExecutable(configuration).ok());
    configuration.zero = 1;
    EXPECT_EQ(checkExecutable(configuration).message(),
              std::string("compress is ") + text +
                  ", which takes zero 0 with an optimizer of whole matrices, "
                  "not 1: ranks divide these in other parts than they send");
  }
  configuration.compress = {};
  EXPECT_TRUE(checkExecutable(configuration).ok());
}
