//===- KeptAlgorithmsTest.cpp - Algorithms that all ranks take ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs on fake GPUs, each of which finds another algorithm of cuBLASLt fast,
// and starts of a run that find others fast than the start before. One of them
// adds in the reverse order, so that whoever takes it where another does not
// has other bits.
//
//===----------------------------------------------------------------------===//

#include "CUDA/CublasLt.h"
#include "CudaPlan.h"
#include "FreePort.h"
#include "Rendezvous/TcpRendezvous.h"
#include "plait/Plan/Check.h"
#include "plait/Runtime/Trainer.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

#ifdef PLAIT_PLAITC
/// What a run says.
class Said : public Reporter {
public:
  void message(const Message &message) override {
    std::lock_guard lock(mutex);
    text += message.text + "\n";
    warnings += message.severity == Severity::Warning;
  }
  bool has(const std::string &part) const {
    return text.find(part) != std::string::npos;
  }

  std::string text;
  int warnings = 0;

private:
  std::mutex mutex;
};

class KeptAlgorithms : public ::testing::Test {
protected:
  std::string directory = makeDirectory();
  std::vector<uint8_t> bytes;
  TrainOptions options;
  Said said;

  KeptAlgorithms() {
    bytes = plan::packPlan(
        toCuda(compilePlan(PLAIT_MODEL,
                           "--seq 16 --mesh dp=2 --global-batch 2 "
                           "--no-prove",
                           directory + "/model.plan"),
               directory));
    options.text = directory + "/text";
    options.textAsBytes = true;
    options.planHash = 1;
    options.executor.timeLimit = std::chrono::seconds(20);
    options.executor.gemmTiming.least = 1;
    options.executor.gemmTiming.leastNarrow = 1;
    options.executor.reporter = &said;
    std::vector<uint8_t> text(4000);
    for (size_t i = 0; i < text.size(); ++i)
      text[i] = uint8_t(i * i % 97);
    writeFile(options.text, text);
  }
  ~KeptAlgorithms() override {
    unsetenv("PLAIT_FAKE_GEMMS");
    unsetenv("PLAIT_FAKE_CUBLASLT");
  }

  const fb::Plan &plan() const { return *fb::GetPlan(bytes.data()); }
  std::string run() const { return directory + "/run"; }
  std::string file() const { return run() + "/algorithms.txt"; }

  /// The weights after step `steps` of a run that goes on from the directory
  /// where it has written checkpoints; each algorithm takes what `times` say.
  std::vector<uint8_t> start(const char *times, uint64_t steps) {
    setenv("PLAIT_FAKE_GEMMS", times, 1);
    options.checkpoint.directory = options.resume = run();
    options.steps = steps;
    options.save = directory + "/saved";
    said.text.clear();
    Status status = train(plan(), options);
    EXPECT_TRUE(status.ok()) << status.message();
    return readFile(options.save + "/model.safetensors");
  }
  /// The same of a run that begins anew.
  std::vector<uint8_t> startAnew(const char *times, uint64_t steps) {
    std::filesystem::remove_all(run());
    return start(times, steps);
  }

  /// What each of two processes says.
  std::vector<std::string> runProcesses(
      const std::function<void(uint32_t rank, TrainOptions &)> &change) {
    uint16_t port = freePort();
    std::vector<std::string> results(2);
    std::vector<std::thread> processes;
    for (uint32_t rank = 0; rank < 2; ++rank)
      processes.emplace_back([&, rank] {
        Launch launch = {"test", rank, 2, rank, "127.0.0.1", port};
        auto joined = TcpRendezvous::join(launch, options.executor.timeLimit);
        TrainOptions mine = options;
        if (joined.ok())
          mine.executor.processes = joined->get();
        change(rank, mine);
        Status status = joined.ok() ? train(plan(), mine) : joined.status();
        results[rank] = status.ok() ? "" : status.message();
      });
    for (std::thread &process : processes)
      process.join();
    return results;
  }
};

/// 1. Two starts that find the same algorithms fast are one run in two parts.
/// 2. So are two that do not, since the second takes what the first has kept.
/// 3. Where it is lost, the bits are others, which shows that they would be.
TEST_F(KeptAlgorithms, ARunThatGoesOnHasTheBitsOfOneThatWasNotDisturbed) {
  auto whole = startAnew("5 3r", 4);
  EXPECT_TRUE(said.has("with the same results but for rounding: "));
  // 1.
  startAnew("5 3r", 2);
  EXPECT_EQ(start("5 3r", 4), whole);
  // 2.
  startAnew("5 3r", 2);
  auto kept = readFile(file());
  EXPECT_EQ(start("5 9r", 4), whole);
  EXPECT_TRUE(said.has("shapes timed in 0.0 s")) << said.text;
  EXPECT_TRUE(said.has(" as chosen before; 0 take another")) << said.text;
  EXPECT_EQ(readFile(file()), kept);
  // 3.
  startAnew("5 3r", 2);
  std::filesystem::remove(file());
  EXPECT_NE(start("5 9r", 4), whole);
  EXPECT_EQ(said.warnings, 0);
}

