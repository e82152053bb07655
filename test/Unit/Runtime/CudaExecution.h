//===- CudaExecution.h - Plans on fake GPUs ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Trains plans on the CPU and, as CUDA plans, on the stand-ins of Fake/.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_CUDAEXECUTION_H
#define PLAIT_TEST_UNIT_RUNTIME_CUDAEXECUTION_H

#include "CUDA/CudaBackend.h"
#include "CudaPlan.h"
#include "TrainSteps.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Device.h"
#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Runtime/Trainer.h"
#include "plait/Runtime/Weights.h"

#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <optional>
#include <unistd.h>

namespace plait::test {
using namespace runtime;

constexpr std::chrono::milliseconds patience = std::chrono::seconds(20);

/// An environment variable, for as long as the object lives.
struct Setting {
  Setting(const char *name, const char *value) : name(name) {
    if (const char *known = std::getenv(name))
      before = known;
    setenv(name, value, 1);
  }
  ~Setting() { before ? setenv(name, before->c_str(), 1) : unsetenv(name); }
  const char *name;
  std::optional<std::string> before;
};

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
    auto metrics = trainThreeSteps(**executor, plan);
    if (!metrics.ok())
      return metrics.status();
    Run run = {std::move(*metrics), {}};
    std::string target = makeDirectory();
    PLAIT_RETURN_IF_ERROR(saveWeights(**executor, target));
    run.weights = readFile(target + "/model.safetensors");
    return run;
  }

#ifdef PLAIT_PLAITC
  fb::PlanT compile(const std::string &given,
                    const std::string &model = PLAIT_MODEL) {
    return compilePlan(model, given, directory + "/model.plan");
  }
