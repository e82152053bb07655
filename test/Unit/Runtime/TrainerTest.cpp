//===- TrainerTest.cpp - Training and checking ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Trainer.h"

#include "TestPlan.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Weights.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

/// The second stage of the test plan alone, without its transfers: one rank
/// whose gradient and metrics are constants.
fb::PlanT makeSingleRankPlan(const std::vector<float> &gradient, float loss,
                             float norm = 1, float count = 8) {
  fb::PlanT plan = makePlan();
  for (auto &axis : plan.mesh)
    axis->size = 1;
  plan.kernels.clear();
  plan.parameters.erase(plan.parameters.begin());
  plan.programs.erase(plan.programs.begin());
  fb::ProgramT &program = *plan.programs[0];
  program.shards[0]->parameter = 0;
  program.regions.clear();
  program.functions.clear();
  program.actions.clear();
  append(program.functions).name = "nothing";
  fb::ActionT &action = append(program.actions);
  action.kind = fb::ActionKind::Optimizer;
  action.function = 0;
  std::vector<float> metrics = {loss, norm, count};
  auto store = [&](uint64_t offset, const std::vector<float> &values) {
    fb::ConstantT &constant = append(program.constants);
    constant.offset = offset;
    constant.data = plan.data.size();
    fb::DataT &data = append(plan.data);
    data.bytes.resize(values.size() * sizeof(float));
    std::memcpy(data.bytes.data(), values.data(), data.bytes.size());
  };
  store(program.metrics, metrics);
  store(program.shards[0]->gradient, gradient);
  return plan;
}

class TrainerTest : public ::testing::Test {
protected:
  std::string directory = makeDirectory();
  std::vector<uint8_t> bytes;

  const fb::Plan &pack(const fb::PlanT &plan) {
    bytes = plan::packPlan(plan);
    Status status = plan::checkPlan(*fb::GetPlan(bytes.data()));
    EXPECT_TRUE(status.ok()) << status.message();
    return *fb::GetPlan(bytes.data());
  }

  std::string compare(const std::vector<float> &gradient, float loss,
                      const char *precision = "fp32") {
    fb::PlanT plan = makeSingleRankPlan(gradient, loss);
    fb::PlanT reference = makeSingleRankPlan(std::vector<float>(18, 1), 4);
    plan.precision = reference.precision = precision;
    plan.reference = plan::packPlan(reference);
    Status status = check(pack(plan), {});
    return status.ok() ? "" : status.message();
  }
};

TEST_F(TrainerTest, CheckComparesLossAndGradients) {
  std::vector<float> gradient(18, 1);
  EXPECT_EQ(compare(gradient, 4), "");
  EXPECT_EQ(compare(gradient, 4.00001f), "");
  EXPECT_NE(compare(gradient, 4.001f).find("loss 4.00099"), std::string::npos);
  gradient[5] = 1.01f;
  EXPECT_NE(compare(gradient, 4).find("the gradient of 'sum' differs"),
            std::string::npos);
  // Numbers of 8 bits are given more room, but not any.
  EXPECT_EQ(compare(gradient, 4.0005f, "bf16"), "");
  EXPECT_NE(compare(gradient, 4.01f, "bf16").find("loss 4.01"),
            std::string::npos);
  gradient[5] = 1.5f;
  EXPECT_NE(compare(gradient, 4, "bf16").find("the gradient of 'sum' differs"),
            std::string::npos);
  gradient[5] = NAN;
  EXPECT_NE(compare(gradient, 4), "");
  EXPECT_NE(compare(std::vector<float>(18, 1), NAN), "");
}

TEST_F(TrainerTest, CheckComparesTheNormOfAllGradients) {
  std::vector<float> gradient(18, 1);
  auto compareNorm = [&](float norm) {
    fb::PlanT plan = makeSingleRankPlan(gradient, 4, norm);
    plan.reference = plan::packPlan(makeSingleRankPlan(gradient, 4));
    Status status = check(pack(plan), {});
    return status.ok() ? "" : status.message();
  };
  EXPECT_EQ(compareNorm(1.00005f), "");
  EXPECT_EQ(compareNorm(1.2f),
            "gradient norm 1.20000005, reference 1: differs by 0.2, allowed "
            "0.0001");
}

