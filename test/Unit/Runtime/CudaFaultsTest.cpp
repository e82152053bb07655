//===- CudaFaultsTest.cpp - What goes wrong between GPUs ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On the fake of Fake/, which ends the process where NCCL would wait for ever
// or use what it has freed.
//
//===----------------------------------------------------------------------===//

#include "CUDA/Capabilities.h"
#include "CUDA/CudaDevice.h"
#include "CUDA/NcclComms.h"
#include "CUDA/NcclSplits.h"
#include "CUDA/RankStates.h"
#include "CudaPlan.h"
#include "FreePort.h"
#include "Rendezvous/TcpRendezvous.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Weights.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <sched.h>
#include <sstream>
#include <thread>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

/// An environment variable, for as long as the object lives.
struct Setting {
  Setting(const char *name, const char *value) : name(name) {
    setenv(name, value, 1);
  }
  ~Setting() { unsetenv(name); }
  const char *name;
};

class CudaFaultsTest : public ::testing::Test {
protected:
  static constexpr StepScalars scalars = {1e-3f, 0.9f, 0.999f, 1e-8f,
                                          0.01f, 1.0f, 0.1f,   0.001f};

  std::string directory = makeDirectory();
  std::vector<uint8_t> bytes;
  ExecutorOptions options;

  CudaFaultsTest() { options.timeLimit = std::chrono::seconds(20); }

  fb::PlanT makeCudaPlan() {
    fb::PlanT plan = makePlan();
    fb::CodeObjectT &code = append(plan.code);
    code.target = "x86_64";
    code.data = readFile(PLAIT_TEST_KERNELS);
    return toCuda(std::move(plan), directory);
  }

  const fb::Plan &pack(const fb::PlanT &plan) {
    bytes = plan::packPlan(plan);
    const fb::Plan &packed = *fb::GetPlan(bytes.data());
    Status status = plan::checkPlan(packed);
    EXPECT_TRUE(status.ok()) << status.message();
    return packed;
  }

  static Status runSteps(Executor &executor, uint64_t first, uint64_t last) {
    auto batches = Batches::random(5, executor.plan());
    if (!batches.ok())
      return batches.status();
    for (uint64_t step = first; step <= last; ++step)
      if (auto metrics = executor.runStep(step, *batches, scalars);
          !metrics.ok())
        return metrics.status();
    return Status::success();
  }

  /// What is said where `steps` steps are run: "" for success.
  std::string train(const fb::Plan &plan, uint64_t steps) {
    auto executor = Executor::create(plan, options);
    Status status = executor.status();
    if (status.ok())
      status = initializeWeights(**executor, 7);
    if (status.ok())
      status = runSteps(**executor, 1, steps);
    return status.ok() ? "" : status.message();
  }

  using Job = std::function<Status(const ExecutorOptions &options)>;

  /// What `job` says in a process for each of `ranks` ranks: "" for success.
  std::vector<std::string> runProcesses(uint32_t ranks, const Job &job) {
    uint16_t port = freePort();
    std::vector<std::string> results(ranks);
    std::vector<std::thread> processes;
    for (uint32_t rank = 0; rank < ranks; ++rank)
      processes.emplace_back([&, rank] {
        Launch launch = {"test", rank, ranks, rank, "127.0.0.1", port};
        auto joined = TcpRendezvous::join(launch, options.timeLimit);
        ExecutorOptions mine = options;
        if (joined.ok())
          mine.processes = joined->get();
        Status status = joined.ok() ? job(mine) : joined.status();
        results[rank] = status.ok() ? "" : status.message();
      });
    for (std::thread &process : processes)
      process.join();
    return results;
  }
};

//===----------------------------------------------------------------------===//
// A rank that fails
//===----------------------------------------------------------------------===//

