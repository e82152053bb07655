//===- ExecutorTest.cpp - A small plan, executed --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Executor.h"

#include "Core/Guard.h"
#include "Core/NamedRange.h"
#include "TestPlan.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Device.h"
#include "plait/Runtime/Profiler.h"
#include "plait/Runtime/Random.h"
#include "plait/Runtime/Trainer.h"
#include "plait/Runtime/Weights.h"
#include "plait/Support/BFloat16.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

// Sanitizers have a malloc of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLAIT_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#define PLAIT_COUNTS_ALLOCATIONS                                               \
  (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define PLAIT_COUNTS_ALLOCATIONS 1
#endif

#if PLAIT_COUNTS_ALLOCATIONS
// Every allocation of the process goes through these while a test counts.
static std::atomic<bool> counting = false;
static std::atomic<uint64_t> allocations = 0;

extern "C" void *__libc_malloc(size_t bytes);

extern "C" void *malloc(size_t bytes) {
  if (counting.load(std::memory_order_relaxed))
    allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
#endif

namespace {

constexpr std::chrono::milliseconds patience = std::chrono::seconds(60);

class ExecutorTest : public ::testing::Test {
protected:
  fb::PlanT source = makePlan();
  std::vector<uint8_t> bytes;

  ExecutorTest() {
    fb::CodeObjectT &code = append(source.code);
    code.target = "x86_64";
    code.data = readFile(PLAIT_TEST_KERNELS);
  }

  /// Packs the plan as it is now. Executors refer to the latest one.
  const fb::Plan &pack() {
    bytes = plan::packPlan(source);
    return plan();
  }
  const fb::Plan &plan() const { return *fb::GetPlan(bytes.data()); }

  Result<std::unique_ptr<Executor>> start(unsigned threads = 1) {
    return Executor::create(pack(), {threads, patience});
  }

  std::string startError() {
    auto executor = start();
    return executor.ok() ? "" : executor.status().message();
  }

  /// That `files`, those of `directory`, loaded and saved are the same bytes.
  void expectSameAfterLoading(const WeightFiles &files,
                              const std::string &directory) {
    auto other = Executor::create(plan(), {1, patience});
    ASSERT_TRUE(other.ok());
    ASSERT_TRUE(loadWeights(**other, files).ok());
    std::string again = makeDirectory();
    ASSERT_TRUE(saveWeights(**other, again).ok());
    EXPECT_EQ(readFile(again + "/model.safetensors"),
              readFile(directory + "/model.safetensors"));
  }

  /// Tokens 3, 4, 5, …: microbatch 0 starts with 3, microbatch 1 with 7.
  Batches batches() {
    std::string path = makeDirectory() + "/text";
    writeFile(path, {3, 4, 5, 6, 7, 8, 9, 10, 11});
    auto result = Batches::fromText(path, plan());
    EXPECT_TRUE(result.ok());
    return std::move(*result);
  }

  /// What the gradient of "sum" is after a step.
  static std::vector<float> expectedSum(const std::vector<float> &weight) {
    std::vector<float> sum(18);
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 6; ++j) {
        float product = 0;
        // Both ranks multiply the same A with their half of the rows.
        for (int k = 0; k < 8; ++k)
          product += float(i * 4 + k % 4 + 1) * weight[k * 6 + j];
        sum[i * 6 + j] = product * 3 + 1 + product * 7;
      }
    return sum;
  }
};

TEST_F(ExecutorTest, RunsAPipelineOfTensorParallelStages) {
  std::vector<float> weight(48);
  NormalStream(11, "transformer.weight", 0, 0.5f).generate(0, weight);
  for (unsigned threads : {1u, 8u}) {
    auto executor = start(threads);
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    ASSERT_TRUE(initializeWeights(**executor, 11).ok());
    Batches data = batches();
    // Twice: the second step must not see the first.
    for (uint64_t step : {1, 2}) {
      auto metrics = (*executor)->runStep(step, data, {});
      ASSERT_TRUE(metrics.ok()) << metrics.status().message();
      EXPECT_EQ(*metrics, (StepMetrics{2, 3, 8}));
      auto sum = gatherTensor(**executor, 1, ParameterTensor::Gradient);
      ASSERT_TRUE(sum.ok());
      std::vector<float> expected = expectedSum(weight);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR((*sum)[i], expected[i], 1e-3);
    }
  }
}

#if PLAIT_COUNTS_ALLOCATIONS
TEST_F(ExecutorTest, StepsDoNotAllocate) {
  // Without the GEMM: oneDNN takes memory from malloc inside it.
  auto &steps = source.programs[0]->functions[0]->steps;
  steps.erase(steps.begin());
  Profiler profiler(pack(), 0, 8, 2);
  StepNotes notes(plan(), /*overlaps=*/true);
  for (StepNotes *measuring : {(StepNotes *)nullptr, &notes}) {
    auto measure = [&](uint64_t step) {
      if (measuring && notes.collect(nullptr).ok())
        profiler.add(step, 1, notes);
    };
    ExecutorOptions options{8, patience};
    options.notes = measuring;
    auto executor = Executor::create(plan(), options);
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    Batches data = batches();
    ASSERT_TRUE((*executor)->runStep(1, data, {}).ok());
    measure(1);
    allocations = 0;
    counting = true;
    bool ok = (*executor)->runStep(2, data, {}).ok();
    measure(2);
    counting = false;
    EXPECT_TRUE(ok);
    // One by the caller's thread: the job it hands to the ranks.
    EXPECT_LE(allocations, 1u);
  }
}
#endif

TEST_F(ExecutorTest, SavesWhatItLoads) {
  std::string directory = makeDirectory() + "/made/here";
  auto executor = start();
  ASSERT_TRUE(executor.ok());
  ASSERT_TRUE(initializeWeights(**executor, 3).ok());
  Status saved = saveWeights(**executor, directory);
  ASSERT_TRUE(saved.ok()) << saved.message();
  auto files = WeightFiles::open(directory);
  ASSERT_TRUE(files.ok()) << files.status().message();
  std::vector<float> expected(48), found(48), constant(18);
  NormalStream(3, "transformer.weight", 0, 0.5f).generate(0, expected);
  (*files->find("weight", std::vector<int64_t>{8, 6}))->read(0, found);
  (*files->find("sum", std::vector<int64_t>{3, 6}))->read(0, constant);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(constant, std::vector<float>(18, 0.5f));

  expectSameAfterLoading(*files, directory);
}

TEST_F(ExecutorTest, InitialisesTheCopyToComputeWith) {
  source.precision = "bf16";
  fb::ProgramT &program = *source.programs[0];
  fb::ShardT &shard = *program.shards[0];
  shard.compute_dtype = fb::DType::BF16;
  shard.compute_weight = program.arena_bytes;
  program.arena_bytes += 64;
  auto executor = start();
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  ASSERT_TRUE(initializeWeights(**executor, 11).ok());
  auto expectCopy = [&](const std::vector<float> &weight) {
    Status status = (*executor)->forEachRank([&](uint32_t rank) {
      // Ranks 0 and 1 have four of the eight rows each, 2 and 3 none.
      if (rank > 1)
        return Status::success();
      std::vector<BFloat16> copy(24);
      PLAIT_RETURN_IF_ERROR((*executor)->device(rank).read(
          shard.compute_weight, std::as_writable_bytes(std::span(copy))));
      for (size_t i = 0; i < copy.size(); ++i) {
        EXPECT_EQ(copy[i].bits, BFloat16(weight[rank * 24 + i]).bits);
      }
      return Status::success();
    });
    EXPECT_TRUE(status.ok()) << status.message();
  };
  std::vector<float> weight(48);
  NormalStream(11, "transformer.weight", 0, 0.5f).generate(0, weight);
  expectCopy(weight);

  // Loaded weights too.
  auto other = Executor::create(plan(), {1, patience});
  std::string directory = makeDirectory();
  ASSERT_TRUE(initializeWeights(**other, 12).ok());
  ASSERT_TRUE(saveWeights(**other, directory).ok());
  auto files = WeightFiles::open(directory);
  ASSERT_TRUE(files.ok()) << files.status().message();
  ASSERT_TRUE(loadWeights(**executor, *files).ok());
  NormalStream(12, "transformer.weight", 0, 0.5f).generate(0, weight);
  expectCopy(weight);
}

TEST_F(ExecutorTest, DividesMasterCopiesAndGradients) {
  // Ranks 2 and 3 hold the second parameter, of 18 elements, alike: the first
  // 9 and the others of a pack of 24 that it begins at element 3 of.
  source.precision = "bf16";
  source.zero = 1;
  source.parameters[1]->init = fb::InitKind::Normal;
  source.parameters[1]->init_std = 0.5f;
  fb::ProgramT &program = *source.programs[1];
  fb::ShardT &shard = *program.shards[0];
  shard.compute_dtype = fb::DType::BF16;
  shard.compute_weight = program.arena_bytes;
  shard.division = std::make_unique<fb::DivisionT>();
  shard.division->axis = 1;
  shard.division->elements = 12;
  shard.division->begin = 3;
  shard.division->reduced = program.arena_bytes + 64;
  program.arena_bytes += 128;
  auto executor = start();
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  ASSERT_TRUE(initializeWeights(**executor, 5).ok());
  std::vector<float> weight(18);
  NormalStream(5, "transformer.sum", 0.5f, 0.5f).generate(0, weight);
  Status status = (*executor)->forEachRank([&](uint32_t rank) {
    if (rank < 2)
      return Status::success();
    Device &device = (*executor)->device(rank);
    std::vector<float> master(12), expected(12, 0);
    std::vector<BFloat16> copy(18);
    PLAIT_RETURN_IF_ERROR(
        device.read(shard.weight, std::as_writable_bytes(std::span(master))));
    PLAIT_RETURN_IF_ERROR(device.read(shard.compute_weight,
                                      std::as_writable_bytes(std::span(copy))));
    std::copy_n(weight.begin() + (rank == 2 ? 0 : 9), 9,
                expected.begin() + (rank == 2 ? 3 : 0));
    EXPECT_EQ(master, expected) << rank;
    for (size_t i = 0; i < copy.size(); ++i) {
      EXPECT_EQ(copy[i].bits, BFloat16(weight[i]).bits);
    }
    // What gatherTensor finds below.
    return device.write(shard.division->reduced,
                        std::as_bytes(std::span(master)));
  });
  ASSERT_TRUE(status.ok()) << status.message();
  auto gradient = gatherTensor(**executor, 1, ParameterTensor::Gradient);
  ASSERT_TRUE(gradient.ok());
  EXPECT_EQ(*gradient, weight);

  std::string directory = makeDirectory();
  ASSERT_TRUE(saveWeights(**executor, directory).ok());
  auto files = WeightFiles::open(directory);
  ASSERT_TRUE(files.ok()) << files.status().message();
  std::vector<float> saved(18);
  (*files->find("sum", std::vector<int64_t>{3, 6}))->read(0, saved);
  EXPECT_EQ(saved, weight);

  expectSameAfterLoading(*files, directory);
}

TEST_F(ExecutorTest, AFailingRankNamesItselfAndStopsTheOthers) {
  // Rank 1 sleeps for longer than the others are willing to wait.
  auto &kernel =
      *source.programs[0]->functions[0]->steps[2]->step.AsKernelStep();
  source.kernels[0]->symbol = "plait_test_sleep";
  kernel.scalars = {fb::RankScalar(0, 1000, 1, false)};
  auto executor = Executor::create(pack(), {1, std::chrono::milliseconds(200)});
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  auto metrics = (*executor)->runStep(1, batches(), {});
  ASSERT_FALSE(metrics.ok());
  const std::string &message = metrics.status().message();
  EXPECT_TRUE(message.starts_with("rank ")) << message;
  EXPECT_NE(message.find(": step 1, program "), std::string::npos) << message;
  EXPECT_NE(message.find("waited longer than 0.2 seconds"), std::string::npos)
      << message;
  // What the others do: one sleeps, the rest waits, some for that one.
  EXPECT_NE(message.find("\n  rank 1 computes in step 1, program 0, action "),
            std::string::npos)
      << message;
  EXPECT_NE(message.find(" waits in step 1, program 1, action "),
            std::string::npos)
      << message;
}

TEST_F(ExecutorTest, ARankThatSleepsForEverIsGivenUp) {
  auto &kernel =
      *source.programs[0]->functions[0]->steps[2]->step.AsKernelStep();
  source.kernels[0]->symbol = "plait_test_sleep";
  kernel.scalars = {fb::RankScalar(0, 100000000, 1, false)};
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ExecutorOptions options = {1, std::chrono::seconds(1)};
  options.onStuck = [](const std::string &failure) {
    std::fprintf(stderr, "error: %s\n", failure.c_str());
    std::_Exit(3);
  };
  EXPECT_EXIT(
      {
        auto executor = Executor::create(pack(), options);
        (void)(*executor)->runStep(1, batches(), {});
      },
      ::testing::ExitedWithCode(3),
      "error: rank .* waited longer than 1 seconds.*"
      "given up: rank 1 computes in step 1, program 0");
}

TEST_F(ExecutorTest, AGuardedStepNamesWhatMadeNoNumber) {
  ExecutorOptions options = {1, patience};
  options.guardEvery = 2;
  auto executor = Executor::create(pack(), options);
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  ASSERT_TRUE(initializeWeights(**executor, 11).ok());
  // Finite, but no product of it is.
  const fb::Shard &shard = *(*executor)->program(0).shards()->Get(0);
  Status set = (*executor)->forEachRank([&](uint32_t rank) {
    std::vector<float> huge(1, 3e38f);
    return rank == 0 ? (*executor)->device(0).write(
                           shard.weight(), std::as_bytes(std::span(huge)))
                     : Status::success();
  });
  ASSERT_TRUE(set.ok());
  Batches data = batches();
  ASSERT_TRUE((*executor)->runStep(1, data, {}).ok()) << "is not guarded";
  auto metrics = (*executor)->runStep(2, data, {});
  ASSERT_FALSE(metrics.ok());
  const std::string &message = metrics.status().message();
  EXPECT_TRUE(message.starts_with("rank 0: step 2, program 0, action "))
      << message;
  EXPECT_NE(message.find("guard: of finite numbers it makes inf, element "),
            std::string::npos)
      << message;
}

TEST_F(ExecutorTest, StressSpoilsWhatAStepWritesFirst) {
  fb::ProgramT &program = *source.programs[0];
  uint64_t offset = program.arena_bytes;
  program.arena_bytes += 128;
  for (fb::Category category :
       {fb::Category::Activations, fb::Category::Optimizer}) {
    fb::RegionT &region = append(program.regions);
    region.category = category;
    region.offset = offset + 64 * (category == fb::Category::Optimizer);
    region.bytes = 64;
    region.first_action = region.last_action = 1;
  }
  for (Stress stress : {Stress::None, Stress::Memory}) {
    ExecutorOptions options = {1, patience};
    options.stress = stress;
    auto executor = Executor::create(pack(), options);
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    auto metrics = (*executor)->runStep(1, batches(), {});
    ASSERT_TRUE(metrics.ok()) << metrics.status().message();
    EXPECT_EQ(*metrics, (StepMetrics{2, 3, 8}));
    std::vector<std::byte> found(128), expected(128);
    if (stress == Stress::Memory)
      std::fill_n(expected.begin(), 64, std::byte(0xFF));
    ASSERT_TRUE((*executor)->device(0).read(offset, found).ok());
    EXPECT_EQ(found, expected);
  }
}

/// Behind the tokens of each microbatch lie their positions as a stable sort
/// has them, and of each token how many are smaller; tokens that are none of
/// the sorted ones come last.
TEST_F(ExecutorTest, SortsTokens) {
  constexpr int count = 4, entries = 5, words = 2 * count + entries + 1;
  fb::ProgramT &program = *source.programs[0];
  fb::InputT &input = *program.inputs[0];
  input.offset = program.arena_bytes;
  input.sorted = entries;
  program.arena_bytes += 128;
  fb::RegionT &region = append(program.regions);
  region.category = fb::Category::Inputs;
  region.offset = input.offset;
  region.bytes = 128;
  region.last_action = program.actions.size() - 1;
  auto executor = Executor::create(pack(), {1, patience});
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  std::string path = makeDirectory() + "/text";
  writeFile(path, {3, 1, 3, 9, 3, 3, 0, 4, 7, 4, 4, 0, 0, 2, 1, 1, 0});
  auto data = Batches::fromText(path, plan());
  ASSERT_TRUE(data.ok()) << data.status().message();
  for (uint64_t step = 1; step <= 8; ++step) {
    auto metrics = (*executor)->runStep(step, *data, {});
    ASSERT_TRUE(metrics.ok()) << metrics.status().message();
    std::vector<int32_t> found(2 * words), target(2);
    ASSERT_TRUE(
        (*executor)
            ->device(0)
            .read(input.offset, std::as_writable_bytes(std::span(found)))
            .ok());
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      std::vector<int32_t> own(found.begin() + microbatch * words,
                               found.begin() + (microbatch + 1) * words);
      for (int row = 0; row < 2; ++row) {
        ASSERT_TRUE(data->readRow(step, 2 * microbatch + row,
                                  fb::InputKind::Tokens, 0, target)
                        .ok());
        EXPECT_TRUE(
            std::equal(target.begin(), target.end(), own.begin() + 2 * row));
      }
      std::vector<int32_t> positions = {0, 1, 2, 3}, starts;
      std::stable_sort(positions.begin(), positions.end(), [&](int a, int b) {
        return std::min(own[a], entries) < std::min(own[b], entries);
      });
      for (int token = 0; token <= entries; ++token)
        starts.push_back(std::count_if(own.begin(), own.begin() + count,
                                       [&](int t) { return t < token; }));
      EXPECT_TRUE(
          std::equal(positions.begin(), positions.end(), own.begin() + count));
      EXPECT_TRUE(
          std::equal(starts.begin(), starts.end(), own.begin() + 2 * count));
    }
  }
}

TEST_F(ExecutorTest, StressHoldsMessages) {
  ExecutorOptions options = {1, patience};
  options.stress = Stress::Messages;
  auto executor = Executor::create(pack(), options);
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  Batches data = batches();
  auto begin = std::chrono::steady_clock::now();
  for (uint64_t step = 1; step <= 200; ++step)
    ASSERT_TRUE((*executor)->runStep(step, data, {}).ok());
  // One in four by half a millisecond, which is far more than such a step
  // takes.
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(50));
}

