//===- GeneratorsTest.cpp - Named schedules and transfers -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Generators.h"
#include "plait/Schedule/Verify.h"

#include <gtest/gtest.h>

#include <algorithm>

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
  EXPECT_EQ(messageOf(checkNamedBound(*schedule)), "ok");
}

TEST(Generators, GPipe) {
  auto schedule = generate("gpipe", {2, 1, 3});
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(print(*schedule), "F0 F1 F2 B0 B1 B2\nF0 F1 F2 B0 B1 B2\n");
}

// Each has a place of its own in the order of simplicity, and what is said to
// hold all microbatches does.
TEST(Generators, Facts) {
  std::vector<int> places;
  for (const Generator &generator : getGenerators()) {
    places.push_back(generator.simplicity);
    auto schedule = generate(generator.name, {4, generator.minChunks, 24});
    ASSERT_TRUE(schedule.ok());
    if (!generator.searches)
      EXPECT_EQ(peakActivations(*schedule, 3) == 24, generator.holdsAll)
          << generator.name;
  }
  std::sort(places.begin(), places.end());
  for (size_t i = 0; i < places.size(); ++i)
    EXPECT_EQ(places[i], int(i));
  EXPECT_EQ((*findGenerator("1f1b"))->simplicity, 0);
}

// Stages {1, 5}, {2, 6}, {3, 7} and {4, 8}, numbered from 0, in a ring and in a
// V.
TEST(Generators, Placement) {
  Problem ring{4, 2, 1}, turned{4, 2, 1, Placement::VShape};
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ring.stageOf(rank, 0), rank);
    EXPECT_EQ(ring.stageOf(rank, 1), rank + 4);
    EXPECT_EQ(turned.stageOf(rank, 0), rank);
    EXPECT_EQ(turned.stageOf(rank, 1), 7 - rank);
    for (const Problem &problem : {ring, turned})
      for (uint32_t chunk = 0; chunk < 2; ++chunk) {
        uint32_t stage = problem.stageOf(rank, chunk);
        EXPECT_EQ(problem.rankOf(stage), rank);
        EXPECT_EQ(problem.chunkOf(stage), chunk);
      }
  }
}

// Narayanan et al. (SC 2021): groups of p microbatches, through the chunks.
TEST(Generators, Interleaved) {
  auto schedule = generate("interleaved-1f1b", {2, 2, 4});
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(print(*schedule),
            "F0 F1 1F0 1F1 F2 1B0 F3 1B1 1F2 B0 1F3 B1 1B2 1B3 B2 B3\n"
            "F0 F1 1F0 1B0 1F1 1B1 F2 B0 F3 B1 1F2 1B2 1F3 1B3 B2 B3\n");
}

// Three are what is left of four.
TEST(Generators, InterleavedWithARest) {
  auto schedule = generate("interleaved-1f1b", {2, 2, 3});
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(print(*schedule), "F0 F1 1F0 1F1 F2 1B0 1B1 1F2 B0 B1 1B2 B2\n"
                              "F0 F1 1F0 1B0 1F1 1B1 F2 B0 B1 1F2 1B2 B2\n");
}

/// One schedule of the test below, which either is refused with a reason or
/// sound, complete or not.
void checkSound(const Generator &generator, const Problem &problem,
                const GeneratorOptions &options) {
  SCOPED_TRACE(std::string(generator.name) + ", stages " +
               std::to_string(problem.stages) + ", chunks " +
               std::to_string(problem.chunks) + ", microbatches " +
               std::to_string(problem.microbatches) + ", limit " +
               std::to_string(options.memory.limit));
  auto schedule = generate(generator.name, problem, options);
  bool ordered = problem.chunks >= generator.minChunks &&
                 problem.chunks <= generator.maxChunks;
  ASSERT_EQ(schedule.ok(), ordered);
  if (!ordered)
    return;
  EXPECT_EQ(messageOf(verify(*schedule)), "ok");
  EXPECT_EQ(messageOf(checkNamedBound(*schedule)), "ok");
  Schedule complete = insertTransfers(*schedule);
  EXPECT_EQ(messageOf(verify(complete)), "ok");
  if (!options.costs.forwards.empty())
    return;
  // With even stages, waiting for readers costs no time; next to none where an
  // order in a V was searched for with other costs than transfers are placed.
  bool searched = generator.searches && problem.chunks > 1;
  auto timeline = simulate(*schedule, options.costs);
  auto withTransfers = simulate(complete, options.costs);
  ASSERT_TRUE(timeline.ok() && withTransfers.ok());
  double slack = searched ? 0.005 : 1e-12; // rounding
  EXPECT_LE(withTransfers->span, timeline->span * (1 + slack));
}