TEST_F(CudaFaultsTest, AFailureAfterARecordedStepEndsAllRanks) {
  const fb::Plan &plan = pack(makeCudaPlan());
  auto executor = Executor::create(plan, options);
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  ASSERT_TRUE(initializeWeights(**executor, 7).ok());
  Status status = runSteps(**executor, 1, 3); // walked, recorded, replayed
  ASSERT_TRUE(status.ok()) << status.message();
  status = (*executor)->forEachRank([](uint32_t rank) {
    return rank == 1 ? fail("no more") : Status::success();
  });
  EXPECT_EQ(status.message(), "rank 1: no more");
}

TEST_F(CudaFaultsTest, APeerThatStopsAfterARecordedStepIsATimeOut) {
  const fb::Plan &plan = pack(makeCudaPlan());
  options.timeLimit = std::chrono::milliseconds(1500);
  auto results = runProcesses(4, [&](const ExecutorOptions &mine) -> Status {
    auto executor = Executor::create(plan, mine);
    if (!executor.ok())
      return executor.status();
    PLAIT_RETURN_IF_ERROR(initializeWeights(**executor, 7));
    PLAIT_RETURN_IF_ERROR(runSteps(**executor, 1, 3));
    if (mine.processes->place().index == 2) {
      // It does nothing any more, but goes when the others have given up.
      std::this_thread::sleep_for(2 * options.timeLimit);
      return Status::success();
    }
    return runSteps(**executor, 4, 4);
  });
  EXPECT_EQ(results[0], "rank 0: step 4: waited longer than 1.5 seconds for "
                        "another rank");
}

TEST_F(CudaFaultsTest, AFailedRankTakesNothingFromTheOthersHands) {
  const fb::Plan &plan = pack(makeCudaPlan());
  for (bool graph : {false, true})
    for (uint64_t steps : {0, 1, 2}) {
      options.cudaGraph = graph;
      auto executor = Executor::create(plan, options);
      ASSERT_TRUE(executor.ok()) << executor.status().message();
      ASSERT_TRUE(initializeWeights(**executor, 7).ok());
      Status status = runSteps(**executor, 1, steps);
      ASSERT_TRUE(status.ok()) << status.message();
      if (graph && steps == 2)
        continue; // launches nothing by itself
      Setting broken("PLAIT_FAKE_BROKEN_GPU", "0");
      status = runSteps(**executor, steps + 1, steps + 1);
      EXPECT_TRUE(status.message().starts_with("rank 0: step ") &&
                  status.message().find("cuLaunchKernel") != std::string::npos)
          << status.message();
    }
}

//===----------------------------------------------------------------------===//
// Making communicators
//===----------------------------------------------------------------------===//

TEST_F(CudaFaultsTest, AMissingPeerIsATimeOut) {
  const fb::Plan &plan = pack(makeCudaPlan());
  options.timeLimit = std::chrono::milliseconds(700);
  auto results = runProcesses(4, [&](const ExecutorOptions &mine) -> Status {
    if (mine.processes->place().index != 3)
      return Executor::create(plan, mine).status();
    // It hears of algorithms and of the communicator, and then hangs.
    (void)mine.processes->exchange("off\n\n");
    auto id = mine.processes->broadcast("");
    std::this_thread::sleep_for(3 * options.timeLimit);
    return id.status();
  });
  // Whoever gives up first may be what the others hear of.
  bool told = false;
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(results[rank].ends_with("make the communicator of all ranks"))
        << results[rank];
    told |= results[rank] == "waited longer than 0.7 seconds for another rank "
                             "to make the communicator of all ranks";
  }
  EXPECT_TRUE(told);
}

/// Rank 3 waits in the middle of a call for rank 1, which cannot send: its
/// communicator ends by an abort, as the fake refuses anything else. Whoever is
/// released first, it is rank 1 that speaks.
TEST_F(CudaFaultsTest, AFailureBetweenTwoRanksEnds) {
  const fb::Plan &plan = pack(makeCudaPlan());
  Setting broken("PLAIT_FAKE_BROKEN_SENDER", "1");
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::string message = train(plan, 0);
    EXPECT_TRUE(message.starts_with("rank 1: ") &&
                message.find("the fake NCCL") != std::string::npos)
        << message;
  }
}