TEST_F(ExecutorTest, ReplicasThatDifferAreFound) {
  auto executor = start();
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  ASSERT_TRUE(initializeWeights(**executor, 11).ok());
  EXPECT_TRUE(checkReplicas(**executor, 1).ok());
  const fb::Shard &shard = *(*executor)->program(3).shards()->Get(0);
  auto put = [&](float value) {
    return (*executor)->forEachRank([&](uint32_t rank) {
      return rank == 3
                 ? (*executor)->device(3).write(
                       shard.weight(), std::as_bytes(std::span(&value, 1)))
                 : Status::success();
    });
  };
  ASSERT_TRUE(put(7).ok());
  EXPECT_EQ(checkReplicas(**executor, 5).message(),
            "guard: after step 5: parameter 'sum' differs between rank 2 and "
            "rank 3, which should have the same of it");
  ASSERT_TRUE(put(NAN).ok());
  EXPECT_EQ(checkReplicas(**executor, 5).message(),
            "rank 3: guard: its part of parameter 'sum' has nan at element 0");
}

TEST_F(ExecutorTest, RefusesMissingFeaturesAndSymbols) {
  source.code[0]->features = {"sse2", "warp9"};
  EXPECT_EQ(startError(),
            "plan needs cpu feature warp9, which this machine lacks");
  source.code[0]->features.clear();
  source.kernels[0]->symbol = "nothing";
  EXPECT_EQ(startError(), "the plan's code does not define kernel 'nothing'");
  source.code[0]->data.resize(100);
  EXPECT_NE(startError().find("cannot load the plan's code"),
            std::string::npos);
  source.code[0]->target = "sparc";
  EXPECT_EQ(startError(), "plan has kernels but no code for x86_64");
}

TEST(NamedRange, AsksForNoNameWithoutAProfiler) {
  bool isAsked = false;
  {
    NamedRange range([&] {
      isAsked = true;
      return "name";
    });
  }
  EXPECT_FALSE(NamedRange::areWanted());
  EXPECT_FALSE(isAsked);
}

TEST_F(ExecutorTest, CheckNeedsAReference) {
  EXPECT_EQ(check(pack(), {}).message(),
            "the plan has no reference to check against");
}

} // namespace