TEST_F(TrainerTest, CheckPassesNothingThatIsNoNumber) {
  std::vector<float> gradient(18, 1);
  auto check = [&](float loss, float norm, float count) {
    fb::PlanT plan = makeSingleRankPlan(gradient, loss, norm, count);
    plan.reference = plan::packPlan(plan);
    Status status = runtime::check(pack(plan), {});
    return status.ok() ? "" : status.message();
  };
  std::string nothing = "nothing to compare: in the plan ";
  EXPECT_EQ(check(4, 1, 8), "");
  EXPECT_EQ(check(INFINITY, 1, 8), nothing + "the loss is inf");
  EXPECT_EQ(check(4, NAN, 8), nothing + "the gradient norm is nan");
  EXPECT_EQ(check(INFINITY, 1, 0),
            nothing +
                "the step counts 0 tokens, and the loss is the mean over them");
}

TEST_F(TrainerTest, CheckIsInterrupted) {
  fb::PlanT plan = makeSingleRankPlan(std::vector<float>(18, 1), 4);
  plan.reference = plan::packPlan(plan);
  TrainOptions options;
  options.interrupted = [] { return true; };
  EXPECT_EQ(runtime::check(pack(plan), options).message(),
            "interrupted before all was compared");
}

/// Keeps what it hears.
class Listener : public Reporter {
public:
  void message(const Message &message) override {
    if (message.severity == Severity::Warning)
      warnings += message.text + "\n";
  }
  void result(const std::string &line) override { results += line + "\n"; }

  std::string warnings, results;
};

TEST_F(TrainerTest, TellsItsReporter) {
  fb::PlanT plan = makeSingleRankPlan(std::vector<float>(18, 1), 4);
  plan.reference = plan::packPlan(plan);
  Listener listener;
  TrainOptions options;
  options.executor.reporter = &listener;
  ASSERT_TRUE(runtime::check(pack(plan), options).ok());
  EXPECT_TRUE(listener.warnings.empty()) << listener.warnings;
  EXPECT_TRUE(listener.results.starts_with("parameter ")) << listener.results;
  EXPECT_TRUE(listener.results.ends_with(
      "loss 4, reference 4; gradient norm 1, reference 1; 0 of 1 gradients "
      "differ by more than 0.0001: passed\n"))
      << listener.results;
  // Weights of which it takes one.
  options.weights = directory + "/weights.safetensors";
  std::vector<TensorShape> tensors = {{"transformer.sum", {3, 6}},
                                      {"other", {1}}};
  auto writer =
      WeightWriter::create(options.weights, tensors, FileTensor::Type::F32);
  ASSERT_TRUE(writer.ok());
  std::vector<float> numbers(18, 1);
  ASSERT_TRUE(writer->write(0, 0, numbers).ok());
  ASSERT_TRUE(writer->write(1, 0, std::span(numbers).first(1)).ok());
  ASSERT_TRUE(writer->commit().ok());
  ASSERT_TRUE(runtime::check(pack(plan), options).ok());
  EXPECT_EQ(listener.warnings, "weights '" + options.weights +
                                   "' has what the model has no place for: "
                                   "other\n");
}

