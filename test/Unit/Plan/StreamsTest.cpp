//===- StreamsTest.cpp - Which work waits for which -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A schedule is right if any two operations that use the same bytes, one of
// them writing, are ordered by streams and events. That is checked here for all
// pairs, from the definition of happening before.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Streams.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Messages.h"

#include <gtest/gtest.h>
#include <map>
#include <random>

using namespace plait;
using namespace plait::plan;
using namespace plait::test;

namespace {

struct Work {
  uint32_t stream;
  std::vector<ByteRange> uses;
};

bool conflict(const Work &left, const Work &right) {
  for (const ByteRange &a : left.uses)
    for (const ByteRange &b : right.uses)
      if ((a.writes || b.writes) &&
          std::max(a.begin, b.begin) < std::min(a.end, b.end))
        return true;
  return false;
}

StreamSchedule schedule(uint32_t streams, const std::vector<Work> &works) {
  StreamPlanner planner(streams);
  for (const Work &work : works)
    planner.add(work.stream, work.uses);
  return planner.finish();
}

/// A wait of a schedule: the operation that waits, and the one it waits for.
struct Wait {
  uint32_t operation, other;
};

/// What the events mean when the operations are issued one after the other.
std::vector<Wait> waitsOf(const StreamSchedule &schedule) {
  std::vector<Wait> waits;
  std::map<uint32_t, uint32_t> recorded; // by event
  for (uint32_t i = 0; i < schedule.operations.size(); ++i) {
    for (uint32_t event : schedule.waitsOf(i)) {
      EXPECT_LT(event, schedule.events);
      EXPECT_TRUE(recorded.count(event)) << "waits before it is recorded";
      waits.push_back({i, recorded[event]});
    }
    if (schedule.operations[i].event != StreamSchedule::none)
      recorded[schedule.operations[i].event] = i;
  }
  return waits;
}

/// The pairs of operations that conflict and are not ordered when all `waits`
/// but number `without` hold.
uint32_t countRaces(const std::vector<Work> &works,
                    const std::vector<Wait> &waits, size_t without = SIZE_MAX) {
  size_t count = works.size();
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  auto order = [&](uint32_t first, uint32_t second) {
    before[second][first] = true;
    for (uint32_t i = 0; i < count; ++i)
      if (before[first][i])
        before[second][i] = true;
  };
  uint32_t races = 0;
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t j = 0; j < i; ++j)
      if (works[j].stream == works[i].stream)
        order(j, i);
    for (size_t w = 0; w < waits.size(); ++w)
      if (w != without && waits[w].operation == i)
        order(waits[w].other, i);
    for (uint32_t j = 0; j < i; ++j)
      races += conflict(works[j], works[i]) && !before[i][j];
  }
  return races;
}

constexpr bool reads = false, writes = true;

TEST(Streams, WaitForWhatTheyUse) {
  std::vector<Work> works = {
      {0, {{0, 64, writes}}},                    // a
      {0, {{64, 128, writes}}},                  // b
      {1, {{0, 64, reads}, {128, 192, writes}}}, // c = reduce a
      {0, {{64, 128, reads}}},                   // goes on beside it
      {0, {{128, 192, reads}}},                  // needs c
      {0, {{0, 32, writes}}},                    // c has read it: known by now
  };
  StreamSchedule made = schedule(2, works);
  std::vector<Wait> waits = waitsOf(made);
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].operation, 2u);
  EXPECT_EQ(waits[0].other, 0u); // and not operation 1
  EXPECT_EQ(waits[1].operation, 4u);
  EXPECT_EQ(waits[1].other, 2u);
  EXPECT_EQ(countRaces(works, waits), 0u);
}

TEST(Streams, ABufferIsReusedAfterItsReader) {
  std::vector<Work> works = {{0, {{0, 64, writes}}},
                             {1, {{0, 64, reads}}},
                             {2, {{0, 64, reads}}},
                             {0, {{32, 96, writes}}}};
  std::vector<Wait> waits = waitsOf(schedule(3, works));
  EXPECT_EQ(waits.size(), 4u);
  EXPECT_EQ(countRaces(works, waits), 0u);
}

