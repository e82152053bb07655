//===- BucketsTest.cpp - Gradients reduced in buckets ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Buckets.h"

#include "TestPlan.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::test;

namespace {

constexpr uint64_t gradients = 4096; // where they begin in the arena
constexpr int64_t elements = 1024;

int64_t oneAtATime(uint32_t) { return 256; }
int64_t neverCut(uint32_t) { return elements + 1; }

/// The first stage of the test plan with 1,024 gradients behind all else. A
/// backward pass writes their four quarters in the order of a test, and a
/// Reduce action sums them over tp.
class BucketsTest : public ::testing::Test {
protected:
  fb::PlanT plan = makePlan();
  fb::ProgramT &program = *plan.programs[0];
  fb::FunctionT *backward = nullptr, *reduce = nullptr;

  BucketsTest() {
    program.arena_bytes = gradients + elements * 4;
    backward = &addCall("backward", fb::ActionKind::Backward);
    reduce = &addCall("reduce", fb::ActionKind::Reduce);
    addSum(0, elements);
  }

  /// A function, called once, before the last action.
  fb::FunctionT &addCall(const char *name, fb::ActionKind kind) {
    fb::FunctionT &function = append(program.functions);
    function.name = name;
    auto action = std::make_unique<fb::ActionT>();
    action->kind = kind;
    action->function = int32_t(program.functions.size()) - 1;
    program.actions.insert(program.actions.end() - 1, std::move(action));
    return function;
  }

  fb::CollectiveStepT &addSum(uint64_t begin, int64_t count) {
    fb::CollectiveStepT sum;
    sum.axis = 1;
    sum.outer = 1;
    sum.chunk = count;
    sum.input = std::make_unique<fb::Ref>(gradients + 4 * begin, -1);
    sum.output = std::make_unique<fb::Ref>(gradients + 4 * begin, -1);
    fb::StepT &step = append(reduce->steps);
    step.step.Set(std::move(sum));
    return *step.step.AsCollectiveStep();
  }

  void writeQuarters(std::initializer_list<uint64_t> order) {
    for (uint64_t quarter : order) {
      fb::FillStepT fill;
      fill.bytes = elements;
      fill.target =
          std::make_unique<fb::Ref>(gradients + quarter * elements, -1);
      append(backward->steps).step.Set(std::move(fill));
    }
  }

  /// First and last element of every sum afterwards.
  std::vector<std::pair<uint64_t, uint64_t>>
  run(int64_t (*elementsOf)(uint32_t) = oneAtATime) {
    plan::bucketReductions(plan, elementsOf);
    std::vector<uint8_t> bytes = plan::packPlan(plan);
    Status status = plan::checkPlan(*fb::GetPlan(bytes.data()));
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<std::pair<uint64_t, uint64_t>> found;
    for (const auto &step : reduce->steps) {
      const auto &sum = *step->step.AsCollectiveStep();
      EXPECT_EQ(sum.input->offset(), sum.output->offset());
      uint64_t begin = (sum.input->offset() - gradients) / 4;
      found.emplace_back(begin, begin + uint64_t(sum.outer * sum.chunk));
    }
    return found;
  }
};

using Parts = std::vector<std::pair<uint64_t, uint64_t>>;

TEST_F(BucketsTest, ReducesFirstWhatIsWrittenFirst) {
  writeQuarters({3, 1, 2, 0});
  EXPECT_EQ(run(), (Parts{{768, 1024}, {256, 512}, {512, 768}, {0, 256}}));
}

TEST_F(BucketsTest, TheLastWriteOfABucketCounts) {
  writeQuarters({0, 3, 2, 1, 3});
  EXPECT_EQ(run(), (Parts{{0, 256}, {512, 768}, {256, 512}, {768, 1024}}));
}

TEST_F(BucketsTest, CutsNothingThatIsSmallerThanTwoBuckets) {
  writeQuarters({3, 2, 1, 0});
  EXPECT_EQ(run(neverCut), (Parts{{0, 1024}}));
  EXPECT_EQ(run([](uint32_t) { return int64_t(513); }), (Parts{{0, 1024}}));
  EXPECT_EQ(run([](uint32_t) { return int64_t(512); }),
            (Parts{{512, 1024}, {0, 512}}));
}

TEST_F(BucketsTest, BucketsAreMultiplesOf64Elements) {
  reduce->steps[0]->step.AsCollectiveStep()->chunk = 1000;
  EXPECT_EQ(run(), (Parts{{0, 384}, {384, 768}, {768, 1000}}));
}

TEST_F(BucketsTest, SortsTheBucketsOfNeighboursTogether) {
  reduce->steps.clear();
  addSum(0, 512);
  addSum(512, 512);
  writeQuarters({3, 1, 2, 0});
  EXPECT_EQ(run(), (Parts{{768, 1024}, {256, 512}, {512, 768}, {0, 256}}));
}

TEST_F(BucketsTest, KeepsSumsOverOtherRanksInTheirOrder) {
  reduce->steps.clear();
  addSum(0, 512);
  // Both programs take part in these, and each may write in another order.
  addSum(512, 256).axis = 0;
  addSum(768, 256).axis = 0;
  writeQuarters({3, 2, 1, 0});
  plan::bucketReductions(plan, oneAtATime);
  std::vector<uint64_t> begins;
  for (const auto &step : reduce->steps)
    begins.push_back(
        (step->step.AsCollectiveStep()->input->offset() - gradients) / 4);
  EXPECT_EQ(begins, (std::vector<uint64_t>{256, 0, 512, 768}));
}

TEST_F(BucketsTest, KeepsWhatIsNotASumOfGradients) {
  writeQuarters({3, 2, 1, 0});
  auto &sum = *reduce->steps[0]->step.AsCollectiveStep();
  sum.reduction = fb::Reduction::Max;
  EXPECT_EQ(run(), (Parts{{0, 1024}}));
  sum.reduction = fb::Reduction::Sum;
  for (auto &action : program.actions)
    if (action->kind == fb::ActionKind::Reduce)
      action->kind = fb::ActionKind::Forward;
  EXPECT_EQ(run(), (Parts{{0, 1024}}));
}

TEST(Buckets, GrowWithTheRanks) {
  EXPECT_EQ(plan::bucketElements(8), 40'000'000);
  EXPECT_EQ(plan::bucketElements(64), 64'000'000);
}

} // namespace
