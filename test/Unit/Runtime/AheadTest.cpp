//===- AheadTest.cpp - Steps that GPUs begin early ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs of the training loop on the fake of Fake/, which does nothing before it
// is asked for: a step that is enqueued early finds all that is written too
// early, or too late. What is walked never begins early, and is what the others
// are held against.
//
//===----------------------------------------------------------------------===//

#include "CudaPlan.h"
#include "FreePort.h"
#include "Rendezvous/TcpRendezvous.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Observer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <thread>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

#ifdef PLAIT_PLAITC
namespace {

/// Counts the graphs that the stand-in has been given to launch.
uint64_t countLaunches() {
  return findFake<uint64_t()>("plaitFakeGraphLaunches")();
}

/// Notes of each step what it reports, and how many graphs were launched.
struct Notes : Observer {
  std::vector<uint64_t> steps, launches;
  std::vector<StepMetrics> metrics;
  uint64_t before = countLaunches();

  Status endStep(const StepReport &step) override {
    steps.push_back(step.step);
    metrics.push_back(step.metrics);
    launches.push_back(countLaunches() - before);
    EXPECT_GT(step.seconds, 0);
    return Status::success();
  }
};

class Ahead : public ::testing::Test {
protected:
  static void SetUpTestSuite() {
    directory = makeDirectory();
    bytes = plan::packPlan(toCuda(
        compilePlan(PLAIT_MODEL, "--mesh dp=2,tp=2 --global-batch 4 --seq 8",
                    directory + "/model.plan"),
        directory));
  }

  Ahead() {
    options.steps = 8;
    options.learningRate = 1e-2;
    options.executor.timeLimit = std::chrono::seconds(20);
    options.executor.devices = 1;
  }

  const fb::Plan &plan() const { return *fb::GetPlan(bytes.data()); }

  struct Run {
    std::string error;
    Notes notes;
    std::vector<uint8_t> weights;
  };
  Run run(bool graph) {
    Run result;
    TrainOptions mine = options;
    mine.executor.cudaGraph = graph;
    mine.observers = {&result.notes};
    mine.save = makeDirectory();
    if (asks)
      mine.interrupted = [&] { return asks(result.notes); };
    Status status = train(plan(), mine);
    result.error = status.ok() ? "" : status.message();
    if (status.ok())
      result.weights = readFile(mine.save + "/model.safetensors");
    return result;
  }

  /// A run with recorded steps, which has done what one that is walked does.
  Run compare() {
    Run walked = run(false), recorded = run(true);
    EXPECT_EQ(recorded.error, walked.error);
    EXPECT_EQ(recorded.notes.steps, walked.notes.steps);
    EXPECT_EQ(recorded.notes.metrics, walked.notes.metrics);
    EXPECT_EQ(recorded.weights, walked.weights);
    return recorded;
  }

  /// How many steps had been launched when each was told of; the first is
  /// walked.
  static std::vector<uint64_t> launched(const Run &run) {
    std::vector<uint64_t> result = run.notes.launches;
    for (uint64_t &one : result)
      ++one;
    return result;
  }