TEST(Streams, WaitsThatFollowAreLeftOut) {
  // Stream 2 waits for stream 1, which has waited for stream 0.
  std::vector<Work> works = {{0, {{0, 64, writes}}},
                             {1, {{0, 64, reads}, {64, 128, writes}}},
                             {2, {{0, 64, reads}, {64, 128, reads}}}};
  std::vector<Wait> waits = waitsOf(schedule(3, works));
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[1].other, 1u);
}

TEST(Streams, OneStreamNeedsNoEvents) {
  std::vector<Work> works(10, {0, {{0, 64, writes}}});
  StreamSchedule made = schedule(1, works);
  EXPECT_EQ(made.events, 0u);
  EXPECT_TRUE(made.waits.empty());
}

/// Seeded, so that a failure can be repeated.
std::vector<Work> randomWorks(unsigned seed, uint32_t streams) {
  std::mt19937 random(seed);
  std::vector<Work> works;
  for (int i = 0; i < 60; ++i) {
    Work &work = works.emplace_back();
    work.stream = random() % streams;
    for (uint32_t j = random() % 3 + 1; j > 0; --j) {
      uint64_t begin = random() % 40;
      work.uses.push_back({begin, begin + random() % 12, random() % 3 == 0});
    }
  }
  return works;
}

TEST(Streams, AnyConflictIsOrderedAndEveryWaitIsNeeded) {
  uint32_t removed = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    uint32_t streams = seed % 4 + 1;
    std::vector<Work> works = randomWorks(seed, streams);
    std::vector<Wait> waits = waitsOf(schedule(streams, works));
    ASSERT_EQ(countRaces(works, waits), 0u) << "seed " << seed;
    for (size_t w = 0; w < waits.size(); ++w, ++removed)
      EXPECT_GT(countRaces(works, waits, w), 0u) << "seed " << seed;
  }
  EXPECT_GT(removed, 500u);
}

/// The test plan with sums over tp in stream 1, over pp in stream 2, and
/// transfers in stream 3.
class PlanStreamsTest : public ::testing::Test {
protected:
  fb::PlanT source = makePlan();
  std::vector<uint8_t> bytes;

  StreamSchedule make(uint32_t index) {
    bytes = plan::packPlan(source);
    const fb::Plan &plan = *fb::GetPlan(bytes.data());
    const fb::Program &program = *plan.programs()->Get(index);
    StreamChoice choice;
    choice.sendsInStream = true;
    for (const fb::Action *action : *program.actions())
      choice.transfers.push_back(isTransfer(*action) ? 3 : 0);
    for (const fb::Function *function : *program.functions()) {
      auto &streams = choice.steps.emplace_back();
      for (const fb::Step *step : *function->steps()) {
        const auto *collective = step->step_as_CollectiveStep();
        streams.push_back(!collective ? 0 : collective->axis() == 1 ? 1 : 2);
      }
    }
    EXPECT_EQ(choice.streams(), 4u);
    return scheduleStreams(program, plan::RankGrid(plan), choice);
  }
};

TEST_F(PlanStreamsTest, FollowsTheSteps) {
  // GEMM, sum, kernel, Send for each microbatch; two WaitSends; copy, max.
  StreamSchedule made = make(0);
  ASSERT_EQ(made.operations.size(), 12u);
  std::vector<uint32_t> streams;
  std::vector<size_t> waits;
  for (uint32_t i = 0; i < 12; ++i) {
    streams.push_back(made.operations[i].stream);
    waits.push_back(made.waitsOf(i).size());
  }
  EXPECT_EQ(streams,
            (std::vector<uint32_t>{0, 1, 0, 3, 0, 1, 0, 3, 3, 3, 0, 2}));
  // The second GEMM waits for nothing: its result is elsewhere.
  EXPECT_EQ(waits, (std::vector<size_t>{0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1}));
}

