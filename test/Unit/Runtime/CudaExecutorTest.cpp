//===- CudaExecutorTest.cpp - CUDA plans on fake GPUs ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Turns CPU plans into CUDA plans whose kernels are the same code, and runs
// them on the fake of Fake/: everything but the GPU is the real thing.
//
//===----------------------------------------------------------------------===//

#include "CUDA/CudaBackend.h"
#include "TestPlan.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Trainer.h"
#include "plait/Runtime/Weights.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <tuple>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

constexpr std::chrono::milliseconds patience = std::chrono::seconds(20);

/// The same plan for CUDA. A kernel of the CPU takes any range; each kernel of
/// the result has one extent.
fb::PlanT toCuda(fb::PlanT plan, const std::string &directory) {
  std::string object = directory + "/kernels.so";
  if (!plan.code.empty())
    writeFile(object, plan.code.front()->data);
  std::string text = "plait-fake " + object + "\n";
  std::map<std::tuple<uint32_t, int64_t>, uint32_t> numbers;
  std::vector<std::unique_ptr<fb::KernelT>> kernels;
  for (auto &program : plan.programs) {
    program->library_workspace = (program->arena_bytes + 255) / 256 * 256;
    program->library_workspace_bytes = 1024;
    program->arena_bytes = program->library_workspace + 1024;
    for (auto &function : program->functions)
      for (auto &step : function->steps) {
        fb::KernelStepT *kernel = step->step.AsKernelStep();
        if (!kernel)
          continue;
        auto [known, isNew] = numbers.try_emplace(
            {kernel->kernel, kernel->extent}, kernels.size());
        if (isNew) {
          fb::KernelT &made = append(kernels);
          made.symbol = "kernel" + std::to_string(known->second);
          made.block_threads = 128;
          made.indices_per_block = 7;
          text += made.symbol + " " + plan.kernels[kernel->kernel]->symbol +
                  " " + std::to_string(kernel->args.size()) + " " +
                  std::to_string(kernel->scalars.size()) + " " +
                  std::to_string(kernel->extent) + " 7\n";
        }
        kernel->kernel = known->second;
      }
  }
  plan.kernels = std::move(kernels);
  plan.code.clear();
  fb::CodeObjectT &code = append(plan.code);
  code.target = "ptx";
  code.cpu = "sm_80";
  code.data.assign(text.begin(), text.end());
  plan.backend = "cuda";
  plan.reference.clear();
  return plan;
}

class CudaExecutorTest : public ::testing::Test {
protected:
  std::string directory = makeDirectory();
  std::vector<std::vector<uint8_t>> packed;

  const fb::Plan &pack(const fb::PlanT &plan) {
    packed.push_back(plan::packPlan(plan));
    const fb::Plan &result = *fb::GetPlan(packed.back().data());
    Status status = plan::checkPlan(result);
    EXPECT_TRUE(status.ok()) << status.message();
    return result;
  }

  static ExecutorOptions options(unsigned devices, bool graph) {
    ExecutorOptions result;
    result.timeLimit = patience;
    result.devices = devices;
    result.cudaGraph = graph;
    return result;
  }

  /// The metrics of three steps on random tokens, and the saved weights.
  struct Run {
    std::vector<StepMetrics> metrics;
    std::vector<uint8_t> weights;
  };
  Result<Run> train(const fb::Plan &plan, const ExecutorOptions &options) {
    auto executor = Executor::create(plan, options);
    if (!executor.ok())
      return executor.status();
    PLAIT_RETURN_IF_ERROR(initializeWeights(**executor, 7));
    auto batches = Batches::random(5, plan);
    if (!batches.ok())
      return batches.status();
    Run run;
    StepScalars scalars = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, 1.0f, 0, 0};
    float decay1 = 1, decay2 = 1;
    for (uint64_t step = 1; step <= 3; ++step) {
      scalars[6] = 1 - (decay1 *= 0.9f);
      scalars[7] = 1 - (decay2 *= 0.999f);
      auto metrics = (*executor)->runStep(step, *batches, scalars);
      if (!metrics.ok())
        return metrics.status();
      run.metrics.push_back(*metrics);
    }
    std::string target = makeDirectory();
    PLAIT_RETURN_IF_ERROR(saveWeights(**executor, target));
    run.weights = readFile(target + "/model.safetensors");
    return run;
  }

  fb::PlanT cpuPlan() {
    fb::PlanT plan = makePlan();
    fb::CodeObjectT &code = append(plan.code);
    code.target = "x86_64";
    code.data = readFile(PLAIT_TEST_KERNELS);
    return plan;
  }

  std::string startError(const fb::PlanT &plan,
                         const ExecutorOptions &options = {}) {
    packed.push_back(plan::packPlan(plan));
    auto executor =
        Executor::create(*fb::GetPlan(packed.back().data()), options);
    return executor.ok() ? "" : executor.status().message();
  }

  /// Runs `cpu` on the CPU and, as a CUDA plan, in every way there is.
  void compare(const fb::PlanT &cpu) {
    auto expected = train(pack(cpu), options(0, false));
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    const fb::Plan &plan = pack(toCuda(cpu, directory));
    auto walked = train(plan, options(1, false));
    ASSERT_TRUE(walked.ok()) << walked.status().message();
    for (size_t step = 0; step < 3; ++step)
      for (size_t i = 0; i < expected->metrics[step].size(); ++i) {
        // The fake adds the terms of a product one by one.
        float value = expected->metrics[step][i];
        EXPECT_NEAR(walked->metrics[step][i], value, 1e-5 * value);
      }
    // One or two GPUs, or NCCL with one each; walked or recorded: same bits.
    for (unsigned devices : {1u, 3u, 0u})
      for (bool graph : {false, true}) {
        auto run = train(plan, options(devices, graph));
        ASSERT_TRUE(run.ok())
            << devices << " " << graph << ": " << run.status().message();
        EXPECT_EQ(run->metrics, walked->metrics) << devices << " " << graph;
        EXPECT_EQ(run->weights, walked->weights) << devices << " " << graph;
      }
  }
};