  static inline std::string directory; // of the kernels, too
  static inline std::vector<uint8_t> bytes;
  TrainOptions options;
  std::function<bool(const Notes &)> asks;
};

using Steps = std::vector<uint64_t>;

/// Ranks of one process that share a GPU are one graph.
TEST_F(Ahead, TheNextStepIsEnqueuedBeforeMetricsAreRead) {
  Run run = compare();
  EXPECT_EQ(run.error, "");
  EXPECT_EQ(run.notes.steps, Steps({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(launched(run), Steps({1, 2, 4, 5, 6, 7, 8, 8}));
  // Losses are those of their own steps.
  for (size_t i = 1; i < run.notes.metrics.size(); ++i)
    EXPECT_NE(run.notes.metrics[i], run.notes.metrics[i - 1]) << i;
}

/// Urgent streams as early as can be, and NCCL, where each rank has a graph.
TEST_F(Ahead, WhateverRunsFirst) {
  for (unsigned devices : {1u, 0u})
    for (const char *hasty : {"0", "1"}) {
      options.executor.devices = devices;
      setenv("PLAIT_FAKE_HASTY", hasty, 1);
      EXPECT_EQ(compare().error, "");
    }
  unsetenv("PLAIT_FAKE_HASTY");
}

TEST_F(Ahead, AnotherProcessDecidesAlike) {
  uint16_t port = freePort();
  std::vector<std::string> errors(4, "none");
  Notes notes;
  std::vector<std::thread> processes;
  for (uint32_t rank = 0; rank < 4; ++rank)
    processes.emplace_back([&, rank] {
      Launch launch = {"test", rank, 4, rank, "127.0.0.1", port};
      auto joined = TcpRendezvous::join(launch, options.executor.timeLimit);
      TrainOptions mine = options;
      mine.executor.devices = 0;
      mine.executor.processes = joined.ok() ? joined->get() : nullptr;
      // Only one of them is interrupted, in the middle of step 4.
      mine.interrupted = [&, rank] {
        return rank == 2 && notes.steps.size() > 3;
      };
      if (rank == 0)
        mine.observers = {&notes};
      Status status = joined.ok() ? train(plan(), mine) : joined.status();
      errors[rank] = status.ok() ? "" : status.message();
    });
  for (std::thread &process : processes)
    process.join();
  EXPECT_EQ(errors, std::vector<std::string>(4));
  ASSERT_GE(notes.steps.size(), 5u);
  EXPECT_LT(notes.steps.size(), 8u);
  EXPECT_EQ(notes.metrics.size(), notes.steps.back());
  options.steps = notes.steps.size();
  EXPECT_EQ(run(false).notes.metrics, notes.metrics);
}

/// What is in the arenas after a step is that step's where somebody reads it.
TEST_F(Ahead, CheckpointsAreOfTheirStep) {
  auto files = [&](bool graph) {
    options.checkpoint.directory = makeDirectory() + "/steps";
    EXPECT_EQ(run(graph).error, "");
    std::map<std::string, std::vector<uint8_t>> all;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(
             options.checkpoint.directory))
      if (entry.is_regular_file() && entry.path().extension() != ".json")
        all[entry.path().string().substr(options.checkpoint.directory.size())] =
            readFile(entry.path());
    return all;
  };
  options.checkpoint.every.steps = 3;
  options.planHash = 1;
  auto walked = files(false), recorded = files(true);
  EXPECT_GE(walked.size(), 3u * 2); // steps, and ranks that differ
  EXPECT_TRUE(walked == recorded);
  options.checkpoint.directory = makeDirectory() + "/steps";
  EXPECT_EQ(launched(run(true)), Steps({1, 2, 3, 5, 6, 6, 8, 8}));
}

TEST_F(Ahead, NothingComesEarlyThatMayStillChange) {
  auto none = Steps({1, 2, 3, 4, 5, 6, 7, 8});
  TrainOptions plain = options;
  options.onSpike = SpikePolicy::RollBack;
  options.checkpoint.directory = makeDirectory() + "/steps";
  EXPECT_EQ(launched(run(true)), none);
  options = plain;
  options.checkpoint.directory = makeDirectory() + "/steps";
  options.checkpoint.every.seconds = std::chrono::hours(1);
  EXPECT_EQ(launched(run(true)), none);
  options = plain;
  options.sampleLog = makeDirectory() + "/samples.jsonl";
  EXPECT_EQ(launched(compare()), none);
  options = plain;
  options.executor.guardEvery = 5;
  EXPECT_EQ(launched(compare()), Steps({1, 2, 4, 5, 5, 7, 8, 8}));
}

/// The step that has begun is a step of the run, and the last one.
TEST_F(Ahead, AnInterruptionEndsTheRunBehindTheStepThatHasBegun) {
  asks = [](const Notes &notes) { return notes.steps.size() == 5; };
  Run stopped = run(true);
  EXPECT_EQ(stopped.error, "");
  EXPECT_EQ(stopped.notes.steps, Steps({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(launched(stopped), Steps({1, 2, 4, 5, 6, 6}));
  asks = nullptr;
  options.steps = 6;
  Run whole = run(false);
  EXPECT_EQ(stopped.notes.metrics, whole.notes.metrics);
  EXPECT_EQ(stopped.weights, whole.weights);
}

/// The step behind it has begun, and is told to nobody.
TEST_F(Ahead, ALossThatIsNoNumberEndsTheRunAtItsStep) {
  size_t late = 0;
  for (double rate : {1e2, 1e4, 1e6, 1e8, 1e12, 1e16, 1e20}) {
    options.steps = 40;
    options.learningRate = rate;
    Run run = compare();
    late += !run.error.empty() && run.notes.steps.size() > 3;
    if (!run.error.empty())
      EXPECT_TRUE(run.error.starts_with(
          "step " + std::to_string(run.notes.steps.size() + 1) + ": the "))
          << run.error;
  }
  EXPECT_GT(late, 0u);
}

} // namespace
#endif