/// As where multicast objects have run out: all ranks do without windows, and
/// one line says so. Nothing of this holds for ranks that cannot make
/// communicators without windows either.
TEST_F(CudaFaultsTest, AWindowThatFailsIsDoneWithout) {
  const fb::Plan &plan = pack(makeCudaPlan());
  for (const char *gpu : {"0", "3"})
    for (const char *later : {"", "1"}) {
      SCOPED_TRACE(std::string(gpu) + later);
      Setting broken("PLAIT_FAKE_BROKEN_WINDOW", gpu);
      Setting slow("PLAIT_FAKE_BROKEN_LATER", later);
      if (!*later)
        unsetenv("PLAIT_FAKE_BROKEN_LATER");
      std::string line = "NCCL copies what it moves: rank " + std::string(gpu) +
                         " has no window to the other ranks' arenas "
                         "(ncclCommWindowRegister: the fake NCCL objects ())";
      auto executor = Executor::create(plan, options);
      ASSERT_TRUE(executor.ok()) << executor.status().message();
      EXPECT_TRUE((*executor)->libraries().ends_with("\n" + line))
          << (*executor)->libraries();
      ASSERT_TRUE(initializeWeights(**executor, 7).ok());
      Status status = runSteps(**executor, 1, 3);
      EXPECT_TRUE(status.ok()) << status.message();
      auto results =
          runProcesses(4, [&](const ExecutorOptions &mine) -> Status {
            auto made = Executor::create(plan, mine);
            if (!made.ok())
              return made.status();
            if (mine.processes->place().index == 0)
              EXPECT_TRUE((*made)->libraries().ends_with("\n" + line));
            PLAIT_RETURN_IF_ERROR(initializeWeights(**made, 7));
            return runSteps(**made, 1, 3);
          });
      EXPECT_EQ(results, std::vector<std::string>(4));
    }
}

/// Messages wait on GPUs in the first step already, where NCCL must have
/// nothing left to connect.
TEST_F(CudaFaultsTest, AllCollectivesConnectBeforeTheFirstStep) {
  Setting idle("PLAIT_FAKE_IDLE_CONNECT", "1");
  const fb::Plan &plan = pack(makeCudaPlan());
  for (bool graph : {false, true})
    for (const char *hasty : {"0", "1"}) {
      Setting early("PLAIT_FAKE_HASTY", hasty);
      options.cudaGraph = graph;
      EXPECT_EQ(train(plan, 3), "");
    }
}

/// The order in which switches add is theirs.
TEST_F(CudaFaultsTest, DeterministicPlansAddOnGpus) {
  const char *name = "NCCL_NVLS_ENABLE";
  unsetenv(name);
  fb::PlanT source = makeCudaPlan();
  EXPECT_EQ(train(pack(source), 0), "");
  EXPECT_EQ(std::getenv(name), nullptr);
  source.deterministic = true;
  const fb::Plan &plan = pack(source);
  {
    Setting switches(name, "2");
    EXPECT_EQ(train(plan, 0),
              "the plan is deterministic, and NCCL_NVLS_ENABLE is 2, which "
              "lets switches add: unset it");
  }
  EXPECT_EQ(train(plan, 0), "");
  EXPECT_EQ(std::string(std::getenv(name)), "0");
  unsetenv(name);
}

/// It cannot run: nothing says where the operands of its step are.
TEST_F(CudaFaultsTest, EarlierPlansAreDeterministicByTheirAttention) {
  fb::PlanT source = makeCudaPlan();
  EXPECT_FALSE(isDeterministic(pack(source)));
  fb::AttentionStepT attention;
  attention.deterministic = true;
  fb::StepT &step = append(source.programs[1]->functions[0]->steps);
  step.step.Set(std::move(attention));
  EXPECT_TRUE(isDeterministic(*fb::GetPlan(plan::packPlan(source).data())));
}

