//===- CalibrateTest.cpp - Fitting a hardware file ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A machine whose figures are known is "measured", and has to be found.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Calibrate.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"

#include <gtest/gtest.h>

#include <map>

using namespace plait;
using namespace plait::planner;
using namespace plait::test;

namespace {

template <typename T> void addStep(fb::FunctionT &function, T value) {
  append(function.steps).step.Set(std::move(value));
}

/// The test plan with matmuls, kernels, sums and messages of many sizes.
fb::PlanT makeVariedPlan() {
  fb::PlanT plan = makePlan();
  fb::FunctionT &function = *plan.programs[0]->functions[0];
  function.steps.clear();
  for (int64_t size : {16, 64, 128, 256, 512, 1024})
    for (int64_t k : {32, 256, 2048}) {
      fb::GemmStepT gemm;
      gemm.m = size, gemm.n = 192, gemm.k = k;
      addStep(function, std::move(gemm));
    }
  for (uint64_t bytes : {1000, 30000, 1000000, 30000000}) {
    fb::KernelStepT light, heavy;
    light.traffic = heavy.traffic = bytes;
    heavy.flops = 100 * bytes;
    addStep(function, std::move(light));
    addStep(function, std::move(heavy));
    fb::CollectiveStepT sum;
    sum.axis = 1;
    sum.outer = 1;
    sum.chunk = bytes / 4;
    addStep(function, std::move(sum));
  }
  return plan;
}

class CalibrateTest : public ::testing::Test {
protected:
  std::vector<uint8_t> bytes = plan::packPlan(makeVariedPlan());
  const fb::Plan &plan = *fb::GetPlan(bytes.data());

  static Cluster getCluster(const std::string &name) {
    auto cluster = parseCluster(name);
    EXPECT_TRUE(cluster.ok()) << cluster.status().message();
    return std::move(*cluster);
  }