TEST(Generators, AllAreSoundForAllSmallProblems) {
  Costs costs{18.522, 18.086, 9.337, 0.601};
  for (const Generator &generator : getGenerators())
    for (uint32_t stages = 1; stages <= 8; ++stages)
      for (uint32_t microbatches = 1; microbatches <= 12; ++microbatches)
        for (uint32_t chunks = 1; chunks <= 4; ++chunks) {
          GeneratorOptions options{perChunk(costs, chunks), {}};
          Problem problem{stages, chunks, microbatches};
          checkSound(generator, problem, options);
          if (!generator.searches)
            continue;
          for (double limit : {1.0, 1.5, 1.0 * stages, 2.0 * stages}) {
            options.memory.limit = limit;
            checkSound(generator, problem, options);
          }
        }
}

// Uneven stages change what a rank can do meanwhile, not what must hold.
TEST(Generators, AutomaticWithUnevenStages) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    uint32_t state = seed;
    auto draw = [&] { // 0 to 2, and often 0
      state = state * 1664525 + 1013904223;
      return std::max(0.0, (state >> 16) % 300 / 100.0 - 1);
    };
    Problem problem{1 + seed % 7, 1, 1 + seed % 11};
    GeneratorOptions options;
    options.memory = {0.3, 1 + draw() * problem.stages};
    for (uint32_t stage = 0; stage < problem.stages; ++stage) {
      options.costs.forwards.push_back(draw());
      options.costs.backwardInputs.push_back(draw());
      options.costs.backwardWeights.push_back(draw());
    }
    checkSound(**findGenerator("zb-auto"), problem, options);
  }
}

/// The peaks of all ranks.
std::vector<double> getPeaks(const char *kind, const Problem &problem) {
  auto schedule = generate(kind, problem);
  EXPECT_TRUE(schedule.ok());
  std::vector<double> peaks;
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    peaks.push_back(peakActivations(*schedule, rank));
    EXPECT_EQ(peakActivations(insertTransfers(*schedule), rank), peaks.back());
  }
  return peaks;
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

// Narayanan et al. (SC 2021), Qi et al. (ICLR 2024, Table 2; NeurIPS 2024).
TEST(Generators, PeakActivations) {
  for (auto [p, m] : {std::pair(4, 16), {5, 13}, {8, 24}}) {
    Problem problem{uint32_t(p), 1, uint32_t(m)};
    auto gpipe = getPeaks("gpipe", problem);
    auto oneFOneB = getPeaks("1f1b", problem);
    auto h1 = getPeaks("zb-h1", problem), h2 = getPeaks("zb-h2", problem);
    problem.chunks = 2;
    auto turned = getPeaks("zb-v", problem);
    for (int r = 0; r < p; ++r) {
      EXPECT_EQ(gpipe[r], m);
      EXPECT_EQ(oneFOneB[r], p - r);
      EXPECT_EQ(h1[r], p - r + r * 0.5);
      EXPECT_EQ(h2[r], 2 * (p - r) - 1 + 2 * r * 0.5);
      EXPECT_EQ(turned[r], p);
    }
    for (int v : {2, 3, 4}) {
      problem.chunks = v;
      auto interleaved = getPeaks("interleaved-1f1b", problem);
      for (int r = 0; r < p; ++r) {
        double paper = (2 * (p - r - 1) + (v - 1) * p + 1) / double(v);
        // Without a rest the peak is reached, with one it may not be.
        EXPECT_LE(interleaved[r], std::min<double>(m, paper));
        if (m % p == 0)
          EXPECT_EQ(interleaved[r], std::min<double>(m, paper));
      }
    }
  }
}