TEST_F(TrainerTest, SaysWhatCannotBe) {
  TrainOptions options;
  options.text = options.evalText = directory + "/text";
  writeFile(options.text, std::vector<uint8_t>(16, 1));
  // The metrics are copied to their place behind the update.
  fb::PlanT late = makeSingleRankPlan({1}, 4);
  fb::ProgramT &program = *late.programs[0];
  fb::RegionT &region = append(program.regions);
  region.name = "sum";
  region.category = fb::Category::Parameters;
  region.offset = program.shards[0]->weight;
  region.bytes = 72;
  for (uint64_t offset : {program.shards[0]->weight, program.metrics}) {
    fb::FillStepT fill;
    fill.target = std::make_unique<fb::Ref>(offset, -1);
    fill.bytes = 4;
    append(program.functions[0]->steps).step.Set(std::move(fill));
  }
  Status status = train(pack(late), options);
  EXPECT_EQ(status.message(),
            "the plan cannot evaluate: program 0 changes what it trains in "
            "step 0 of 'nothing', its metrics are known after step 1");
  options.evalText.clear();
  options.onNonFinite = NonFinitePolicy::RollBack;
  EXPECT_EQ(train(pack(makeSingleRankPlan({1}, NAN)), options).message(),
            "step 1: there are no checkpoints to go back to");
}

TEST_F(TrainerTest, TrainKeepsAnOtherLogAndStopsWhenInterrupted) {
  const fb::Plan &plan = pack(makeSingleRankPlan({1}, 4.5f));
  TrainOptions options;
  options.text = directory + "/text";
  options.log = directory + "/log";
  options.save = directory + "/out";
  options.steps = 3;
  writeFile(options.text, {1, 2, 3, 4});
  writeFile(options.log, {'a', '\n'});
  int asked = 0;
  options.interrupted = [&] { return ++asked > 2; };
  Status status = train(plan, options);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(readFile(options.log + ".1").at(0), 'a');
  std::vector<uint8_t> log = readFile(options.log);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2);
  EXPECT_TRUE(std::filesystem::exists(options.save + "/model.safetensors"));
  options.save = directory + "/none";
  EXPECT_EQ(train(plan, options).message(),
            "interrupted before the first step");
  EXPECT_FALSE(std::filesystem::exists(options.save + "/model.safetensors"));
}

TEST_F(TrainerTest, SavesTheConfigBesideTheWeights) {
  fb::PlanT content = makeSingleRankPlan({1}, 4.5f);
  content.config = "{\"model_type\": \"test\"}\n";
  const fb::Plan &plan = pack(content);
  TrainOptions options;
  options.text = directory + "/text";
  options.save = directory + "/out";
  options.steps = 1;
  writeFile(options.text, {1, 2, 3, 4});
  ASSERT_TRUE(train(plan, options).ok());
  std::vector<uint8_t> config = readFile(options.save + "/config.json");
  EXPECT_EQ(std::string(config.begin(), config.end()), content.config);
}

TEST_F(TrainerTest, TrainLogsAndSaves) {
  const fb::Plan &plan = pack(makeSingleRankPlan({1}, 4.5f));
  TrainOptions options;
  options.text = directory + "/text";
  options.log = directory + "/log";
  options.save = directory + "/out";
  options.steps = 3;
  writeFile(options.text, {1, 2, 3, 4});
  Status status = train(plan, options);
  ASSERT_TRUE(status.ok()) << status.message();
  std::vector<uint8_t> log = readFile(options.log);
  std::istringstream lines(std::string(log.begin(), log.end()));
  uint64_t step = 0;
  for (std::string line; std::getline(lines, line);) {
    auto entry = nlohmann::json::parse(line);
    EXPECT_EQ(entry["step"], ++step);
    EXPECT_EQ(entry["loss"], 4.5);
    EXPECT_EQ(entry["tokens"], 8);
    EXPECT_GT(entry["tokens_per_second"], 0);
  }
  EXPECT_EQ(step, 3u);
  EXPECT_TRUE(std::filesystem::exists(options.save + "/model.safetensors"));
}

TEST_F(TrainerTest, TrainStopsAtALossThatIsNoNumber) {
  const fb::Plan &plan = pack(makeSingleRankPlan({1}, NAN));
  TrainOptions options;
  options.text = directory + "/text";
  writeFile(options.text, {1, 2, 3, 4});
  EXPECT_EQ(train(plan, options).message(), "step 1: the loss is nan");
}

} // namespace
