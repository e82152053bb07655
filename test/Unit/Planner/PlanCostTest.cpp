//===- PlanCostTest.cpp - Costs of a compiled plan ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The test plan: 2 stages x 2 ranks of tp, matmuls of 3 x 4 by 4 x 6, messages
// of 72 bytes.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/PlanCost.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"
#include "plait/Planner/Cost.h"
#include "plait/Planner/Report.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::planner;
using namespace plait::test;

namespace {

class PlanCostTest : public ::testing::Test {
protected:
  std::vector<uint8_t> bytes = plan::packPlan(makePlan());
  const fb::Plan &plan = *fb::GetPlan(bytes.data());
  std::vector<plan::Message> messages = *plan::matchMessages(plan);

  static Cluster getCluster(const std::string &name) {
    auto cluster = parseCluster(name);
    EXPECT_TRUE(cluster.ok());
    return std::move(*cluster);
  }
  plan::ReplayCosts predict(const Cluster &cluster) {
    auto costs = predictCosts(plan, messages, cluster);
    EXPECT_TRUE(costs.ok());
    return std::move(*costs);
  }

  /// As plait-run would write it, with `seconds` for every step.
  plan::Profile makeProfile(double seconds) {
    plan::Profile profile;
    profile.plan = plan::identify(7);
    profile.mesh = {{"pp", 2}, {"tp", 2}};
    profile.steps = 3;
    profile.stepSeconds = 10 * seconds;
    for (const fb::Program *program : *plan.programs()) {
      plan::ProgramProfile &entry = profile.programs.emplace_back();
      for (const fb::Function *function : *program->functions()) {
        plan::FunctionProfile &steps = entry.functions.emplace_back();
        steps.name = function->name()->str();
        steps.calls = 2;
        for (uint32_t i = 0; i < function->steps()->size(); ++i)
          steps.steps.push_back({"GemmStep", "here", seconds, 0, seconds});
      }
    }
    plan::TransferProfile receive;
    receive.kind = fb::ActionKind::Recv;
    receive.seconds = 5 * seconds;
    profile.programs[1].transfers.push_back(receive);
    return profile;
  }
};

TEST_F(PlanCostTest, AsksTheCostModelForWhatIsInThePlan) {
  Cluster cluster = getCluster("cpu:4");
  plan::ReplayCosts costs = predict(cluster);
  EXPECT_EQ(costs.steps[0][0][0],
            matmulCost(1, 3, 6, 4, cluster.device, Precision::FP32).seconds);
  EXPECT_EQ(costs.steps[0][0][1],
            collectiveSeconds(CollectiveKind::AllReduce, 72, {2, 2}, cluster));
  EXPECT_EQ(costs.steps[0][1][0], memoryCost(24, cluster.device).seconds);
  // Zeros in the first of two microbatches.
  EXPECT_EQ(costs.steps[1][0][0], memoryCost(72, cluster.device).seconds / 2);
  ASSERT_EQ(costs.messages.size(), 2u);
  EXPECT_EQ(costs.messages[0], transferSeconds(72, true, cluster));
}

/// Gathers that GPUs launch together are one gather of all bytes, at the place
/// of the first; not on processors, and not beyond 1 MiB of a rank.
TEST_F(PlanCostTest, GathersThatAreLaunchedTogetherAreOne) {
  fb::PlanT made = makePlan();
  auto &steps = made.programs[0]->functions[0]->steps;
  size_t first = steps.size();
  constexpr int64_t large = 1 << 18; // 1 MiB
  for (int64_t chunk : {int64_t(18), int64_t(100), int64_t(5), large}) {
    fb::CollectiveStepT gather;
    gather.kind = uint8_t(CollectiveKind::AllGather);
    gather.axis = 1;
    gather.outer = 1;
    gather.chunk = chunk;
    gather.input = std::make_unique<fb::Ref>(0, -1);
    gather.output = std::make_unique<fb::Ref>(0, -1);
    steps.push_back(std::make_unique<fb::StepT>());
    steps.back()->step.Set(std::move(gather));
  }
  bytes = plan::packPlan(made);
  const fb::Plan &changed = *fb::GetPlan(bytes.data());
  for (const char *name : {"h100:1x4", "cpu:4"}) {
    Cluster cluster = getCluster(name);
    auto costs = predictCosts(changed, {}, cluster);
    ASSERT_TRUE(costs.ok()) << costs.status().message();
    auto gather = [&](int64_t chunk) {
      return collectiveSeconds(CollectiveKind::AllGather, double(2 * 4 * chunk),
                               {2, 2}, cluster);
    };
    std::vector<double> expected =
        cluster.device.isProcessor
            ? std::vector{gather(18), gather(100), gather(5), gather(large)}
            : std::vector{gather(123), 0.0, 0.0, gather(large)};
    const std::vector<double> &all = costs->steps[0][0];
    EXPECT_EQ(std::vector(all.begin() + first, all.end()), expected) << name;
  }
}

TEST_F(PlanCostTest, CountsWhatEpiloguesMove) {
  // Far from what the arithmetic takes: one matmul for each column.
  Cluster cluster = getCluster("h100:1x1");
  auto seconds = [&](auto change) {
    fb::StepT step;
    fb::GemmStepT gemm;
    gemm.m = 8192, gemm.n = 8192, gemm.k = 1;
    change(gemm);
    step.step.Set(std::move(gemm));
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(fb::Step::Pack(builder, &step));
    return stepSeconds(
        *flatbuffers::GetRoot<fb::Step>(builder.GetBufferPointer()),
        plan::RankGrid(plan), cluster);
  };
  double plain = seconds([](fb::GemmStepT &) {});
  // GELU's input is as large as C, which is read again where it is added to.
  double read = seconds(
      [](fb::GemmStepT &gemm) { gemm.accumulate = fb::Accumulate::Add; });
  double kept = seconds([](fb::GemmStepT &gemm) {
    gemm.epilogue = fb::Epilogue::Gelu;
    gemm.gelu_input = std::make_unique<fb::Ref>(0, -1);
  });
  EXPECT_GT(read, plain);
  EXPECT_EQ(kept, read);
  double biased = seconds([](fb::GemmStepT &gemm) {
    gemm.epilogue = fb::Epilogue::Bias;
    gemm.bias = std::make_unique<fb::Ref>(0, -1);
  });
  EXPECT_GT(biased, plain);
  // One number for 8192 of C.
  EXPECT_NEAR((biased - plain) / (read - plain), 1.0 / 8192, 1e-6);
}

/// At the rate of the device's link to its host, whatever its own memory is.
TEST_F(PlanCostTest, CopiesToTheHostTakeItsLink) {
  Cluster cluster = getCluster("h100:1x1");
  fb::CopyStepT copy;
  copy.kind = fb::CopyKind::FromHost;
  copy.bytes = 1 << 30;
  fb::StepT step;
  step.step.Set(std::move(copy));
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::Step::Pack(builder, &step));
  const auto *packed =
      flatbuffers::GetRoot<fb::Step>(builder.GetBufferPointer());
  EXPECT_NEAR(stepSeconds(*packed, plan::RankGrid(plan), cluster),
              double(1 << 30) / 5e10, 1e-5);
}

