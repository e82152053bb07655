//===- TrainingTest.cpp - What a run decides and tells --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Training/Controls.h"
#include "Training/Curve.h"
#include "Training/LearningRate.h"
#include "Training/RunSettings.h"
#include "Training/TensorBoard.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace plait;
using namespace plait::runtime;

namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// What becomes of steps with these losses: 's' skipped, 'w' warned of, '.'
/// nothing, '!' the end.
std::string judge(const TrainOptions &options,
                  const std::vector<float> &losses) {
  auto controls = Controls::create(options, {});
  EXPECT_TRUE(controls.ok());
  std::string result;
  for (float loss : losses) {
    auto verdict = controls->judge(result.size() + 1, {loss, 1, 8});
    if (!verdict.ok())
      return result + "!";
    result += verdict->skipped ? 's' : verdict->warning.empty() ? '.' : 'w';
  }
  return result;
}

TEST(Controls, StopOrSkipWhatIsNotFinite) {
  TrainOptions options;
  EXPECT_EQ(judge(options, {1, 2, nan, 3}), "..!");
  options.onNonFinite = NonFinitePolicy::Skip;
  EXPECT_EQ(judge(options, {1, 2, nan, 3, INFINITY, nan, 3}), "..s.ss.");
  std::vector<float> many(10, nan);
  many.push_back(1);
  many.insert(many.end(), 11, nan);
  EXPECT_EQ(judge(options, many), "ssssssssss.ssssssssss!");
}

TEST(Controls, StopWithoutTokensWhateverIsSkipped) {
  TrainOptions options;
  options.onNonFinite = NonFinitePolicy::Skip;
  auto controls = Controls::create(options, {});
  ASSERT_TRUE(controls.ok());
  auto verdict = controls->judge(4, {nan, nan, 0});
  ASSERT_FALSE(verdict.ok());
  EXPECT_EQ(verdict.status().message(),
            "step 4: the step counts 0 tokens, and the loss is the mean over "
            "them");
}

TEST(Controls, HoldALossAgainstThoseBeforeIt) {
  TrainOptions options;
  options.onSpike = SpikePolicy::Report;
  options.spikeSteps = 4;
  options.spikeDeviations = 2;
  // 1, 3, 1, 3 are 2 plus or minus 1: 4 is the largest that is no spike.
  EXPECT_EQ(judge(options, {9, 1, 3, 1, 3, 4}), "......");
  EXPECT_EQ(judge(options, {1, 3, 1, 3, 4.01f, 1}), "....w.");
  // Too few to hold it against.
  EXPECT_EQ(judge(options, {1, 3, 1, 50}), "....");
  options.onSpike = SpikePolicy::Stop;
  EXPECT_EQ(judge(options, {1, 3, 1, 3, 4.01f, 1}), "....!");
  // Skipped steps have no loss.
  options.onNonFinite = NonFinitePolicy::Skip;
  EXPECT_EQ(judge(options, {1, 3, nan, 1, 3, 4}), "..s...");
}

TEST(Controls, RefuseWhatThePlanDoesNotTake) {
  TrainOptions options;
  options.optimizer["momentum"] = 2;
  auto controls = Controls::create(options, {{"momentum", 0.9, 0, 1, 1}});
  ASSERT_FALSE(controls.ok());
  EXPECT_EQ(controls.status().message(),
            "`momentum` is 2, the plan takes 0 to 1");
}

TEST(LearningRateTest, HasSchedulesByName) {
  TrainOptions options;
  options.schedule = "none";
  EXPECT_EQ(LearningRate::create(options).status().message(),
            "the learning rate has no schedule 'none'");
}

TEST(SettingsTest, OfACheckpointHaveTheirTypes) {
  TrainOptions options;
  EXPECT_EQ(keepSettings(options, R"({"lr": "fast"})").status().message(),
            "the checkpoint's setting lr is \"fast\"");
}

TEST(Controls, CountUpdatesNotSteps) {
  TrainOptions options;
  options.optimizer["beta1"] = 0.5;
  constexpr auto correction = size_t(fb::Scalar::BiasCorrection1);
  auto controls =
      Controls::create(options, {{"beta1", 0.9, 0, 1, 1, correction}});
  ASSERT_TRUE(controls.ok());
  RunState state;
  state.step = 7;
  state.updates = 2;
  auto scalars = controls->scalars(state);
  EXPECT_EQ(scalars[size_t(fb::Scalar::BiasCorrection1)], 0.875f);
}

TEST(Curve, KeepsMeansOfEqualNumbersOfSteps) {
  constexpr uint64_t count = 1'000'000;
  Curve<2> curve;
  double sum = 0;
  for (uint64_t step = 1; step <= count; ++step) {
    curve.add(step, {double(step), step % 2 ? nan : 5.0});
    sum += double(step);
  }
  const auto &points = curve.points();
  EXPECT_LT(points.size(), Curve<2>::mostPoints);
  EXPECT_GE(points.size(), Curve<2>::mostPoints / 2);
  uint64_t steps = 0;
  double found = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    steps += points[i].steps;
    found += points[i].sums[0];
    EXPECT_EQ(points[i].step, steps);
    EXPECT_EQ(points[i].mean(1), 5);
    if (i + 1 < points.size())
      EXPECT_EQ(points[i].steps, points[0].steps);
  }
  EXPECT_EQ(steps, count);
  EXPECT_EQ(found, sum);
}

TEST(Curve, HasNothingWhereNothingIsFinite) {
  Curve<1> curve;
  curve.add(1, {nan});
  EXPECT_EQ(curve.points()[0].counts[0], 0u);
}

// RFC 3720, B.4, and the check value of the CRC catalogue.
TEST(TensorBoard, ComputesCrc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

} // namespace
