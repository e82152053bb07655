//===- PublishedTest.cpp - Bubble rates against published ones ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Bound.h"
#include "plait/Schedule/Generators.h"
#include "plait/Schedule/Verify.h"

#include <gtest/gtest.h>

#include <iterator>

using namespace plait;
using namespace plait::schedule;

namespace {

// Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024: times of the passes
// on a rank, measured in milliseconds, and the bubble rates given for them. The
// interleaved schedule has 3 chunks a rank; ZB-1p and ZB-2p are the automatic
// schedules within p and 2p activations.
struct Row {
  uint32_t stages, microbatches;
  Costs costs;
  double oneFOneB, interleaved, h1, h2, auto1p, auto2p;
};
const Row rows[] = {
    {8,
     24,
     {18.522, 18.086, 9.337, 0.601},
     0.2431,
     0.1055,
     0.1585,
     0.1083,
     0.1585,
     0.0433},
    {8,
     32,
     {18.513, 18.086, 9.331, 0.626},
     0.1985,
     0.0818,
     0.1242,
     0.0837,
     0.1242,
     0.0039},
    {8,
     64,
     {18.546, 18.097, 9.321, 0.762},
     0.1240,
     0.0443,
     0.0674,
     0.0444,
     0.0674,
     0.0026},
    {16,
     48,
     {11.347, 11.248, 8.132, 0.377},
     0.2552,
     0.1104,
     0.1397,
     0.0672,
     0.1397,
     0.0066},
    {16,
     64,
     {11.307, 11.254, 8.101, 0.379},
     0.2082,
     0.0852,
     0.1088,
     0.0516,
     0.1088,
     0.0054},
    {16,
     128,
     {11.325, 11.308, 8.109, 0.378},
     0.1251,
     0.0445,
     0.0576,
     0.0266,
     0.0576,
     0.0028},
};
constexpr double rounding = 0.00005; // of the published figures

double getRate(const char *kind, const Row &row, uint32_t chunks = 1,
               double limit = 0) {
  SCOPED_TRACE(std::string(kind) + ", stages " + std::to_string(row.stages) +
               ", microbatches " + std::to_string(row.microbatches));
  GeneratorOptions options{perChunk(row.costs, chunks), {0.5, limit}};
  auto schedule =
      generate(kind, {row.stages, chunks, row.microbatches}, options);
  if (!schedule.ok()) {
    ADD_FAILURE() << schedule.status().message();
    return 1;
  }
  EXPECT_TRUE(verify(*schedule).ok()); // keeps the limit
  auto timeline = simulate(*schedule, options.costs);
  // The transfers that a plan executes cost no more than what they stand for.
  auto complete = simulate(insertTransfers(*schedule), options.costs);
  if (!timeline.ok() || !complete.ok()) {
    ADD_FAILURE() << "does not end";
    return 1;
  }
  EXPECT_NEAR(timeline->span, complete->span, 1e-9 * timeline->span);
  return timeline->bubbleRate;
}

TEST(Published, OneFOneB) {
  for (const Row &row : rows)
    EXPECT_NEAR(getRate("1f1b", row), row.oneFOneB, rounding);
}

// 5 %: the order that Narayanan et al. describe, with every transfer counted,
// is 2.9 to 4.1 % above the published rates, which do not say what they leave
// out. An independent replay of that order gave the second figures.
TEST(Published, Interleaved) {
  const double replayed[] = {0.1090, 0.0847, 0.0461, 0.1136, 0.0878, 0.0459};
  for (size_t i = 0; i < std::size(rows); ++i) {
    double rate = getRate("interleaved-1f1b", rows[i], 3);
    EXPECT_LE(rate, 1.05 * rows[i].interleaved);
    EXPECT_NEAR(rate, replayed[i], rounding);
  }
}

TEST(Published, Handcrafted) {
  for (const Row &row : rows) {
    EXPECT_NEAR(getRate("zb-h1", row), row.h1, rounding);
    EXPECT_NEAR(getRate("zb-h2", row), row.h2, rounding);
  }
}

// Never above the published rates, and proven to be the least.
TEST(Published, Automatic) {
  for (const Row &row : rows)
    for (auto [factor, published] :
         {std::pair(1, row.auto1p), {2, row.auto2p}}) {
      double limit = factor * row.stages;
      double rate = getRate("zb-auto", row, 1, limit);
      EXPECT_LE(rate, published + rounding);
      auto bound =
          boundSpan({row.stages, 1, row.microbatches}, row.costs, {0.5, limit});
      ASSERT_TRUE(bound.ok());
      EXPECT_LE(bound->bubbleRate, rate);
      EXPECT_NEAR(bound->bubbleRate, rate, 1e-7); // of the bound's bisection
    }
}

// What the simulator of AMD's Primus (commit fd1eeab) prints for its schedules
// with a second for each of F, I and W of a rank: seconds of a step and the
// activations that the fullest rank holds. Ours are no slower and hold, counted
// up to the W, no more.
struct Simulated {
  uint32_t stages, microbatches;
  Costs costs;
  double zbV, half, halfPeak, least, leastPeak;
};
const Simulated simulated[] = {
    {4, 8, {1, 1, 1}, 25.5, 26.5, 3, 29.5, 2},
    {4, 16, {1, 1, 1}, 49.5, 50.5, 3, 53.5, 2},
    {8, 16, {1, 1, 1}, 51.5, 56.5, 5, 61, 4},
    {8, 32, {1, 1, 1}, 99.5, 104.5, 5, 109, 4},
    {8, 64, {1, 1, 1}, 195.5, 200.5, 5, 205, 4},
    {16, 64, {1, 1, 1}, 199.5, 212.5, 9, 221.5, 6},
};

/// Seconds of a step, within `peak` activations counted up to the W.
double getMakespan(const char *kind, const Simulated &row, double peak) {
  GeneratorOptions options{perChunk(row.costs, 2), {1, peak}};
  auto schedule = generate(kind, {row.stages, 2, row.microbatches}, options);
  EXPECT_TRUE(schedule.ok() && verify(*schedule).ok());
  return simulate(*schedule, options.costs)->makespan;
}

TEST(Published, ControllableMemory) {
  for (const Simulated &row : simulated) {
    SCOPED_TRACE(testing::Message() << row.stages << " " << row.microbatches);
    EXPECT_LE(getMakespan("zb-v", row, row.stages), row.zbV);
    EXPECT_LE(getMakespan("v-half", row, row.halfPeak), row.half);
    EXPECT_LE(getMakespan("v-min", row, row.leastPeak), row.least);
    EXPECT_LE(getMakespan("dualpipe-v", row, row.stages + 0.5), row.zbV);
    EXPECT_LE(getMakespan("zb-auto", row, row.halfPeak), row.half);
    EXPECT_LE(getMakespan("zb-auto", row, row.leastPeak), row.least);
  }
}

// F, I and W of 1, 1.2 and 0.8 seconds: looking at costs pays.
TEST(Published, ControllableMemoryUneven) {
  Simulated row{8, 32, {1, 1.2, 0.8}, 100.2, 112.8, 5, 128.5, 4};
  EXPECT_LE(getMakespan("zb-auto", row, 8), row.zbV * (1 + 1e-9));
  EXPECT_LT(getMakespan("zb-auto", row, row.halfPeak), 0.97 * row.half);
  EXPECT_LT(getMakespan("zb-auto", row, row.leastPeak), 0.93 * row.least);
  EXPECT_LT(getMakespan("v-half", row, row.halfPeak), 0.96 * row.half);
  EXPECT_LT(getMakespan("v-min", row, row.leastPeak), row.least);
}

} // namespace
