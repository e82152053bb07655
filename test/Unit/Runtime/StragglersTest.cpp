//===- StragglersTest.cpp - Ranks that others wait for --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Notes are set by hand, for the plan of ProfilerTest.cpp: ranks 0 and 1 add up
// what they compute and send it to ranks 2 and 3.
//
//===----------------------------------------------------------------------===//

#include "Training/Stragglers.h"

#include "TestPlan.h"
#include "Training/WaitTimes.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Streams.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

using Time = StepClock::Time;
using std::chrono::milliseconds;

class StragglersTest : public ::testing::Test {
protected:
  std::vector<uint8_t> bytes = plan::packPlan(makePlan());
  const plan::fb::Plan &plan() const {
    return *plan::fb::GetPlan(bytes.data());
  }
  StepNotes notes{plan(), /*overlaps=*/false};
  const Time start = StepClock::read().time;

  /// Plays a step in which what computes takes a millisecond, of `slow` `times`
  /// as long, and what communicates none once all are there.
  void play(uint32_t slow, int times) {
    // Notes in which nothing waits say who is late; again until all fits.
    for (int round = 0; round < 20; ++round) {
      for (uint32_t rank = 0; rank < 4; ++rank) {
        Time now = start;
        for (size_t i = 0; i < notes.countLaps(rank); ++i) {
          Time begin = now;
          if (notes.computes(rank, i))
            now += milliseconds(rank == slow ? times : 1);
          else
            now = std::max(now, readyTimes[rank][i]);
          notes.clock(rank).set(i, begin, now);
        }
      }
      for (uint32_t rank = 0; rank < 4; ++rank)
        for (size_t i = 0; i < notes.countLaps(rank); ++i) {
          // An operation that lasts for ever is over when it can be.
          Time begin = notes.clock(rank).getStart(i);
          Time end = notes.clock(rank).getEnd(i);
          notes.clock(rank).set(i, begin, Time::max());
          EXPECT_TRUE(notes.collect(nullptr).ok());
          readyTimes[rank][i] = notes.getReady(rank, i).time;
          notes.clock(rank).set(i, begin, end);
        }
    }
    EXPECT_TRUE(notes.collect(nullptr).ok());
  }
  std::vector<std::vector<Time>> readyTimes{4, std::vector<Time>(1000, start)};
};

TEST_F(StragglersTest, WhoWaitsForOneThatWaitsWaitsForTheThird) {
  play(/*slow=*/1, /*times=*/11);
  std::vector<double> seconds(4);
  WaitTimes waits(notes);
  waits.addTo(seconds);
  // Rank 0 waits for it in the sums, and so do those that receive from rank 0.
  EXPECT_GT(seconds[1], 0.02);
  EXPECT_LT(seconds[0], 0.1 * seconds[1]);
  double waited = 0;
  for (uint32_t rank = 0; rank < 4; ++rank)
    for (const WaitTimes::Wait &wait : waits.of(rank)) {
      EXPECT_NE(wait.other, rank);
      waited += std::chrono::duration<double>(wait.end - wait.begin).count();
    }
  double blamed = seconds[0] + seconds[1] + seconds[2] + seconds[3];
  EXPECT_NEAR(blamed, waited, 1e-9);
}

TEST_F(StragglersTest, NamesTheOneThatIsAlwaysSlow) {
  Stragglers stragglers(plan());
  stragglers.setHosts({{"a", 2}, {"b", 2}}, {4, 2});
  EXPECT_EQ(stragglers.name(3), "rank 3 (host b, pp=1 tp=1)");
  ASSERT_TRUE(stragglers.beginRun(1, 100).ok());
  EXPECT_TRUE(stragglers.wants(3));
  EXPECT_FALSE(stragglers.wants(1));
  uint64_t step = 0;
  auto add = [&](int times, size_t count) {
    play(/*slow=*/1, times);
    for (size_t i = 0; i < count; ++i)
      stragglers.add(++step, 0.1, notes);
  };
  add(3, Stragglers::window - 1);
  EXPECT_FALSE(stragglers.ranks()[1].isSlow);
  add(3, 1);
  EXPECT_EQ(stragglers.changed(), std::vector<uint32_t>{1});
  EXPECT_NEAR(stragglers.ranks()[1].times, 3, 1e-6);
  EXPECT_EQ(
      stragglers.describe(1).find("rank 1 (host a, pp=0 tp=1) computes at "
                                  "least 3.00 times as long"),
      0u);
  EXPECT_EQ(stragglers.ranks()[0].isSlow, false);
  // Once as fast as the others is not always slow.
  add(1, 1);
  EXPECT_EQ(stragglers.changed(), std::vector<uint32_t>{1});
  EXPECT_FALSE(stragglers.ranks()[1].isSlow);
}

TEST_F(StragglersTest, NamesNoneThatDelaysTheStepByLittle) {
  play(/*slow=*/1, /*times=*/3);
  for (double seconds : {0.1, 10.0}) {
    Stragglers stragglers(plan());
    for (uint64_t step = 1; step <= Stragglers::window; ++step)
      stragglers.add(step, seconds, notes);
    EXPECT_EQ(stragglers.ranks()[1].isSlow, seconds < 1);
  }
}

// They wait for processors, now the one and then the other.
TEST_F(StragglersTest, CountsProcessorTimeWhereProcessorsAreShared) {
  for (uint32_t processors : {2u, 1u, 0u}) {
    Stragglers stragglers(plan());
    stragglers.setHosts({{"a", processors}, {"b", processors}}, {4, 2});
    play(/*slow=*/1, /*times=*/3);
    for (uint64_t step = 1; step <= Stragglers::window; ++step)
      stragglers.add(step, 0.1, notes);
    // The notes have no processor time.
    EXPECT_EQ(stragglers.ranks()[1].isSlow, processors != 1) << processors;
  }
}

// Caches that others have emptied.
TEST_F(StragglersTest, AllowsMoreWhereProcessorsAreShared) {
  play(/*slow=*/1, 1);
  for (double times : {1.4, 1.7}) {
    Stragglers stragglers(plan());
    stragglers.setHosts({{"a", 1}, {"b", 1}}, {4, 2});
    for (uint32_t rank = 0; rank < 4; ++rank) {
      StepClock &clock = notes.clock(rank);
      for (size_t i = 0; i < notes.countLaps(rank); ++i)
        clock.set(i, clock.getStart(i), clock.getEnd(i),
                  rank == 1 ? 0.001 * times : 0.001);
    }
    for (uint64_t step = 1; step <= Stragglers::window; ++step)
      stragglers.add(step, 0.01, notes);
    EXPECT_EQ(stragglers.ranks()[1].isSlow, times > 1.5) << times;
  }
}

TEST_F(StragglersTest, NamesNoneOfEqualOnes) {
  Stragglers stragglers(plan());
  play(/*slow=*/1, 1);
  for (uint64_t step = 1; step <= 2 * Stragglers::window; ++step) {
    stragglers.add(step, 0.1, notes);
    EXPECT_TRUE(stragglers.changed().empty());
  }
  // What is watched may be seldom, but is not never.
  EXPECT_GT(stragglers.nextStep(), 2 * Stragglers::window);
  EXPECT_LT(stragglers.nextStep(), 2 * Stragglers::window + 100);
}

} // namespace
