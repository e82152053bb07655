//===- PackMemoryTest.cpp - Offsets for buffers with lifetimes ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PackMemory.h"

#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "gtest/gtest.h"

#include <random>
#include <vector>

using namespace plait;

namespace {

int64_t findPeak(const std::vector<Lifetime> &buffers) {
  int64_t peak = 0;
  for (const Lifetime &at : buffers) {
    int64_t live = 0;
    for (const Lifetime &other : buffers)
      if (other.first <= at.first && at.first <= other.last)
        live += other.bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

/// Packs, and holds the result against every pair of buffers.
int64_t pack(std::vector<Lifetime> buffers,
             const std::vector<PlacedBuffer> &placed = {}) {
  int64_t total = 0, end = 0;
  auto offsets = packMemory(buffers, total, placed);
  for (const PlacedBuffer &buffer : placed) {
    buffers.push_back(buffer);
    offsets.push_back(buffer.offset);
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(offsets[i] % plan::kAlignment, 0);
    end = std::max(end, offsets[i] + buffers[i].bytes);
    for (size_t j = 0; j < i; ++j)
      EXPECT_TRUE(buffers[i].last < buffers[j].first ||
                  buffers[j].last < buffers[i].first ||
                  offsets[i] + buffers[i].bytes <= offsets[j] ||
                  offsets[j] + buffers[j].bytes <= offsets[i])
          << i << " overlaps " << j;
  }
  EXPECT_LE(end, total);
  return total;
}

TEST(PackMemory, RandomBuffersLieApart) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    // Also lives of one step, of all steps, and numbers around powers of two.
    int64_t steps = 1 + random() % 40;
    std::vector<Lifetime> buffers(random() % 40);
    for (Lifetime &buffer : buffers) {
      buffer.first = random() % steps;
      buffer.last = buffer.first + random() % (steps - buffer.first);
      buffer.bytes = 64 * (random() % 10);
    }
    int64_t total = pack(buffers);
    EXPECT_GE(total, findPeak(buffers));
    EXPECT_LE(total, 2 * findPeak(buffers));
  }
}

/// What has been placed side by side, and ends at different steps.
TEST(PackMemory, LeavesAloneWhatHasBeenPlaced) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    int64_t steps = 1 + random() % 40, end = 0;
    std::vector<PlacedBuffer> placed(random() % 8);
    for (PlacedBuffer &buffer : placed) {
      buffer = {
          {int64_t(64 * (1 + random() % 10)), 0, int64_t(random() % steps)},
          end};
      end += buffer.bytes;
    }
    std::vector<Lifetime> buffers(random() % 20);
    for (Lifetime &buffer : buffers) {
      buffer.first = random() % steps;
      buffer.last = buffer.first + random() % (steps - buffer.first);
      buffer.bytes = 64 * (random() % 10);
    }
    EXPECT_GE(pack(buffers, placed), end);
  }
  // One step later all fits where it was, and nothing before.
  EXPECT_EQ(pack({{64, 2, 3}, {64, 3, 4}}, {{{128, 0, 1}, 0}}), 128);
  EXPECT_EQ(pack({{64, 1, 3}, {64, 3, 4}}, {{{128, 0, 1}, 0}}), 192);
}

/// The largest first takes 7 units, of which no more than 5 are live at once.
TEST(PackMemory, TriesFurtherOrders) {
  std::vector<Lifetime> buffers = {{3 * 64, 0, 1},
                                   {2 * 64, 1, 2},
                                   {2 * 64, 2, 3},
                                   {64, 2, 2},
                                   {3 * 64, 3, 4}};
  EXPECT_EQ(pack(buffers), findPeak(buffers));
}

/// What the microbatches of a pipeline leave: three kinds of blocks of nearly
/// one size, of which each grows while another one shrinks, and a workspace for
/// each step. The largest first leaves gaps.
TEST(PackMemory, PacksAPipeline) {
  std::vector<Lifetime> buffers;
  constexpr int64_t count = 60;
  for (int64_t i = 0; i < count; ++i) {
    int64_t input = count + 2 * i, weight = 3 * count + i;
    buffers.push_back({199 * 64, i, input});
    buffers.push_back({205 * 64, i, weight});
    buffers.push_back({262 * 64, input, weight});
  }
  for (int64_t step = 0; step < 4 * count; ++step)
    buffers.push_back({(step % 3) * 150 * 64, step, step});
  EXPECT_EQ(pack(buffers), findPeak(buffers));
}

} // namespace