TEST_F(CudaFaultsTest, WindowsAreForGroupsOfOneHost) {
  NcclWindows here, apart = {true, {0, 0, 1, 1}}, none = {false, {}};
  std::vector<uint32_t> near = {2, 3}, far = {1, 2};
  EXPECT_TRUE(here.areFor(near) && here.areFor(far));
  EXPECT_TRUE(apart.areFor(near));
  EXPECT_FALSE(apart.areFor(far));
  EXPECT_FALSE(none.areFor(near));
}

//===----------------------------------------------------------------------===//
// The order of launches
//===----------------------------------------------------------------------===//

/// Both ranks send before they receive, as in the steady state of 1F1B. That is
/// sound where every route goes on by itself, and where sends need no receiver.
fb::PlanT makeCrossing(fb::PlanT plan) {
  fb::ActionT message;
  message.stage = 1;
  message.direction = fb::Direction::Backward;
  message.buffer = 8 * 256; // free in the arenas of both
  message.bytes = 72;
  auto insert = [&](uint32_t program, size_t at, fb::ActionKind kind) {
    auto &actions = plan.programs[program]->actions;
    message.kind = kind;
    message.peer = 1 - program;
    actions.insert(actions.begin() + at,
                   std::make_unique<fb::ActionT>(message));
  };
  // Send and receive of both microbatches come after it, and before it.
  insert(1, 0, fb::ActionKind::Send);
  insert(1, plan.programs[1]->actions.size() - 1, fb::ActionKind::WaitSend);
  insert(0, 4, fb::ActionKind::Recv);
  for (auto &program : plan.programs)
    for (auto &region : program->regions)
      region->last_action = program->actions.size() - 1;
  return plan;
}

TEST_F(CudaFaultsTest, OldDriversCannotRecordPipelines) {
  options.timeLimit = std::chrono::seconds(2);
  const fb::Plan &plan = pack(makeCrossing(makeCudaPlan()));
  EXPECT_EQ(train(plan, 3), "");
  Setting driver("PLAIT_FAKE_CUDA_VERSION", "12080");
  std::string refusal = train(plan, 3);
  EXPECT_TRUE(refusal.starts_with(
      "the driver supports CUDA 12.8, and before 12.9 NCCL does one thing at a "
      "time in recorded steps, so that this plan would wait for ever; give "
      "`cuda-graph` off: deadlock: "))
      << refusal;
  options.cudaGraph = false;
  EXPECT_EQ(train(plan, 3), "");
}

TEST_F(CudaFaultsTest, VeryOldDriversAndLibrariesCannotRunPipelines) {
  options.timeLimit = std::chrono::seconds(2);
  options.cudaGraph = false;
  const fb::Plan &plan = pack(makeCrossing(makeCudaPlan()));
  {
    Setting driver("PLAIT_FAKE_CUDA_VERSION", "12020");
    std::string refusal = train(plan, 2);
    EXPECT_TRUE(refusal.starts_with(
        "the driver supports CUDA 12.2, and before 12.3 NCCL does one thing at "
        "a time, so that this plan would wait for ever: deadlock: "))
        << refusal;
  }
  // The wheels of NCCL 2.26 and 2.27 for CUDA 12 are built with 12.2.
  Setting runtime("PLAIT_FAKE_NCCL_CUDART", "12020");
  std::string refusal = train(plan, 2);
  EXPECT_TRUE(refusal.starts_with(
      "NCCL was built with CUDA 12.2, and before 12.3 it does one thing at a "
      "time, so that this plan would wait for ever: deadlock: "))
      << refusal;
}

//===----------------------------------------------------------------------===//
// What is written down
//===----------------------------------------------------------------------===//

