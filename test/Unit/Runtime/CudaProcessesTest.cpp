//===- CudaProcessesTest.cpp - Several processes on fake GPUs -------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a launcher's processes do, each of which is a thread here: they share
// nothing but TCP connections and the fake NCCL.
//
//===----------------------------------------------------------------------===//

#include "CudaPlan.h"
#include "FreePort.h"
#include "Rendezvous/TcpRendezvous.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Profiler.h"
#include "plait/Runtime/Trainer.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

class CudaProcessesTest : public ::testing::Test {
protected:
  std::string directory = makeDirectory();
  std::vector<uint8_t> bytes;
  TrainOptions options;

  CudaProcessesTest() {
    options.text = directory + "/text";
    options.textAsBytes = true;
    options.steps = 3;
    options.executor.timeLimit = std::chrono::seconds(20);
    std::vector<uint8_t> text(4000);
    for (size_t i = 0; i < text.size(); ++i)
      text[i] = uint8_t(i * i % 97);
    writeFile(options.text, text);
  }

  fb::PlanT smallPlan() {
    fb::PlanT plan = makePlan();
    fb::CodeObjectT &code = append(plan.code);
    code.target = "x86_64";
    code.data = readFile(PLAIT_TEST_KERNELS);
    return toCuda(std::move(plan), directory);
  }

  const fb::Plan &pack(const fb::PlanT &plan) {
    bytes = plan::packPlan(plan);
    Status status = plan::checkPlan(*fb::GetPlan(bytes.data()));
    EXPECT_TRUE(status.ok()) << status.message();
    return *fb::GetPlan(bytes.data());
  }

  using Job = std::function<Status(const TrainOptions &options)>;

  /// What `job` says in a process for each of `ranks` ranks: "" for success.
  std::vector<std::string> runProcesses(uint32_t ranks, const Job &job) {
    uint16_t port = freePort();
    std::vector<std::string> results(ranks);
    std::vector<std::thread> processes;
    for (uint32_t rank = 0; rank < ranks; ++rank)
      processes.emplace_back([&, rank] {
        Launch launch = {"test", rank, ranks, rank, "127.0.0.1", port};
        auto joined = TcpRendezvous::join(launch, options.executor.timeLimit);
        TrainOptions mine = options;
        if (joined.ok())
          mine.executor.processes = joined->get();
        Status status = joined.ok() ? job(mine) : joined.status();
        results[rank] = status.ok() ? "" : status.message();
      });
    for (std::thread &process : processes)
      process.join();
    return results;
  }