/// What a processor does beside computing.
TEST_F(PlanStreamsTest, ReplicasHaveAStreamOnProcessors) {
  auto choose = [&](const char *axis, const char *backend) {
    source.mesh[1]->name = axis;
    source.backend = backend;
    bytes = plan::packPlan(source);
    const fb::Plan &plan = *fb::GetPlan(bytes.data());
    return chooseStreams(plan, *plan.programs()->Get(0));
  };
  EXPECT_EQ(choose("tp", "cpu").streams(), 1u);
  StreamChoice replicas = choose("dp", "cpu");
  EXPECT_EQ(replicas.streams(), 2u);
  EXPECT_EQ(replicas.transfers, std::vector<uint32_t>(7, 0));
  // Product, sum, kernel; copy, maximum over pp.
  EXPECT_EQ(replicas.steps,
            (std::vector<std::vector<uint32_t>>{{0, 1, 0}, {0, 0}}));
  EXPECT_FALSE(replicas.sendsInStream);
  EXPECT_EQ(choose("dp", "cuda").streams(), 4u);
}

/// What is done to a gradient before and after it is summed need not wait for
/// the rest of the backward pass, nor the forward pass for what is done to
/// parameters before they are gathered.
TEST_F(PlanStreamsTest, KernelsFollowWhatReplicasExchangeOnGpus) {
  fb::ProgramT &program = *source.programs[0];
  auto &steps = program.functions[0]->steps; // product, sum, kernel
  auto append = [&](size_t step) {
    steps.push_back(std::make_unique<fb::StepT>(*steps[step]));
  };
  append(2);
  append(1);
  steps.back()->step.AsCollectiveStep()->axis = 0;
  append(2);
  auto choose = [&](const char *backend) {
    source.backend = backend;
    bytes = plan::packPlan(source);
    const fb::Plan &plan = *fb::GetPlan(bytes.data());
    return chooseStreams(plan, *plan.programs()->Get(0)).steps[0];
  };
  std::vector<uint32_t> streams = choose("cuda");
  uint32_t first = streams[1], second = streams[4];
  EXPECT_NE(first, second);
  EXPECT_EQ(streams, (std::vector<uint32_t>{0, first, 0, 0, second, 0}));
  for (fb::ActionKind kind : {fb::ActionKind::Reduce, fb::ActionKind::Gather}) {
    for (auto &action : program.actions)
      if (action->function == 0)
        action->kind = kind;
    EXPECT_EQ(choose("cuda"),
              (std::vector<uint32_t>{0, first, first, second, second, second}));
    EXPECT_EQ(choose("cpu"), std::vector<uint32_t>(6, 0));
  }
}

TEST_F(PlanStreamsTest, KernelsOfUnknownSizeMayWriteAnything) {
  auto &step = *source.programs[0]->functions[0]->steps[2]->step.AsKernelStep();
  auto sendWaitsFor = [&] {
    for (const Wait &wait : waitsOf(make(0)))
      if (wait.operation == 3)
        return wait.other;
    return UINT32_MAX;
  };
  EXPECT_EQ(sendWaitsFor(), 2u); // the kernel
  step.arg_bytes = {72, 16};
  EXPECT_EQ(sendWaitsFor(), 1u); // the sum: the kernel only reads
  step.outputs = 1;              // the tokens
  EXPECT_EQ(sendWaitsFor(), 1u);
  step.outputs = 2;
  EXPECT_EQ(sendWaitsFor(), 2u);
}

TEST_F(PlanStreamsTest, ABufferIsWrittenAgainAfterItsSend) {
  auto &actions = source.programs[0]->actions;
  EXPECT_EQ(make(0).waitsOf(4).size(), 0u);
  // Both microbatches' results at one place.
  actions[2]->bindings[0] = actions[0]->bindings[0];
  EXPECT_EQ(make(0).waitsOf(4).size(), 1u);
}

} // namespace