// Qi et al. (NeurIPS 2024): about p / 2 and p / 3, here counted up to the W;
// DeepSeek's DualPipeV: 2p + 1 chunks. The peak does not grow with m.
TEST(Generators, PeakActivationsInAV) {
  for (uint32_t p = 1; p <= 17; ++p)
    for (uint32_t m : {3 * p, 7 * p + 1}) {
      auto peak = [&](const char *kind) {
        uint32_t chunks = 0;
        auto schedule = generate(kind, {p, 2, m});
        EXPECT_TRUE(schedule.ok());
        for (uint32_t rank = 0; rank < p; ++rank)
          chunks = std::max(chunks, peakInFlight(*schedule, rank));
        return chunks / 2.0;
      };
      EXPECT_LE(peak("v-half"), p / 2.0 + 1);
      EXPECT_LE(peak("v-min"), p / 3.0 + 5 / 3.0);
      EXPECT_LE(peak("dualpipe-v"), p + 0.5);
    }
}

TEST(Generators, BreadthFirst) {
  auto schedule = generate("breadth-first", {2, 2, 3});
  ASSERT_TRUE(schedule.ok());
  for (const std::vector<Action> &actions : schedule->ranks)
    EXPECT_EQ(print(actions), "F0 F1 F2 1F0 1F1 1F2 1B0 1B1 1B2 B0 B1 B2");
}

// As in DeepSeek's repository, for two ranks and four microbatches, with I and
// W for its whole backwards.
TEST(Generators, DualPipeV) {
  auto schedule = generate("dualpipe-v", {2, 2, 4});
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(print(*schedule),
            "F0 F1 F2 1F0 1I0 1W0 1F1 F3 1I1 1W1 1F2 I0 W0 1I2 1W2 1F3 I1 W1 "
            "1I3 1W3 I2 W2 I3 W3\n"
            "F0 1F0 F1 1F1 F2 1I0 1W0 1F2 I0 W0 F3 1I1 1W1 1F3 I1 W1 1I2 1W2 "
            "I2 W2 1I3 I3 1W3 W3\n");
}