/// Messages are recorded behind many steps with which they have nothing to do.
TEST_F(CudaFaultsTest, RecordedMessagesStayNearWhatComputes) {
  Setting ahead("PLAIT_FAKE_RUN_AHEAD", "32");
  fb::PlanT source = makeCudaPlan();
  for (auto &program : source.programs) {
    fb::FillStepT fill;
    fill.target = std::make_unique<fb::Ref>(program->arena_bytes, -1);
    fill.bytes = 256;
    program->arena_bytes += fill.bytes;
    for (auto &function : program->functions)
      for (int count = 0; count < 80; ++count)
        append(function->steps).step.Set(fb::FillStepT(fill));
  }
  auto packed = plan::packPlan(source);
  EXPECT_EQ(train(*fb::GetPlan(packed.data()), 3), "");
}

TEST(RankStates, AreThoseOfTheDocumentation) {
  std::vector<uint8_t> page = readFile(PLAIT_DOCS "/GPU.md");
  std::string text(page.begin(), page.end()), expected;
  for (const RankTransition &row : rankTransitions) {
    std::string duties;
    for (auto [has, name] :
         {std::pair(row.duties.dropsRecording, "drop recording"),
          {row.duties.aborts, "abort"},
          {row.duties.destroys, "destroy"}})
      if (has)
        duties += (duties.empty() ? "" : ", ") + std::string(name);
    std::ostringstream line;
    line << "| " << nameOf(row.from) << " | " << nameOf(row.event) << " | "
         << nameOf(row.to) << " | " << duties << (duties.empty() ? "" : " ")
         << "|\n";
    expected += line.str();
  }
  EXPECT_NE(text.find(expected), std::string::npos) << expected;
}

TEST(RankStates, HaveOneRowEachAndFreeNothingThatARecordingHas) {
  for (const RankTransition &row : rankTransitions) {
    EXPECT_EQ(findTransition(row.from, row.event), &row);
    bool hasRecording = row.from == RankState::Recording ||
                        row.from == RankState::Recorded ||
                        row.from == RankState::Stopping;
    if (row.duties.aborts || row.duties.destroys)
      EXPECT_EQ(row.duties.dropsRecording, hasRecording) << nameOf(row.from);
  }
  // A failure, and the end, are possible at any time.
  for (RankState state :
       {RankState::Walking, RankState::Recording, RankState::Recorded,
        RankState::Stopping, RankState::Aborted})
    for (RankEvent event :
         {RankEvent::Stop, RankEvent::StopElsewhere, RankEvent::Close})
      EXPECT_NE(findTransition(state, event), nullptr) << nameOf(state);
}

TEST(Capabilities, ReadWhatNcclWasBuiltWith) {
  EXPECT_EQ(findCudart(std::string_view("NCCL version %d")), 0);
  // The text of nvidia-nccl-cu13 2.32.3.
  EXPECT_EQ(findCudart(std::string_view("xNCCL version x\0NCCL version "
                                        "2.32.3+cuda13.4\0",
                                        47)),
            13040);
}

TEST(Capabilities, SayInWhichOrderNcclLaunches) {
  using plan::LaunchOrder;
  struct {
    int driver, cudart;
    LaunchOrder walked, recorded;
  } rows[] = {{12090, 13000, LaunchOrder::Routes, LaunchOrder::Routes},
              {12080, 13000, LaunchOrder::Routes, LaunchOrder::Serial},
              {12030, 12030, LaunchOrder::Routes, LaunchOrder::Serial},
              {12020, 13000, LaunchOrder::Serial, LaunchOrder::Serial},
              {13000, 12020, LaunchOrder::Serial, LaunchOrder::Serial},
              {13000, 0, LaunchOrder::Routes, LaunchOrder::Routes}};
  for (auto [driver, cudart, walked, recorded] : rows) {
    Capabilities found;
    found.driver = driver;
    found.ncclCudart = cudart;
    EXPECT_EQ(found.launchOrder(false), walked) << driver << " " << cudart;
    EXPECT_EQ(found.launchOrder(true), recorded) << driver << " " << cudart;
  }
}

} // namespace

