//===- CudaExecutorTest.cpp - CUDA plans on fake GPUs ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs plans on the fake of Fake/: everything but the GPU is the real thing.
//
//===----------------------------------------------------------------------===//

#include "CudaExecution.h"

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

TEST_F(CudaExecutorTest, RunsTheTestPlan) { compare(cpuPlan()); }

TEST_F(CudaExecutorTest, SaysWhereRanksRun) {
  const fb::Plan &plan = pack(toCuda(cpuPlan(), directory));
  auto one = Executor::create(plan, options(1, true));
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ((*one)->placement(), "ranks 0 to 3 of 4 on GPU 0 (Fake)");
  EXPECT_TRUE((*one)->libraries().starts_with("CUDA driver "))
      << (*one)->libraries();
  EXPECT_NE((*one)->libraries().find(", cuBLASLt 13.0.0, "), std::string::npos)
      << (*one)->libraries();
  auto three = Executor::create(plan, options(3, true));
  ASSERT_TRUE(three.ok()) << three.status().message();
  EXPECT_EQ((*three)->placement(),
            "ranks 0, 3 of 4 on GPU 0 (Fake); rank 1 of 4 on GPU 1 (Fake); "
            "rank 2 of 4 on GPU 2 (Fake)");
}

TEST_F(CudaExecutorTest, RefusesWhatDoesNotFit) {
  fb::PlanT plan = toCuda(cpuPlan(), directory);
  EXPECT_EQ(startError(plan, options(9, true)),
            "`devices` is 9, but only 8 GPUs are visible");
  setenv("PLAIT_FAKE_MEMORY", "15000", 1);
  EXPECT_EQ(startError(plan, options(1, true)),
            "GPU 0 (Fake): ranks 0 to 3 need 20480 bytes, 15000 are free");
  setenv("PLAIT_FAKE_MEMORY", "21000", 1);
  EXPECT_EQ(startError(plan, options(1, true)), "");
  plan.device_reserve = 600;
  EXPECT_EQ(startError(plan, options(1, true)),
            "GPU 0 (Fake): ranks 0 to 3 need 20480 bytes and the libraries "
            "600, 21000 are free");
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

TEST_F(CudaExecutorTest, RefusesMachinesThatLackSomething) {
  fb::PlanT plan = toCuda(cpuPlan(), directory);
  {
    Setting apart("PLAIT_FAKE_NO_PEERS", "1");
    std::string error = startError(plan, options(2, true));
    EXPECT_NE(error.find(" cannot reach the memory of GPU "), error.npos)
        << error;
    EXPECT_NE(error.find("; use `devices` 1, or one process a rank"),
              error.npos)
        << error;
  }
  Setting small("PLAIT_FAKE_HOST_MEMORY", "100000000");
  plan.programs[0]->host_bytes = 200000000;
  std::string error = startError(plan, options(1, true));
  EXPECT_NE(error.find(
                "cannot allocate 200000000 bytes of the host's memory for what "
                "is offloaded: cuMemHostAlloc"),
            error.npos)
      << error;
}

/// In a process of its own: GPUs are counted once.
TEST_F(CudaExecutorTest, RefusesMachinesWithoutGpus) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto start = [&] {
    Setting none("PLAIT_FAKE_GPUS", "0");
    std::fputs(startError(toCuda(cpuPlan(), directory)).c_str(), stderr);
    std::exit(3);
  };
  EXPECT_EXIT(start(), ::testing::ExitedWithCode(3),
              "this plan is for CUDA; the driver finds no GPU");
}

/// Plans of processors have these in one step.
TEST_F(CudaExecutorTest, RefusesAttentionOfProcessors) {
  const fb::PlanT without = toCuda(cpuPlan(), directory);
  auto errorOf = [&](auto change) {
    fb::PlanT plan = without;
    fb::AttentionStepT step;
    step.batch = step.heads = step.kv_heads = 1;
    step.queries = step.keys = step.head_size = 4;
    step.q_strides = step.k_strides = step.v_strides =
        step.out_strides = {16, 4, 4};
    for (auto *tensor : {&step.q, &step.k, &step.v, &step.out, &step.stats})
      *tensor = std::make_unique<fb::Ref>(0, -1);
    change(step);
    append(plan.programs[0]->functions[0]->steps).step.Set(std::move(step));
    // Of rank 0 or 1: whichever notices first.
    std::string message = startError(plan, options(1, true));
    return message.substr(std::min(message.size(), strlen("rank 0: ")));
  };
  EXPECT_EQ(errorOf([](fb::AttentionStepT &step) {
              step.dropout = std::make_unique<fb::AttentionDropoutT>();
              step.dropout->keys = std::make_unique<fb::Ref>(0, -1);
              step.dropout->probability = 0.5;
            }),
            "GPUs do not compute an attention step: it has dropout");
  EXPECT_EQ(errorOf([](fb::AttentionStepT &step) {
              step.causal = true;
              step.starts = std::make_unique<fb::Ref>(0, -1);
            }),
            "GPUs do not compute an attention step: it has a document mask");
}

