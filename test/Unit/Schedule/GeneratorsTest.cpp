//===- GeneratorsTest.cpp - Named schedules and transfers -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Generators.h"
#include "plait/Schedule/Verify.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::schedule;

namespace {

std::string messageOf(const Status &status) {
  return status.ok() ? "ok" : status.message();
}

// The order as drawn in teaching material, numbered from 0.
TEST(Generators, OneFOneBAsDrawn) {
  auto schedule = generate("1f1b", {4, 1, 8});
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(print(*schedule),
            "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7\n"
            "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7\n"
            "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7\n"
            "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7\n");
}

TEST(Generators, OneFOneBWithFewerMicrobatchesThanStages) {
  auto schedule = generate("1f1b", {4, 1, 2});
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(print(*schedule), "F0 F1 B0 B1\nF0 F1 B0 B1\n"
                              "F0 F1 B0 B1\nF0 B0 F1 B1\n");
  EXPECT_EQ(messageOf(verify(*schedule)), "ok");
}

TEST(Generators, GPipe) {
  auto schedule = generate("gpipe", {2, 1, 3});
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(print(*schedule), "F0 F1 F2 B0 B1 B2\nF0 F1 F2 B0 B1 B2\n");
}

TEST(Generators, AllAreSoundForAllSmallProblems) {
  for (const Generator &generator : getGenerators())
    for (uint32_t stages = 1; stages <= 6; ++stages)
      for (uint32_t microbatches = 1; microbatches <= 9; ++microbatches) {
        auto schedule = generate(generator.name, {stages, 1, microbatches});
        ASSERT_TRUE(schedule.ok());
        EXPECT_EQ(messageOf(verify(*schedule)), "ok");
        EXPECT_EQ(messageOf(verify(insertTransfers(*schedule))), "ok")
            << generator.name << " " << stages << " " << microbatches;
      }
}

TEST(Generators, PeakInFlight) {
  auto gpipe = generate("gpipe", {4, 1, 8});
  auto oneFOneB = generate("1f1b", {4, 1, 8});
  ASSERT_TRUE(gpipe.ok() && oneFOneB.ok());
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(peakInFlight(*gpipe, rank), 8u);
    EXPECT_EQ(peakInFlight(*oneFOneB, rank), 4 - rank);
    EXPECT_EQ(peakInFlight(insertTransfers(*oneFOneB), rank), 4 - rank);
  }
  EXPECT_EQ(peakInFlight(*gpipe, 4), 0u);
}

TEST(Generators, InsertTransfers) {
  auto schedule = generate("1f1b", {3, 1, 2});
  ASSERT_TRUE(schedule.ok());
  Schedule complete = insertTransfers(*schedule);
  EXPECT_EQ(print(complete),
            "F0 SEND_F0 F1 WAIT_F0 SEND_F1 RECV_B0 B0 RECV_B1 B1 WAIT_F1 "
            "REDUCE OPTIMIZER\n"
            "RECV_F0 F0 SEND_F0 RECV_F1 F1 WAIT_F0 SEND_F1 RECV_B0 B0 SEND_B0 "
            "RECV_B1 B1 WAIT_B0 SEND_B1 WAIT_F1 WAIT_B1 REDUCE OPTIMIZER\n"
            "RECV_F0 F0 B0 SEND_B0 RECV_F1 F1 B1 WAIT_B0 SEND_B1 WAIT_B1 "
            "REDUCE OPTIMIZER\n");
  EXPECT_EQ(complete.ranks[1][0].peer, 0u);
  EXPECT_EQ(complete.ranks[1][2].peer, 2u);
  EXPECT_EQ(insertTransfers(complete), complete);
}

TEST(Generators, InsertTransfersWithoutPipeline) {
  auto schedule = generate("1f1b", {1, 1, 2});
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(print(insertTransfers(*schedule)),
            "F0 B0 F1 B1 REDUCE OPTIMIZER\n");
}

// The last virtual stage of a rank sends to the next chunk of the first rank.
TEST(Generators, InsertTransfersWithChunks) {
  const char *row = "F0 F1 1F0 1F1 1B0 1B1 B0 B1\n";
  auto schedule = parseSchedule({2, 2, 2}, "", std::string(row) + row);
  ASSERT_TRUE(schedule.ok());
  Schedule complete = insertTransfers(*schedule);
  EXPECT_EQ(messageOf(verify(complete)), "ok");
  EXPECT_EQ(print(complete.ranks[1]).substr(0, 50),
            "RECV_F0 F0 SEND_F0 RECV_F1 F1 WAIT_F0 SEND_F1 1REC");
}

TEST(Generators, InsertTransfersBetweenChunksOfOneRank) {
  auto schedule = parseSchedule({1, 2, 1}, "", "F0 1F0 1B0 B0");
  ASSERT_TRUE(schedule.ok());
  Schedule complete = insertTransfers(*schedule);
  EXPECT_EQ(print(complete), "F0 1F0 1B0 B0 REDUCE OPTIMIZER\n");
  EXPECT_EQ(messageOf(verify(complete)), "ok");
}

TEST(Generators, Errors) {
  EXPECT_EQ(messageOf(generate("zigzag", {2, 1, 2}).status()),
            "unknown schedule 'zigzag', expected one of gpipe, 1f1b");
  EXPECT_EQ(messageOf(generate("1f1b", {2, 2, 2}).status()),
            "schedule 1f1b orders at most 1 chunk(s) per rank, got 2");
  EXPECT_EQ(messageOf(generate("1f1b", {0, 1, 2}).status()),
            "schedule has 0 stages, expected at least 1");
  EXPECT_EQ(messageOf(generate("1f1b", {2, 0, 2}).status()),
            "schedule has 0 chunks per rank, expected at least 1");
  EXPECT_EQ(messageOf(generate("1f1b", {2, 1, 0}).status()),
            "schedule has 0 microbatches, expected at least 1");
  EXPECT_EQ(messageOf(generate("1f1b", {2048, 1, 4096}).status()),
            "schedule of 2048 stages, 1 chunks per rank and 4096 microbatches "
            "has more than 4194304 pairs of virtual stage and microbatch");
}

} // namespace