/// In threads and in processes the rank that measures says what all take, and
/// without one that has kept it, the bits of the first choice.
TEST_F(KeptAlgorithms, AllRanksTakeWhatOneHasMeasured) {
  auto first = startAnew("5 3r", 3);
  EXPECT_EQ(startAnew("5 3r|5 9r", 3), first);
  EXPECT_EQ(startAnew("5 3r|1r 5", 3), first);
  auto other = startAnew("5 9r|5 3r", 3);
  EXPECT_NE(other, first);
  for (const char *times : {"5 3r|5 9r", "5 9r|5 3r"}) {
    setenv("PLAIT_FAKE_GEMMS", times, 1);
    std::filesystem::remove_all(run());
    EXPECT_EQ(runProcesses([](uint32_t, TrainOptions &) {}),
              std::vector<std::string>(2));
    EXPECT_EQ(readFile(options.save + "/model.safetensors"),
              times == std::string("5 3r|5 9r") ? first : other);
  }
}

TEST_F(KeptAlgorithms, WhatIsOfAnotherLibraryOrDamagedIsChosenAnew) {
  startAnew("5 3r", 2);
  std::string version = std::to_string(CUBLAS_VER_MAJOR * 10000);
  std::string later = std::to_string(CUBLAS_VER_MAJOR * 10000 + 999);
  setenv("PLAIT_FAKE_CUBLASLT", later.c_str(), 1);
  start("5 9r", 4);
  EXPECT_TRUE(
      said.has("matmuls: chosen anew, as what was kept is of cuBLASLt " +
               version + " on "))
      << said.text;
  EXPECT_TRUE(said.has(" and this is cuBLASLt " + later + " on ")) << said.text;
  auto text = readFile(file());
  EXPECT_NE(std::string(text.begin(), text.end()).find("\ncuBLASLt " + later),
            std::string::npos);
  text[100] ^= 1;
  writeFile(file(), text);
  start("5 9r", 5);
  EXPECT_TRUE(said.has("matmuls: chosen anew, as what was kept of an earlier "
                       "start is damaged: it is not as it was written"))
      << said.text;
  EXPECT_EQ(said.warnings, 0);
}

/// One checkpoint that is named instead of their directory, and another
/// directory to write to.
TEST_F(KeptAlgorithms, GoWithTheRun) {
  startAnew("5 3r", 2);
  auto kept = readFile(file());
  setenv("PLAIT_FAKE_GEMMS", "5 9r", 1);
  options.resume = run() + "/step-00000002/";
  options.checkpoint.directory = directory + "/elsewhere";
  options.steps = 3;
  Status status = train(plan(), options);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(readFile(directory + "/elsewhere/algorithms.txt"), kept);
}

/// A run without a directory keeps nothing, and takes none of other bits.
TEST_F(KeptAlgorithms, NothingIsKeptWithoutCheckpoints) {
  setenv("PLAIT_FAKE_GEMMS", "5 3r 4", 1);
  options.steps = 2;
  Status status = train(plan(), options);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(said.has("names first, with the same bits: ")) << said.text;
}

/// A file that cannot be read or written stops no run.
TEST_F(KeptAlgorithms, DisksMayFail) {
  startAnew("5 3r", 2);
  std::filesystem::remove(file());
  std::filesystem::create_directory(file());
  writeFile(file() + "/something", {1});
  start("5 3r", 3);
  EXPECT_TRUE(said.has("cannot read '")) << said.text;
  EXPECT_TRUE(said.has("; algorithms of matmuls are chosen anew")) << said.text;
  EXPECT_TRUE(said.has("cannot write '" + file() + "': ")) << said.text;
  EXPECT_TRUE(said.has("; a run that resumes may round sums of matmuls in "
                       "another way"))
      << said.text;
  EXPECT_EQ(said.warnings, 2);
}

/// Where one process may not choose, no other one does.
TEST_F(KeptAlgorithms, OneThatDoesNotTimeKeepsAllFromIt) {
  setenv("PLAIT_FAKE_GEMMS", "5 3r", 1);
  options.steps = 2;
  options.checkpoint.directory = run();
  for (uint32_t off : {0u, 1u}) {
    std::filesystem::remove_all(run());
    said.text.clear();
    auto results = runProcesses([&](uint32_t rank, TrainOptions &mine) {
      mine.executor.gemmTiming.enabled = rank != off;
    });
    EXPECT_EQ(results, std::vector<std::string>(2));
    EXPECT_EQ(said.has("matmuls: not timed, as rank 1 has `time-matmuls` off"),
              off == 1)
        << said.text;
    EXPECT_FALSE(std::filesystem::exists(file()));
  }
}
#endif

} // namespace