#endif

  /// Gives the first weight of every rank the value in `weights`, or infinity
  /// where there is none, and leaves there what it was.
  static Status exchangeWeights(Executor &executor,
                                std::map<uint32_t, float> &weights) {
    for (uint32_t rank : executor.ranks())
      weights.try_emplace(rank, std::numeric_limits<float>::infinity());
    return executor.forEachRank([&](uint32_t rank) {
      uint64_t place = executor.program(rank).shards()->Get(0)->weight();
      float old = 0;
      std::span bytes(&old, 1), made(&weights.at(rank), 1);
      PLAIT_RETURN_IF_ERROR(
          executor.device(rank).read(place, std::as_writable_bytes(bytes)));
      PLAIT_RETURN_IF_ERROR(
          executor.device(rank).write(place, std::as_bytes(made)));
      made.front() = old;
      return Status::success();
    });
  }

  /// The losses of two steps, of an evaluation, of a step that is finite, of
  /// one whose loss is not, which must not change anything, and of an
  /// evaluation after it.
  Result<std::vector<float>> evaluateAndSkip(const fb::Plan &plan,
                                             const ExecutorOptions &options) {
    auto executor = Executor::create(plan, options);
    if (!executor.ok())
      return executor.status();
    PLAIT_RETURN_IF_ERROR(initializeWeights(**executor, 7));
    auto batches = Batches::random(5, plan);
    if (!batches.ok())
      return batches.status();
    StepScalars scalars = {1e-3f, 0.9f, 0.999f, 1e-8f,
                           0.01f, 1.0f, 0.1f,   1e-3f};
    std::vector<float> losses;
    auto step = [&](uint64_t number, StepScope scope) -> Status {
      auto metrics = (*executor)->runStep(number, *batches, scalars, scope);
      if (metrics.ok())
        losses.push_back(float(at(*metrics, fb::Metric::Loss)));
      return metrics.status();
    };
    PLAIT_RETURN_IF_ERROR(step(1, StepScope::Train));
    PLAIT_RETURN_IF_ERROR(step(2, StepScope::Train));
    PLAIT_RETURN_IF_ERROR(step(9, StepScope::Evaluate));
    PLAIT_RETURN_IF_ERROR(step(3, StepScope::TrainIfFinite));
    std::map<uint32_t, float> weights = {};
    PLAIT_RETURN_IF_ERROR(exchangeWeights(**executor, weights));
    PLAIT_RETURN_IF_ERROR(step(4, StepScope::TrainIfFinite));
    EXPECT_FALSE(std::isfinite(losses.back()));
    losses.pop_back();
    PLAIT_RETURN_IF_ERROR(exchangeWeights(**executor, weights));
    PLAIT_RETURN_IF_ERROR(step(9, StepScope::Evaluate));
    PLAIT_RETURN_IF_ERROR(step(5, StepScope::Train));
    return losses;
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

  static bool hasEpilogues(const fb::PlanT &plan) {
    for (const auto &program : plan.programs)
      for (const auto &function : program->functions)
        for (const auto &step : function->steps)
          if (const fb::GemmStepT *gemm = step->step.AsGemmStep();
              gemm && gemm->epilogue != fb::Epilogue::None)
            return true;
    return false;
  }

  /// Of the metrics of a step on the CPU and on the fake, relative. The fake
  /// adds the terms of a GEMM one by one; of bf16 sums, some are then
  /// rounded to the other side: by up to 1.8e-3 against tiles (AMX). Where an
  /// epilogue follows, the CPU rounds the sum before it, and the fake, as GPUs,
  /// does not: by up to 1.02e-2 after two updates, against blocks that are
  /// widened (AVX-512).
  static double toleranceOf(const fb::PlanT &plan) {
    if (plan.precision != "bf16")
      return 1e-5;
    return hasEpilogues(plan) ? 1.5e-2 : 4e-3;
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
        float value = expected->metrics[step][i];
        EXPECT_NEAR(walked->metrics[step][i], value, toleranceOf(cpu) * value);
      }
    // One or two GPUs, or NCCL with one each; walked or recorded; with what
    // ranks tell each other as late or as early as can be: same bits.
    for (unsigned devices : {1u, 3u, 0u})
      for (bool graph : {false, true})
        for (const char *hasty : {"0", "1"}) {
          Setting early("PLAIT_FAKE_HASTY", hasty);
          SCOPED_TRACE(testing::Message() << devices << " GPUs, graph " << graph
                                          << ", hasty " << hasty);
          auto run = train(plan, options(devices, graph));
          ASSERT_TRUE(run.ok()) << run.status().message();
          EXPECT_EQ(run->metrics, walked->metrics);
          EXPECT_EQ(run->weights, walked->weights);
        }
    if (plan::RankGrid(plan).ranks() > 1 ||
        plan.programs()->Get(0)->host_bytes())
      expectEventsMatter(plan, *walked);
  }

  /// Without the events between streams, in either direction, results differ.
  /// Not so where urgent streams wait for nothing and each step has the same
  /// metrics and no update, as in the test plan: over NCCL ranks meet on the
  /// host in the first step, and meanwhile a GPU computes what it has.
  void expectEventsMatter(const fb::Plan &plan, const Run &right) {
    bool repeats = right.metrics.front() == right.metrics.back();
    for (unsigned devices : {1u, 0u})
      for (const char *side : {"compute", "urgent"}) {
        if (repeats && devices == 0 && *side == 'u')
          continue;
        Setting lose("PLAIT_FAKE_LOSE", side);
        // Who does not wait shows it by being early, and a send by not waiting
        // for its receive either.
        Setting early("PLAIT_FAKE_HASTY", *side == 'u' ? "1" : "0");
        Setting eager("PLAIT_FAKE_EAGER_BYTES", *side == 'u' ? "99999" : "0");
        auto run = train(plan, options(devices, false));
        EXPECT_FALSE(run.ok() && run->metrics == right.metrics &&
                     run->weights == right.weights)
            << devices << " GPUs, " << side << " streams wait for nothing";
      }
  }
};

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_RUNTIME_CUDAEXECUTION_H