//===----------------------------------------------------------------------===//
// Memory of the host
//===----------------------------------------------------------------------===//

/// The fake locks memory on the last core alone, which is all that the node of
/// its GPUs has. Threads of one process go back to where they were; a process
/// of its own stays there, and so do the threads of its rank.
TEST_F(CudaFaultsTest, MemoryOfTheHostLiesNextToItsGpu) {
  auto countCores = [] {
    cpu_set_t cores;
    sched_getaffinity(0, sizeof(cores), &cores);
    return CPU_COUNT(&cores);
  };
  int own = countCores();
  cpu_set_t cores;
  sched_getaffinity(0, sizeof(cores), &cores);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &cores))
    --last;
  std::string core = std::to_string(last);
  std::filesystem::create_directory(directory + "/node1");
  writeFile(directory + "/node1/cpulist", {core.begin(), core.end()});
  Setting node("PLAIT_FAKE_HOST_NODE", "1");
  Setting locks("PLAIT_FAKE_HOST_CORE", core.c_str());
  const fb::Plan &plan = pack(makeCudaPlan());
  if (own > 1) {
    std::string error = train(plan, 1);
    EXPECT_NE(error.find("cuMemHostAlloc"), error.npos) << error;
  }
  Setting nodes("PLAIT_HOST_NODES", directory.c_str());
  EXPECT_EQ(train(plan, 3), "");
  EXPECT_EQ(countCores(), own);
  auto say = [&](const ExecutorOptions &mine) {
    auto executor = Executor::create(plan, mine);
    if (!executor.ok())
      return executor.status();
    return (*executor)->forEachRank([&](uint32_t) {
      return countCores() == 1 ? Status::success() : fail("is anywhere");
    });
  };
  for (const std::string &said : runProcesses(4, say))
    EXPECT_EQ(said, "");
  EXPECT_EQ(countCores(), own);
}

/// More processes than GPUs: two of the four share none.
TEST_F(CudaFaultsTest, ProcessesWithoutAGpuSaySo) {
  const fb::Plan &plan = pack(makeCudaPlan());
  options.devices = 2;
  options.timeLimit = std::chrono::seconds(2);
  auto said = runProcesses(4, [&](const ExecutorOptions &mine) {
    return Executor::create(plan, mine).status();
  });
  EXPECT_EQ(said[2], "process 2 of this host has no GPU: 2 are there");
  EXPECT_EQ(said[3], "process 3 of this host has no GPU: 2 are there");
}

//===----------------------------------------------------------------------===//
// Memory of communicators
//===----------------------------------------------------------------------===//

/// Before the first step by what is made, and after it by what is there.
TEST_F(CudaFaultsTest, CommunicatorsThatTakeMoreThanIsReservedAreTold) {
  fb::PlanT made = makeCudaPlan();
  made.device_reserve = 100'000'000;
  Setting memory("PLAIT_FAKE_MEMORY", "8000000000");
  Setting buffers("PLAIT_FAKE_NCCL_MEMORY", "20000000");
  auto executor = Executor::create(pack(made), options);
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  const std::string &libraries = (*executor)->libraries();
  EXPECT_NE(libraries.find("\nGPU 0 (Fake): NCCL may take about 0."),
            libraries.npos)
      << libraries;
  EXPECT_NE(libraries.find(", 0.10 GB are reserved"), libraries.npos)
      << libraries;
  auto lines = (*executor)->describeMemory();
  ASSERT_TRUE(lines.ok()) << lines.status().message();
  EXPECT_NE(lines->find(" GB of 0.10 GB reserved: raise reservedBytes of the "
                        "hardware file, or other plans may not fit, context"),
            lines->npos)
      << *lines;
}