TEST_F(CudaExecutorTest, DriversMayBeOlderThanTheToolkit) {
  // The first driver that takes the parameters of the plan's own kernels.
  Setting driver("PLAIT_FAKE_CUDA_VERSION", "12010");
  fb::PlanT plan = toCuda(cpuPlan(), directory);
  EXPECT_EQ(startError(plan, options(1, true)), "");
  // Cubins of a newer major version cannot be loaded, PTX can.
  fb::CodeObjectT &cubin = append(plan.code);
  cubin.target = "cubin";
  cubin.cpu = "sm_90";
  cubin.data = {'n', 'e', 'w'};
  EXPECT_EQ(startError(plan, options(1, true)), "");
  plan.code.erase(plan.code.begin());
  EXPECT_EQ(startError(plan, options(1, true)),
            "GPU 0 (Fake) cannot load the plan's code: cuModuleLoadDataEx: the "
            "fake driver objects (222)");
}

TEST_F(CudaExecutorTest, TellsNcclOfTheArenaWithoutWindowsToo) {
  Setting apart("PLAIT_FAKE_NO_WINDOWS", "1");
  auto run = train(pack(toCuda(cpuPlan(), directory)), options(0, true));
  EXPECT_TRUE(run.ok()) << run.status().message();
}

TEST_F(CudaExecutorTest, SaysWhatMemoryIsUsed) {
  fb::PlanT source = toCuda(cpuPlan(), directory);
  // Enough to be seen in hundredths of gigabytes.
  source.programs[0]->arena_bytes = 50'000'000;
  source.device_reserve = 200'000'000;
  setenv("PLAIT_FAKE_MEMORY", "800000000", 1);
  auto executor = Executor::create(pack(source), options(1, true));
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  auto line = (*executor)->describeMemory();
  unsetenv("PLAIT_FAKE_MEMORY");
  ASSERT_TRUE(line.ok()) << line.status().message();
  EXPECT_EQ(*line, "GPU 0 (Fake): arenas 0.10 GB, libraries 0.00 GB of 0.20 GB "
                   "reserved, context and other processes 0.00 GB, free 0.70 "
                   "GB");
}

namespace {
/// The first of three processes, before any has said anything.
class FirstOfThree : public Rendezvous {
public:
  FirstOfThree() : Rendezvous({}) {
    here.launcher = "torchrun";
    here.count = 3;
  }

  Result<std::vector<std::string>> gather(const std::string &) override {
    return fail("nobody is there");
  }
  Result<std::string> broadcast(const std::string &) override {
    return fail("nobody is there");
  }
  Status sendToFirst(uint32_t, std::span<const std::byte>) override {
    return fail("nobody is there");
  }
  Status receiveFrom(uint32_t, std::span<std::byte>) override {
    return fail("nobody is there");
  }
  void disconnect() override {}
  Status openEngine(std::span<const uint32_t>) override {
    return fail("nobody is there");
  }
};
} // namespace

TEST_F(CudaExecutorTest, ALaunchedProcessMustFitThePlan) {
  FirstOfThree processes;
  ExecutorOptions launched;
  launched.processes = &processes;
  EXPECT_EQ(startError(toCuda(cpuPlan(), directory), launched),
            "the plan has 4 ranks, torchrun started 3 processes");
}