TEST(Generators, PeakActivationsOfPartsOfRanks) {
  auto schedule = parseSchedule({1, 2, 1}, "", "F0 1F0 1I0 I0 1W0 W0");
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(peakActivations(*schedule, 0), 1);
  EXPECT_EQ(peakActivations(*schedule, 1), 0);
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

// Chunks of rank 1 are neighbours at the turn and exchange nothing.
TEST(Generators, InsertTransfersInAV) {
  auto schedule = parseSchedule({2, 2, 1, Placement::VShape}, "",
                                "F0 1F0 1B0 B0\nF0 1F0 1B0 B0\n");
  ASSERT_TRUE(schedule.ok());
  Schedule complete = insertTransfers(*schedule);
  EXPECT_EQ(messageOf(verify(complete)), "ok");
  EXPECT_EQ(print(complete),
            "F0 SEND_F0 1RECV_F0 1F0 1B0 1SEND_B0 RECV_B0 B0 WAIT_F0 "
            "1WAIT_B0 REDUCE OPTIMIZER\n"
            "RECV_F0 F0 1F0 1SEND_F0 1RECV_B0 1B0 B0 SEND_B0 WAIT_B0 1WAIT_F0 "
            "REDUCE OPTIMIZER\n");
}

// Rank 0 starts three forwards before its first backward; rank 1 reads the
// second only after its own first backward, which rank 0 reads after the third.
TEST(Generators, InsertTransfersWithTwoUnfinishedMessages) {
  const char *row0 = "F0 F1 F2 B0 B1 B2\n", *row1 = "F0 B0 B1 F1 F2 B2\n";
  auto unsound = parseSchedule({2, 1, 3}, "", std::string(row0) + row1);
  ASSERT_TRUE(unsound.ok());
  EXPECT_NE(messageOf(verify(insertTransfers(*unsound))), "ok");
  auto schedule = parseSchedule({3, 1, 4}, "",
                                "F0 F1 F2 F3 B0 B1 B2 B3\n"
                                "F0 B0 F1 B1 F2 B2 F3 B3\n"
                                "F0 B0 F1 B1 F2 B2 F3 B3\n");
  ASSERT_TRUE(schedule.ok());
  Schedule complete = insertTransfers(*schedule);
  EXPECT_EQ(messageOf(verify(complete)), "ok");
  EXPECT_EQ(print(complete.ranks[0]),
            "F0 SEND_F0 F1 SEND_F1 F2 WAIT_F0 SEND_F2 F3 WAIT_F1 SEND_F3 "
            "RECV_B0 B0 RECV_B1 B1 RECV_B2 B2 RECV_B3 B3 WAIT_F2 WAIT_F3 "
            "REDUCE OPTIMIZER");
}

TEST(Generators, Errors) {
  EXPECT_EQ(
      messageOf(generate("zigzag", {2, 1, 2}).status()),
      "unknown schedule 'zigzag', expected one of gpipe, 1f1b, "
      "interleaved-1f1b, breadth-first, zb-h1, zb-h2, zb-v, v-half, v-min, "
      "dualpipe-v, zb-auto");
  EXPECT_EQ(messageOf(generate("1f1b", {2, 2, 2}).status()),
            "schedule 1f1b orders exactly 1 chunk(s) per rank, got 2");
  EXPECT_EQ(messageOf(generate("interleaved-1f1b", {2, 1, 2}).status()),
            "schedule interleaved-1f1b orders at least 2 chunk(s) per rank, "
            "got 1");
  EXPECT_EQ(messageOf(generate("zb-auto", {2, 3, 2}).status()),
            "schedule zb-auto orders 1 to 2 chunk(s) per rank, got 3");
  EXPECT_EQ(messageOf(generate("1f1b", {0, 1, 2}).status()),
            "schedule has 0 stages, expected at least 1");
  EXPECT_EQ(messageOf(generate("interleaved-1f1b", {2, 0, 2}).status()),
            "schedule has 0 chunks per rank, expected at least 1");
  EXPECT_EQ(messageOf(generate("1f1b", {2, 1, 0}).status()),
            "schedule has 0 microbatches, expected at least 1");
  EXPECT_EQ(messageOf(generate("1f1b", {2048, 1, 4096}).status()),
            "schedule of 2048 stages, 1 chunks per rank and 4096 microbatches "
            "has more than 4194304 pairs of virtual stage and microbatch");
}

TEST(Generators, OptionErrors) {
  auto errorOf = [](const char *kind, const GeneratorOptions &options) {
    return messageOf(generate(kind, {4, 1, 8}, options).status());
  };
  EXPECT_EQ(errorOf("zb-h2", {{}, {0.5, 6}}),
            "schedule zb-h2 holds 7 activations on rank 0, the limit is 6");
  EXPECT_EQ(errorOf("zb-h2", {{}, {0.5, 7}}), "ok");
  EXPECT_EQ(errorOf("zb-auto", {{}, {0.5, 0.5}}),
            "memory limit is 0.5, expected 1 to 1e+09 activations of a "
            "microbatch, or 0 for none");
  EXPECT_EQ(errorOf("zb-auto", {{}, {-1, 4}}),
            "weight share is -1, expected 0 to 1");
  EXPECT_EQ(errorOf("zb-auto", {{-1, 1, 1, 0}, {}}),
            "cost of forward is -1, expected 0 to 1e+12");
}

} // namespace