TEST_F(PlanCostTest, KnowsWhichRanksShareANode) {
  // Stages on nodes of their own: tp inside, pp across.
  Cluster cluster = getCluster("h100:2x2");
  plan::ReplayCosts costs = predict(cluster);
  EXPECT_EQ(costs.steps[0][0][1],
            collectiveSeconds(CollectiveKind::AllReduce, 72, {2, 2}, cluster));
  EXPECT_EQ(costs.steps[0][1][1],
            collectiveSeconds(CollectiveKind::AllReduce, 12, {2, 1}, cluster));
  EXPECT_EQ(costs.messages[0], transferSeconds(72, false, cluster));
}

TEST_F(PlanCostTest, NeedsADeviceForEveryRank) {
  auto costs = predictCosts(plan, messages, getCluster("cpu:3"));
  ASSERT_FALSE(costs.ok());
  EXPECT_EQ(costs.status().message(),
            "the plan has 4 ranks, cluster 'cpu:3' has 3 devices");
}

TEST_F(PlanCostTest, TakesMeasuredTimesFromAProfile) {
  plan::ReplayCosts costs = measuredCosts(plan, messages, makeProfile(2));
  EXPECT_EQ(costs.steps[0][0], std::vector<double>({2, 2, 2}));
  EXPECT_EQ(costs.messages, std::vector<double>({10, 10}));
}