TEST_F(CudaExecutorTest, AttentionMustFitTheWorkspace) {
  fb::PlanT plan = toCuda(cpuPlan(), directory);
  fb::AttentionStepT attention;
  attention.batch = attention.heads = attention.kv_heads = 1;
  attention.queries = attention.keys = attention.head_size = 4;
  attention.q_strides = attention.k_strides = attention.v_strides =
      attention.out_strides = {16, 4, 4};
  for (auto *tensor : {&attention.q, &attention.k, &attention.v, &attention.out,
                       &attention.stats})
    *tensor = std::make_unique<fb::Ref>(0, -1);
  uint64_t needed = plan::gpuAttentionWorkspace(attention, 90);
  append(plan.programs[0]->functions[0]->steps).step.Set(std::move(attention));
  // Of rank 0 or 1: whichever notices first.
  EXPECT_EQ(startError(plan, options(1, true)).substr(strlen("rank 0")),
            ": attention needs " + std::to_string(needed) +
                " bytes of workspace, the plan has 1024");
}

/// Nor what the compiler would not leave in one step.
TEST_F(CudaExecutorTest, AttentionHasNoWindowOnBothSides) {
  fb::PlanT plan = toCuda(cpuPlan(), directory);
  fb::AttentionStepT step;
  step.batch = step.heads = step.kv_heads = step.head_size = 1;
  step.queries = step.keys = 4;
  step.window = 2;
  step.q_strides = step.k_strides = step.v_strides =
      step.out_strides = {4, 1, 1};
  for (auto *tensor : {&step.q, &step.k, &step.v, &step.out, &step.stats})
    *tensor = std::make_unique<fb::Ref>(0, -1);
  append(plan.programs[0]->functions[0]->steps).step.Set(std::move(step));
  std::string message = startError(plan, options(1, true));
  EXPECT_NE(message.find("GPUs do not compute an attention step: it has a "
                         "window on both sides of a query"),
            std::string::npos)
      << message;
}