  /// The files in `folder`.
  static std::vector<std::string> filesIn(const std::string &folder) {
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  /// Trains in one process and in one a rank, and compares what is saved.
  void compareSaved(const fb::Plan &plan, uint32_t ranks) {
    options.save = directory + "/one";
    options.log = directory + "/one.log";
    Status status = train(plan, options);
    ASSERT_TRUE(status.ok()) << status.message();
    options.save = directory + "/several";
    options.log = directory + "/several.log";
    auto results = runProcesses(
        ranks, [&](const TrainOptions &mine) { return train(plan, mine); });
    EXPECT_EQ(results, std::vector<std::string>(ranks));
    EXPECT_EQ(filesIn(options.save), filesIn(directory + "/one"));
    EXPECT_EQ(readFile(directory + "/several/model.safetensors"),
              readFile(directory + "/one/model.safetensors"));
  }
};

TEST_F(CudaProcessesTest, SaveTheBytesThatOneSaves) {
  compareSaved(pack(smallPlan()), 4);
}

TEST_F(CudaProcessesTest, FailTogetherBeforeTheFirstStep) {
  const fb::Plan &plan = pack(smallPlan());
  options.save = options.text; // a file
  auto results = runProcesses(
      4, [&](const TrainOptions &mine) { return train(plan, mine); });
  for (const std::string &result : results)
    EXPECT_TRUE(result.starts_with("cannot make directory")) << result;
}

TEST_F(CudaProcessesTest, LeaveNothingWhereSavingFails) {
  const fb::Plan &plan = pack(smallPlan());
  options.save = directory + "/saved";
  std::filesystem::create_directories(options.save + "/model.safetensors/x");
  // The directory is in the way of the finished file.
  auto results = runProcesses(
      4, [&](const TrainOptions &mine) { return train(plan, mine); });
  for (const std::string &result : results)
    EXPECT_NE(result, "");
  EXPECT_NE(results[0].find("cannot write"), std::string::npos) << results[0];
  EXPECT_EQ(filesIn(options.save),
            std::vector<std::string>{"model.safetensors"});
}

TEST_F(CudaProcessesTest, AnEndedProcessEndsTheOthers) {
  const fb::Plan &plan = pack(smallPlan());
  options.save = directory + "/saved";
  // What the others wait for does not come; there is no sooner end.
  options.executor.timeLimit = std::chrono::seconds(4);
  auto results = runProcesses(4, [&](const TrainOptions &mine) {
    if (mine.executor.processes->place().index != 2)
      return train(plan, mine);
    // It leaves after the last step, before it has given its weights.
    TrainOptions other = mine;
    other.save.clear();
    return train(plan, other);
  });
  EXPECT_NE(results[0], "");
  EXPECT_FALSE(std::filesystem::exists(options.save + "/model.safetensors"));
  EXPECT_TRUE(filesIn(options.save).empty());
}

TEST_F(CudaProcessesTest, OneInterruptedProcessEndsAllAfterTheSameStep) {
  const fb::Plan &plan = pack(smallPlan());
  options.steps = 1000;
  options.save = directory + "/saved";
  options.log = directory + "/log";
  auto results = runProcesses(4, [&](const TrainOptions &mine) {
    TrainOptions other = mine;
    bool isStopped = mine.executor.processes->place().index == 2;
    other.interrupted = [isStopped, asked = 0]() mutable {
      return isStopped && ++asked > 3;
    };
    return train(plan, other);
  });
  EXPECT_EQ(results, std::vector<std::string>(4));
  std::vector<uint8_t> log = readFile(options.log);
  // The fourth had begun when one was interrupted behind the third.
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 4);
  EXPECT_TRUE(std::filesystem::exists(options.save + "/model.safetensors"));
}

TEST_F(CudaProcessesTest, AProfileHasTheTimesOfAllProcesses) {
  const fb::Plan &plan = pack(smallPlan());
  plan::Profile first;
  auto results = runProcesses(4, [&](const TrainOptions &mine) {
    Profiler profiler(plan, 1, 1, options.steps);
    TrainOptions measured = mine;
    StepNotes notes(plan, /*overlaps=*/true, mine.executor.processes);
    measured.executor.notes = &notes;
    measured.readers = {&profiler};
    measured.executor.cudaGraph = false;
    PLAIT_RETURN_IF_ERROR(train(plan, measured));
    if (mine.executor.processes->place().index != 0)
      return Status::success();
    auto profile = profiler.finish();
    if (profile.ok())
      first = *profile;
    return profile.status();
  });
  EXPECT_EQ(results, std::vector<std::string>(4));
  EXPECT_EQ(first.steps, options.steps - 1);
  // Each program's ranks are in processes of their own.
  for (const plan::ProgramProfile &program : first.programs) {
    double seconds = 0;
    for (const plan::FunctionProfile &function : program.functions)
      for (const plan::StepProfile &step : function.steps)
        seconds += double(function.calls) * (step.seconds + step.waiting);
    EXPECT_GT(seconds, 0);
    // In the same unit: a process that waits for a core has steps of its own
    // length.
    EXPECT_LT(seconds, 100 * first.stepSeconds);
  }
}