TEST_F(CudaExecutorTest, RunsTheTestPlan) { compare(cpuPlan()); }

TEST_F(CudaExecutorTest, SaysWhereRanksRun) {
  const fb::Plan &plan = pack(toCuda(cpuPlan(), directory));
  auto one = Executor::create(plan, options(1, true));
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ((*one)->placement(), "ranks 0 to 3 of 4 on GPU 0 (Fake)");
  auto three = Executor::create(plan, options(3, true));
  ASSERT_TRUE(three.ok()) << three.status().message();
  EXPECT_EQ((*three)->placement(),
            "ranks 0, 3 of 4 on GPU 0 (Fake); rank 1 of 4 on GPU 1 (Fake); "
            "rank 2 of 4 on GPU 2 (Fake)");
}

TEST_F(CudaExecutorTest, RefusesWhatDoesNotFit) {
  fb::PlanT plan = toCuda(cpuPlan(), directory);
  EXPECT_EQ(startError(plan, options(9, true)),
            "--devices is 9, but only 8 GPUs are visible");
  setenv("PLAIT_FAKE_MEMORY", "15000", 1);
  EXPECT_EQ(startError(plan, options(1, true)),
            "GPU 0 (Fake): ranks 0 to 3 need 20480 bytes, 15000 are free");
  unsetenv("PLAIT_FAKE_MEMORY");
  plan.code[0]->cpu = "sm_100";
  EXPECT_EQ(startError(plan),
            "GPU 0 (Fake) is sm_90, the plan has ptx for sm_100");
  plan.code[0]->cpu = "sm_90a";
  EXPECT_EQ(startError(plan), "");
  plan.code[0]->target = "x86_64";
  EXPECT_EQ(startError(plan),
            "GPU 0 (Fake) is sm_90, the plan has no code for GPUs");
  plan.code[0]->target = "ptx";
  plan.kernels[0]->symbol = "nothing";
  EXPECT_EQ(startError(plan),
            "the plan's code does not define kernel 'nothing'");
  plan.backend = "abacus";
  EXPECT_EQ(startError(plan),
            "the plan is for backend 'abacus', known are cpu and cuda");
}

TEST_F(CudaExecutorTest, ALaunchedProcessMustFitThePlan) {
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "3", 1);
  EXPECT_EQ(startError(toCuda(cpuPlan(), directory)),
            "the plan has 4 ranks, torchrun started 3 processes");
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
}

#ifdef PLAIT_PLAITC
/// A GPT-2 of two layers, compiled for the CPU.
class CudaModelTest : public CudaExecutorTest,
                      public ::testing::WithParamInterface<const char *> {};

TEST_P(CudaModelTest, EqualsTheCpu) {
  if (access(PLAIT_PLAITC, X_OK) != 0)
    GTEST_SKIP() << PLAIT_PLAITC << " has not been built";
  std::string path = directory + "/model.plan";
  std::string command = std::string(PLAIT_PLAITC) + " " PLAIT_MODEL " " +
                        GetParam() + " -o " + path;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  auto file = plan::PlanFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  fb::PlanT plan;
  file->plan().UnPackTo(&plan);
  plan.reference.clear();
  compare(plan);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, CudaModelTest,
    ::testing::Values("--mesh pp=1 --global-batch 4 --seq 8",
                      "--mesh pp=2,dp=2,tp=2 --global-batch 8 --seq 8 "
                      "--micro-batch 1"));
#endif

} // namespace