/// What the compiler does not make, of queries in zig-zag order.
TEST_F(CudaExecutorTest, AttentionTakesPairsOfChunks) {
  const fb::PlanT without = toCuda(cpuPlan(), directory);
  auto errorOf = [&](int64_t chunk, int64_t first, uint64_t workspace) {
    fb::PlanT plan = without;
    plan.programs[0]->library_workspace_bytes = workspace;
    plan.programs[0]->arena_bytes =
        plan.programs[0]->library_workspace + workspace;
    fb::AttentionStepT step;
    step.kind = fb::AttentionKind::Backward;
    step.causal = true;
    step.batch = step.heads = step.kv_heads = step.head_size = 1;
    step.queries = 2 * chunk, step.keys = 4 * chunk, step.chunks = 4;
    step.first_query = {fb::RankScalar(first, 0, 0, false)};
    step.q_strides = step.out_strides = {step.queries, 1, 1};
    step.k_strides = step.v_strides = {step.keys, 1, 1};
    for (auto *tensor : {&step.q, &step.k, &step.v, &step.out, &step.stats,
                         &step.d_out, &step.d_q, &step.d_k, &step.d_v})
      *tensor = std::make_unique<fb::Ref>(0, -1);
    append(plan.programs[0]->functions[0]->steps).step.Set(std::move(step));
    std::string message = startError(plan, options(1, true));
    // Of rank 0 or 1: whichever notices first.
    return message.substr(std::min(message.size(), strlen("rank 0: ")));
  };
  EXPECT_EQ(errorOf(3, 0, 100'000),
            "GPUs do not compute an attention step: its chunks of 3 positions "
            "have 3 rows of scores, allowed are multiples of 4");
  EXPECT_EQ(errorOf(4, 2, 100'000),
            "queries from 2 on are 3 pieces of a sequence, expected two");
  EXPECT_EQ(errorOf(4, 0, 100),
            "attention adds gradients of 512 bytes and copies statistics of "
            "256 bytes, the plan has 100 bytes of workspace");
}

#ifdef PLAIT_PLAITC
/// A GPT-2 of two layers, compiled for the CPU.
class CudaModelTest : public CudaExecutorTest,
                      public ::testing::WithParamInterface<const char *> {};

TEST_P(CudaModelTest, EqualsTheCpu) { compare(compile(GetParam())); }

/// A Mixtral of two layers.
class CudaExpertsTest : public CudaModelTest {};

TEST_P(CudaExpertsTest, EqualsTheCpu) {
  compare(compile(GetParam(), PLAIT_EXPERTS));
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, CudaExpertsTest,
    ::testing::Values("--mesh ep=2 --global-batch 4 --seq 8",
                      "--mesh pp=2,dp=2,tp=2 --zero 1 --global-batch 8 --seq 8 "
                      "--micro-batch 1 --precision bf16",
                      "--mesh ep=2,cp=2 --global-batch 4 --seq 8 --recompute "
                      "full --precision bf16"));

/// The first rank sends all microbatches before it receives any, and NCCL
/// begins no receive before the sends in front of it: with four the stand-in
/// waits for ever, too.
TEST_F(CudaExecutorTest, RefusesSendsThatHoldUpReceives) {
  if (access(PLAIT_PLAITC, X_OK) != 0)
    GTEST_SKIP() << PLAIT_PLAITC << " has not been built";
  for (int microbatches : {2, 4}) {
    fb::PlanT cpu = compile("--mesh pp=2 --schedule breadth-first --seq 8 "
                            "--global-batch " +
                            std::to_string(microbatches));
    std::vector<uint8_t> cuda = plan::packPlan(toCuda(cpu, directory));
    Status status = plan::checkPlan(*fb::GetPlan(cuda.data()));
    EXPECT_EQ(status.ok(), microbatches == 2);
    EXPECT_EQ(status.message().starts_with("deadlock: program 0"),
              microbatches == 4)
        << status.message();
  }
}

/// The steps of a run with `--eval-tokens` and `--on-nan skip`. What follows an
/// evaluation, and a step that was skipped, is as if it had not been.
TEST_F(CudaExecutorTest, EvaluatesAndSkipsAsTheCpuDoes) {
  if (access(PLAIT_PLAITC, X_OK) != 0)
    GTEST_SKIP() << PLAIT_PLAITC << " has not been built";
  fb::PlanT cpu = compile("--mesh pp=2,tp=2 --global-batch 4 --seq 8 "
                          "--micro-batch 1");
  const fb::Plan &plan = pack(cpu);
  auto expected = evaluateAndSkip(plan, options(0, false));
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  const fb::Plan &cuda = pack(toCuda(cpu, directory));
  for (unsigned devices : {1u, 0u})
    for (bool graph : {false, true}) {
      SCOPED_TRACE(testing::Message() << devices << " GPUs, graph " << graph);
      auto run = evaluateAndSkip(cuda, options(devices, graph));
      ASSERT_TRUE(run.ok()) << run.status().message();
      ASSERT_EQ(run->size(), expected->size());
      for (size_t i = 0; i < run->size(); ++i)
        EXPECT_NEAR((*run)[i], (*expected)[i], 1e-5 * (*expected)[i]) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, CudaModelTest,
    ::testing::Values("--mesh pp=1 --global-batch 4 --seq 8",
                      "--mesh tp=2 --global-batch 4 --seq 8 --recompute full "
                      "--attention flash",
                      "--mesh cp=2 --context-parallel zigzag --global-batch 4 "
                      "--seq 8 --attention flash",
                      "--mesh dp=2,cp=4 --context-parallel zigzag --attention "
                      "flash --global-batch 4 --seq 16 --recompute full "
                      "--micro-batch 1 --precision bf16",
                      "--mesh tp=2 --global-batch 4 --seq 8 --epilogues all",
                      "--mesh pp=2,dp=2,tp=2 --global-batch 8 --seq 8 "
                      "--micro-batch 1",
                      "--mesh pp=2,dp=2,tp=2 --global-batch 8 --seq 8 "
                      "--micro-batch 1 --precision bf16",
                      "--mesh dp=4 --zero 1 --global-batch 8 --seq 8",
                      "--mesh pp=2,dp=2,tp=2 --zero 1 --global-batch 8 --seq 8 "
                      "--micro-batch 1 --precision bf16",
                      "--mesh pp=2 --global-batch 4 --seq 8 --micro-batch 1 "
                      "--recompute full --precision bf16 --epilogues all",
                      "--mesh pp=2 --schedule interleaved-1f1b --global-batch "
                      "4 --seq 8",
                      "--mesh pp=2 --schedule zb-v --global-batch 4 --seq 8",
                      "--mesh pp=2 --schedule breadth-first --global-batch 2 "
                      "--seq 8",
                      "--mesh pp=1 --global-batch 4 --seq 8 --micro-batch 2 "
                      "--offload optimizer",
                      "--mesh pp=1 --global-batch 4 --seq 8 --micro-batch 2 "
                      "--offload activations",
                      "--mesh pp=2,dp=2 --zero 1 --global-batch 8 --seq 8 "
                      "--micro-batch 1 --precision bf16 "
                      "--offload optimizer,activations"));
#endif

} // namespace