TEST_F(CudaProcessesTest, AProfileHasTheTimesOfTheGpus) {
  const fb::Plan &plan = pack(smallPlan());
  for (unsigned devices : {1u, 0u}) { // shared memory, NCCL
    Profiler profiler(plan, 0xabc, 1, options.steps);
    TrainOptions measured = options;
    measured.executor.devices = devices;
    measured.executor.cudaGraph = false;
    StepNotes notes(plan, /*overlaps=*/true);
    measured.executor.notes = &notes;
    measured.readers = {&profiler};
    Status status = train(plan, measured);
    ASSERT_TRUE(status.ok()) << status.message();
    auto profile = profiler.finish();
    ASSERT_TRUE(profile.ok()) << profile.status().message();
    EXPECT_EQ(profile->steps, 2u);
    ASSERT_EQ(profile->programs.size(), 2u);
    const auto &forward = profile->programs[0].functions[0];
    ASSERT_EQ(forward.steps.size(), 3u);
    double sum = 0;
    for (const plan::StepProfile &step : forward.steps) {
      // No step of the fake is instant, none can take longer than the whole.
      EXPECT_GT(step.seconds + step.waiting, 0) << step.kind;
      EXPECT_EQ(step.processor, 0) << step.kind;
      sum += step.seconds;
    }
    EXPECT_LT(double(forward.calls) * sum, profile->stepSeconds);
    EXPECT_GE(profile->overheadSeconds, 0);
  }
}

#ifdef PLAIT_PLAITC
/// A GPT-2 of two layers and its reference.
class CudaModelProcessesTest : public CudaProcessesTest {
protected:
  /// Of plaitc, beside those below.
  virtual std::string getOptions() const { return ""; }

  void SetUp() override {
    if (access(PLAIT_PLAITC, X_OK) != 0)
      GTEST_SKIP() << PLAIT_PLAITC << " has not been built";
    auto [source, reference] = compile(PLAIT_MODEL);
    model = toCuda(std::move(source), directory);
    model.reference = packReference(std::move(reference));
  }

  /// The plan of the model and its reference, one beside the other.
  std::pair<fb::PlanT, fb::PlanT> compile(const std::string &config) {
    std::string path = directory + "/model.plan";
    std::string command =
        std::string(PLAIT_PLAITC) + " " + config +
        " --mesh pp=2,dp=2,tp=2 --no-plan --global-batch 8 --seq 8 "
        "--micro-batch 1 " +
        getOptions() + " -o " + path;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    auto file = plan::PlanFile::open(path);
    EXPECT_TRUE(file.ok()) << file.status().message();
    std::pair<fb::PlanT, fb::PlanT> plans;
    file->plan().UnPackTo(&plans.first);
    file->plan().reference_nested_root()->UnPackTo(&plans.second);
    plans.first.reference.clear();
    return plans;
  }

  std::vector<uint8_t> packReference(fb::PlanT reference) {
    return plan::packPlan(toCuda(std::move(reference), makeDirectory()));
  }

  void checkAgainstReference() {
    const fb::Plan &plan = pack(model);
    auto job = [&](const TrainOptions &mine) { return check(plan, mine); };
    EXPECT_EQ(runProcesses(8, job), std::vector<std::string>(8));
  }

  fb::PlanT model;
};

TEST_F(CudaModelProcessesTest, SaveTheBytesThatOneSaves) {
  compareSaved(pack(model), 8);
}

TEST_F(CudaModelProcessesTest, CheckAgainstTheReference) {
  checkAgainstReference();
}

/// Master copies and reduced gradients that four processes hold parts of.
class CudaDividedProcessesTest : public CudaModelProcessesTest {
protected:
  std::string getOptions() const override {
    return "--zero 1 --precision bf16";
  }
};

TEST_F(CudaDividedProcessesTest, SaveTheBytesThatOneSaves) {
  compareSaved(pack(model), 8);
}

TEST_F(CudaDividedProcessesTest, CheckAgainstTheReference) {
  checkAgainstReference();
}

TEST_F(CudaModelProcessesTest, AllHearThatTheCheckFails) {
  // The reference is of a model that normalises otherwise.
  std::string config = directory + "/config.json";
  ASSERT_EQ(std::system(("sed 's/\"layer_norm_epsilon\": [^,]*/"
                         "\"layer_norm_epsilon\": 0.5/' " PLAIT_MODEL " > " +
                         config)
                            .c_str()),
            0);
  model.reference = packReference(compile(config).second);
  const fb::Plan &plan = pack(model);
  auto job = [&](const TrainOptions &mine) { return check(plan, mine); };
  auto results = runProcesses(8, job);
  for (const std::string &result : results)
    EXPECT_TRUE(result.starts_with("loss ")) << result;
}
#endif

} // namespace
