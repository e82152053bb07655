//===- EstimateErrorsTest.cpp - What cannot be estimated ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EstimateSetting.h"

#include <span>

using namespace plait;
using namespace plait::planner;

template <typename Change> static std::string messageOf(Change change) {
  EstimateSetting setting;
  change(setting);
  return setting.message();
}

// Every count, below and above what it may be.
TEST(Estimate, SaysWhichCountIsOutOfRange) {
  using Change = void (*)(EstimateSetting &, int64_t);
  const std::pair<const char *, Change> counts[] = {
      {"pp", [](EstimateSetting &s,
                int64_t n) { s.configuration.mesh[Axis::PP] = int(n); }},
      {"dp", [](EstimateSetting &s,
                int64_t n) { s.configuration.mesh[Axis::DP] = int(n); }},
      {"cp", [](EstimateSetting &s,
                int64_t n) { s.configuration.mesh[Axis::CP] = int(n); }},
      {"chunks",
       [](EstimateSetting &s, int64_t n) { s.configuration.chunks = int(n); }},
      {"microbatch",
       [](EstimateSetting &s, int64_t n) { s.configuration.microBatch = n; }},
      {"global batch",
       [](EstimateSetting &s, int64_t n) { s.training.globalBatch = n; }},
      {"sequence",
       [](EstimateSetting &s, int64_t n) { s.training.sequence = n; }}};
  for (auto [name, change] : counts)
    for (int64_t count : {0, -3}) {
      EstimateSetting setting;
      change(setting, count);
      EXPECT_EQ(setting.message(), std::string(name) + " is " +
                                       std::to_string(count) +
                                       ", expected at least 1");
    }
  for (auto [name, change] : std::span(counts).subspan(4)) {
    EstimateSetting setting;
    change(setting, int64_t(1) << 31);
    EXPECT_EQ(setting.message(), std::string(name) +
                                     " is 2147483648, expected at most "
                                     "2147483647");
  }
  EXPECT_EQ(messageOf([](EstimateSetting &s) { s.configuration.zero = -1; }),
            "zero stage is -1, expected 0 to 3");
  EXPECT_EQ(messageOf([](EstimateSetting &s) { s.configuration.zero = 4; }),
            "zero stage is 4, expected 0 to 3");
}

TEST(Estimate, SaysWhichMeshDoesNotFit) {
  EXPECT_EQ(messageOf([](EstimateSetting &s) {
              s.configuration.mesh[Axis::DP] = 128;
            }),
            "mesh pp=1,dp=128,tp=1 "
            "needs more than the cluster's 64 devices");
  // A product that does not fit into 64 bit.
  EXPECT_EQ(messageOf([](EstimateSetting &s) {
              s.configuration.mesh[Axis::PP] = s.configuration.mesh[Axis::DP] =
                  s.configuration.mesh[Axis::CP] = 2147483647;
            }),
            "mesh pp=2147483647,dp=2147483647,cp=2147483647,tp=1 "
            "needs more than the cluster's 64 devices");
  EXPECT_EQ(messageOf([](EstimateSetting &s) {
              s.configuration.chunks = 2147483647;
              s.configuration.mesh[Axis::PP] = 64;
            }),
            "the pipeline has 137438953408 virtual stages, the model 16 "
            "layers");
  EXPECT_EQ(messageOf([](EstimateSetting &s) {
              s.configuration.mesh[Axis::PP] = 32;
            }),
            "the pipeline has 32 virtual stages, the model 16 layers");
  EXPECT_NE(messageOf([](EstimateSetting &s) {
              s.configuration.mesh[Axis::CP] = 3;
            }).find("not a multiple of cp 3"),
            std::string::npos);
}

TEST(Estimate, SaysWhichLayersDoNotAddUp) {
  EXPECT_EQ(
      messageOf([](EstimateSetting &s) { s.configuration.layers = {17, -1}; }),
      "virtual stage 1 is given -1 layers, expected at least 0");
  EXPECT_EQ(messageOf([](EstimateSetting &s) {
              s.configuration.layers = {0, 0, 16};
            }),
            "virtual stage 1 is given 0 layers, expected at least 1");
  EXPECT_EQ(
      messageOf([](EstimateSetting &s) { s.configuration.layers = {8, 7}; }),
      "the layers given add up to 15, the model has 16");
  EXPECT_EQ(
      messageOf([](EstimateSetting &s) { s.configuration.layers = {8, 8}; }),
      "layers are given for 2 virtual stages, the pipeline has 1");
  EXPECT_EQ(
      messageOf([](EstimateSetting &s) { s.configuration.layers = {15}; }),
      "the layers given add up to 15, the model has 16");
}

TEST(Estimate, SaysWhichScheduleOrSizeMakesNoSense) {
  EXPECT_NE(messageOf([](EstimateSetting &s) {
              s.configuration.chunks = 2;
            }).find("1f1b"),
            std::string::npos);
  EXPECT_NE(messageOf([](EstimateSetting &s) {
              s.configuration.schedule = "2f2b";
            }).find("unknown schedule '2f2b'"),
            std::string::npos);
  EXPECT_EQ(
      messageOf([](EstimateSetting &s) { s.configuration.microBatch = 3; }),
      "global batch 64 is not a multiple of microbatch 3 x data-parallel 1");
  EXPECT_EQ(messageOf([](EstimateSetting &s) { s.training.sequence = 1024; }),
            "the work is for sequences of 2048 tokens, the training has 1024");
}

TEST(Estimate, SaysWhatTheWorkIsNotFor) {
  EstimateSetting setting;
  Work work = buildTransformerWork(setting.shape, 2, false);
  auto mismatch =
      estimate(work, setting.cluster, setting.training, setting.configuration);
  ASSERT_FALSE(mismatch.ok());
  EXPECT_EQ(mismatch.status().message(),
            "the work is for tp 2, the configuration has 1");
  setting.configuration.mesh[Axis::TP] = 2;
  setting.configuration.sequenceParallel = true;
  mismatch =
      estimate(work, setting.cluster, setting.training, setting.configuration);
  ASSERT_FALSE(mismatch.ok());
  EXPECT_EQ(mismatch.status().message(),
            "the work is without sequence parallelism, the configuration is "
            "with");
  setting.configuration.sequenceParallel = false;
  work.expertParallel = setting.configuration.mesh[Axis::EP] = 2;
  setting.configuration.expertExchange = ExpertExchange::Rows;
  mismatch =
      estimate(work, setting.cluster, setting.training, setting.configuration);
  ASSERT_FALSE(mismatch.ok());
  EXPECT_EQ(mismatch.status().message(),
            "the work exchanges tokens around experts, the configuration rows");
}

// What is sent as factors has no blocks, by which ZeRO 2 would count.
TEST(Estimate, SaysWhichZeroACompressorTakes) {
  EstimateSetting setting;
  setting.configuration.mesh[Axis::DP] = 2;
  ASSERT_TRUE(parse("compress", "powersgd:2", setting.training.compress).ok());
  setting.configuration.zero = 1;
  EXPECT_EQ(setting.message(), "");
  for (int zero : {2, 3}) {
    setting.configuration.zero = zero;
    EXPECT_TRUE(setting.message().starts_with(
        "compress is powersgd:2, which takes zero 0 or 1, not " +
        std::to_string(zero)))
        << setting.message();
  }
}