TEST_F(PlanCostTest, ReadsWhatWasWritten) {
  std::string path = makeDirectory() + "/p.json";
  ASSERT_TRUE(plan::writeProfile(makeProfile(0.5), path).ok());
  auto profile = readProfile(path);
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_TRUE(checkProfile(*profile, path, plan, 7).ok());
  EXPECT_EQ(profile->stepSeconds, 5);
  EXPECT_EQ(profile->programs[1].transfers[0].seconds, 2.5);
  std::string again = makeDirectory() + "/p.json";
  profile->mesh = {{"pp", 2}, {"tp", 2}};
  ASSERT_TRUE(plan::writeProfile(*profile, again).ok());
  EXPECT_EQ(readFile(path), readFile(again));
}

TEST_F(PlanCostTest, RefusesAProfileOfAnotherPlan) {
  plan::Profile profile = makeProfile(1);
  EXPECT_EQ(checkProfile(profile, "p.json", plan, 8).message(),
            "profile 'p.json' is of another plan: it was taken of "
            "xxh3-0000000000000007, this one is xxh3-0000000000000008");
  profile.programs[1].functions[0].steps.pop_back();
  EXPECT_EQ(checkProfile(profile, "p.json", plan, 7).message(),
            "profile 'p.json' does not have the steps of its plan");
}

TEST_F(PlanCostTest, RefusesADamagedProfile) {
  std::string path = makeDirectory() + "/p.json";
  auto read = [&] {
    auto profile = readProfile(path);
    return profile.ok() ? "" : profile.status().message();
  };
  ASSERT_TRUE(plan::writeProfile(makeProfile(1), path).ok());
  std::vector<uint8_t> bytes = readFile(path);
  std::string text(bytes.begin(), bytes.end());
  auto replace = [&](const std::string &from, const std::string &to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    writeFile(path, {changed.begin(), changed.end()});
  };
  writeFile(path, {bytes.begin(), bytes.begin() + bytes.size() / 2});
  EXPECT_NE(read().find("profile '" + path + "'"), std::string::npos) << read();
  replace("\"step_seconds\"", "\"step_minutes\"");
  EXPECT_EQ(read(), "profile '" + path + "': step_seconds is missing");
  replace("\"seconds\": 1.0", "\"seconds\": -1.0");
  EXPECT_NE(read().find("programs[0].functions[0].steps[0].seconds"),
            std::string::npos)
      << read();
  replace("\"Recv\"", "\"Relay\"");
  EXPECT_EQ(read(), "profile '" + path +
                        "': programs[1].transfers[0].kind is 'Relay', which is "
                        "unknown");
  struct {
    const char *from, *to, *message;
  } kinds[] = {
      {"\"programs\": [", "\"programs\": 1, \"x\": [",
       "programs must be a list"},
      {"\"mesh\": {", "\"mesh\": 1, \"x\": {", "mesh must be an object"}};
  for (const auto &kind : kinds) {
    replace(kind.from, kind.to);
    EXPECT_EQ(read(), "profile '" + path + "': " + kind.message);
  }
  replace("\"direction\"", "\"way\"");
  EXPECT_EQ(read(), "profile '" + path +
                        "': programs[1].transfers[0].direction is missing");
}

TEST_F(PlanCostTest, ComparesWithAPickOfTheSameMesh) {
  std::string path = makeDirectory() + "/p.json";
  ASSERT_TRUE(plan::writeProfile(makeProfile(1), path).ok());
  Configuration pick;
  pick.mesh[Axis::PP] = pick.mesh[Axis::TP] = 2;
  auto measured = readMeasured(path, pick);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  EXPECT_EQ(measured->iterationSeconds, 10);
  pick.mesh[Axis::DP] = 2;
  EXPECT_EQ(readMeasured(path, pick).status().message(),
            "profile '" + path +
                "' was taken on pp=2,dp=1,tp=2, the prediction is for "
                "pp=2,dp=2,tp=2; pin it with `mesh`");
}

} // namespace