  /// What a run on `cluster` would measure.
  plan::Profile measure(const Cluster &cluster) {
    plan::Profile profile;
    profile.threads = 4;
    plan::RankGrid mesh(plan);
    for (uint32_t i = 0; i < 2; ++i) {
      plan::ProgramProfile &program = profile.programs.emplace_back();
      for (const fb::Function *function :
           *plan.programs()->Get(i)->functions()) {
        plan::FunctionProfile &entry = program.functions.emplace_back();
        entry.calls = 2;
        for (const fb::Step *step : *function->steps())
          entry.steps.push_back({fb::EnumNameStepKind(step->step_type()), "",
                                 stepSeconds(*step, mesh, cluster), 0});
      }
    }
    for (uint64_t bytes : {1000, 1000000}) {
      plan::TransferProfile receive;
      receive.kind = fb::ActionKind::Recv;
      receive.calls = 2;
      receive.bytes = bytes;
      receive.seconds = messageSeconds(0, 1, bytes, mesh, cluster);
      profile.programs[1].transfers.push_back(receive);
    }
    return profile;
  }
};

TEST_F(CalibrateTest, FindsTheMachineThatWasMeasured) {
  Cluster truth = getCluster("cpu:4");
  truth.device.peakFlops[0] *= 0.5;
  truth.device.memoryBandwidth *= 1.7;
  truth.device.vectorFlops *= 0.4;
  truth.device.launchSeconds *= 4;
  truth.intra.startSeconds *= 5;
  truth.intra.bandwidth *= 0.6;
  truth.intra.transferLatency *= 3;
  plan::Profile profile = measure(truth);
  const MeasuredRun runs[] = {{plan, profile}};
  auto calibration = calibrate(runs, "cpu", "mine");
  ASSERT_TRUE(calibration.ok()) << calibration.status().message();
  std::map<std::string, double> ratios;
  for (const FittedValue &value : calibration->values)
    ratios[value.path] = value.after / value.before;
  // The pull towards the old figures leaves a few percent.
  EXPECT_NEAR(ratios["device.fp32Flops"], 0.5, 0.02);
  EXPECT_NEAR(ratios["device.memoryBandwidth"], 1.7, 0.07);
  EXPECT_NEAR(ratios["device.vectorFlops"], 0.4, 0.02);
  EXPECT_NEAR(ratios["device.launchSeconds"], 4, 0.3);
  EXPECT_NEAR(ratios["intra.bandwidth"], 0.6, 0.03);
  EXPECT_NEAR(ratios["intra.transferLatency"], 3, 0.2);
  for (const Residual &residual : calibration->residuals) {
    EXPECT_LT(residual.errorAfter, 0.03) << residual.kind;
    EXPECT_GT(residual.errorBefore, 0.1) << residual.kind;
  }

  // The file is one that parseCluster reads, with the same figures.
  std::string path = makeDirectory() + "/mine.json";
  ASSERT_TRUE(writeTextFile(path, calibration->json).ok());
  Cluster fitted = getCluster(path + ":4");
  EXPECT_NEAR(fitted.device.peakFlops[0],
              truth.device.peakFlops[0] * ratios["device.fp32Flops"] / 0.5,
              1e-4 * truth.device.peakFlops[0]);
  plan::RankGrid mesh(plan);
  for (const fb::Step *step :
       *plan.programs()->Get(0)->functions()->Get(0)->steps()) {
    double expected = stepSeconds(*step, mesh, truth);
    EXPECT_NEAR(stepSeconds(*step, mesh, fitted), expected, 0.1 * expected);
  }
}

/// Links between nodes are told from those inside by runs on both.
TEST_F(CalibrateTest, FindsLinksBetweenNodes) {
  Cluster one = getCluster("cpu:4"), two = getCluster("cpu:2x2"),
          four = getCluster("cpu:4x1");
  for (Cluster *cluster : {&one, &two, &four}) {
    cluster->intra.bandwidth *= 0.6;
    cluster->inter.bandwidth *= 0.1;
    cluster->inter.startSeconds *= 4;
    cluster->inter.transferFraction *= 0.5;
  }
  plan::Profile profiles[] = {measure(one), measure(two), measure(four)};
  const MeasuredRun runs[] = {
      {plan, profiles[0], 1}, {plan, profiles[1], 2}, {plan, profiles[2], 4}};
  auto calibration = calibrate(runs, "cpu", "mine");
  ASSERT_TRUE(calibration.ok()) << calibration.status().message();
  std::map<std::string, double> ratios;
  for (const FittedValue &value : calibration->values)
    ratios[value.path] = value.after / value.before;
  EXPECT_NEAR(ratios["intra.bandwidth"], 0.6, 0.03);
  EXPECT_NEAR(ratios["inter.bandwidth"], 0.1, 0.005);
  EXPECT_NEAR(ratios["inter.transferFraction"] * ratios["inter.bandwidth"],
              0.05, 0.0025);
  EXPECT_FALSE(ratios.contains("intra.ring.simple.hop"));
  EXPECT_TRUE(ratios.contains("inter.direct.simple.hop"));
  for (const Residual &residual : calibration->residuals)
    EXPECT_LT(residual.errorAfter, 0.03) << residual.kind;
  // Nodes of equally many ranks.
  const MeasuredRun odd[] = {{plan, profiles[0], 3}};
  EXPECT_EQ(calibrate(odd, "cpu", "mine").status().message(),
            "a plan of 4 ranks cannot have run on 3 nodes of equally many");
}

TEST_F(CalibrateTest, LeavesFiguresThatNothingDependsOn) {
  plan::Profile profile = measure(getCluster("cpu:4"));
  for (plan::ProgramProfile &program : profile.programs)
    program.transfers.clear();
  const MeasuredRun runs[] = {{plan, profile}};
  auto calibration = calibrate(runs, "cpu", "mine");
  ASSERT_TRUE(calibration.ok());
  for (const FittedValue &value : calibration->values) {
    EXPECT_NE(value.path, "intra.transferLatency");
    EXPECT_NEAR(value.after / value.before, 1, 1e-6) << value.path;
  }
}

TEST_F(CalibrateTest, RefusesRunsOfNothing) {
  plan::Profile profile;
  const MeasuredRun runs[] = {{plan, profile}};
  EXPECT_EQ(calibrate(runs, "cpu", "mine").status().message(),
            "the profiles hold no step that took any time");
}

} // namespace
