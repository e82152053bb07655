//===- GemmTimerTest.cpp - The fastest algorithm of each GEMM -------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On the fake of Fake/, whose algorithms take as long, and do as wrong, as
// PLAIT_FAKE_GEMMS says.
//
//===----------------------------------------------------------------------===//

#include "CUDA/GemmTimer.h"
#include "CudaPlan.h"
#include "GemmCases.h"
#include "TrainSteps.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Weights.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <set>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

/// How often the fake has executed its algorithm `number`, from 0.
uint64_t countCalls(int number) {
  return findFake<uint64_t(int)>("plaitFakeGemmCalls")(number);
}

/// What the fake has executed since an object was made, by algorithm.
struct Calls {
  std::array<uint64_t, 4> before = now();
  static std::array<uint64_t, 4> now() {
    return {countCalls(0), countCalls(1), countCalls(2), countCalls(3)};
  }
  bool has(int number) const { return countCalls(number) > before[number]; }
};

struct Algorithms {
  explicit Algorithms(const char *text) { setenv("PLAIT_FAKE_GEMMS", text, 1); }
  ~Algorithms() { unsetenv("PLAIT_FAKE_GEMMS"); }
};

/// GEMMs in some memory of a fake GPU.
class GemmTimerTest : public ::testing::Test {
protected:
  static constexpr uint64_t operandBytes = 2 << 20, workspaceBytes = 1 << 20;

  void SetUp() override {
    options.verbose = true;
    options.least = options.leastNarrow = 1;
    auto driver = Driver::load();
    ASSERT_TRUE(driver.ok()) << driver.status().message();
    auto context = CudaContext::create(**driver, 0);
    ASSERT_TRUE(context.ok()) << context.status().message();
    auto made = CudaStream::create(*context, std::make_shared<std::mutex>());
    ASSERT_TRUE(made.ok()) << made.status().message();
    stream = std::move(*made);
    auto allocated = DeviceMemory::allocate(
        *context, workspaceBytes + 5 * operandBytes, "a test");
    ASSERT_TRUE(allocated.ok()) << allocated.status().message();
    memory = *allocated;
  }

  /// The report on one GEMM, of which nothing is known, or the failure.
  std::string time(const fb::GemmStepT &shape, bool adds = false,
                   uint64_t calls = 3) {
    choices = LibraryChoices("fake");
    return timeKnown(shape, adds, calls);
  }
  std::string timeKnown(const fb::GemmStepT &shape, bool adds = false,
                        uint64_t calls = 3) {
    gemms.reset();
    auto made = CublasGemms::create(*stream, {memory->data(), workspaceBytes},
                                    /*tf32=*/false);
    if (!made.ok())
      return made.status().message();
    gemms = std::move(*made);
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(fb::CreateGemmStep(builder, &shape));
    auto number = gemms->prepare(
        *flatbuffers::GetRoot<fb::GemmStep>(builder.GetBufferPointer()));
    if (!number.ok())
      return number.status().message();
    std::byte *at = memory->data() + workspaceBytes;
    operands = {at, at + operandBytes, at + 2 * operandBytes, nullptr, nullptr};
    if (shape.bias)
      operands.bias = at + 3 * operandBytes;
    if (shape.gelu_input)
      operands.geluInput = at + 4 * operandBytes;
    Measurer measurer(*stream);
    GemmTimer timer(measurer, *gemms, options);
    Status status = timer.run({{*number, operands, adds, calls}}, choices);
    return status.ok() ? timer.report() : status.message();
  }

  /// Which algorithm runs in a step, counted from 0.
  int findPinned() {
    Calls calls;
    EXPECT_TRUE(gemms->run(0, operands, false).ok());
    EXPECT_TRUE(stream->synchronize().ok());
    int found = -1;
    for (int number = 0; number < 4; ++number)
      if (calls.has(number)) {
        EXPECT_EQ(found, -1);
        found = number;
      }
    return found;
  }

  static fb::GemmStepT shape() {
    fb::GemmStepT made = makeShape(40, 56, 24, false, true, 8);
    made.a = std::make_unique<fb::Ref>(0, -1);
    made.b = std::make_unique<fb::Ref>(0, -1);
    made.c = std::make_unique<fb::Ref>(0, -1);
    return made;
  }

  GemmTiming options;
  LibraryChoices choices{"fake"};
  std::unique_ptr<CudaStream> stream;
  std::shared_ptr<DeviceMemory> memory;
  std::unique_ptr<CublasGemms> gemms;
  GemmOperands operands = {};
};

bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

//===----------------------------------------------------------------------===//
// Which algorithm is taken
//===----------------------------------------------------------------------===//

TEST_F(GemmTimerTest, TakesTheFastestThatHasTheSameBits) {
  Algorithms algorithms("5 4 1r 3");
  std::string report = time(shape());
  EXPECT_EQ(report.substr(0, report.find('\n')),
            "matmul 40 x 24 by 24 x 56, epilogue None, 3 a step, takes "
            "algorithm 4 of 4, 3 of which have the same bits: 3.000 ms instead "
            "of 5.000");
  EXPECT_TRUE(has(report, "\nmatmuls: 1 of 1 shapes timed in ")) << report;
  EXPECT_TRUE(has(report, " of at most 10.0; 1 take another algorithm than "
                          "cuBLASLt names first, with the same bits: 9.000 ms "
                          "a step instead of 15.000"))
      << report;
  EXPECT_EQ(findPinned(), 3);
}

TEST_F(GemmTimerTest, EqualTimesKeepTheFirst) {
  for (const char *times : {"5 5 5", "5 4.95 4.91", "5 6 7"}) {
    Algorithms algorithms(times);
    EXPECT_TRUE(has(time(shape()), "takes algorithm 1 of 3, 3 of")) << times;
    EXPECT_EQ(findPinned(), 0);
  }
  Algorithms algorithms("5 3 3");
  EXPECT_TRUE(has(time(shape()), "takes algorithm 2 of 3"));
  EXPECT_EQ(findPinned(), 1);
}

/// What fails, writes nothing, or is not offered for this workspace.
TEST_F(GemmTimerTest, LeavesOutWhatDoesNotWork) {
  {
    Algorithms algorithms("5 1f 1n 4");
    EXPECT_TRUE(has(time(shape()), "takes algorithm 4 of 4, 2 of which"));
    EXPECT_EQ(findPinned(), 3);
  }
  {
    Algorithms algorithms("5 1s 1w 4"); // two are left
    EXPECT_TRUE(has(time(shape()), "takes algorithm 2 of 2, 2 of which"));
    EXPECT_EQ(findPinned(), 3);
  }
  {
    Algorithms algorithms("1f 5 4"); // the second is what others are held to
    EXPECT_TRUE(has(time(shape()), "takes algorithm 3 of 3, 2 of which"));
    EXPECT_EQ(findPinned(), 2);
  }
  {
    Algorithms algorithms("1f 1f");
    EXPECT_TRUE(has(time(shape()), "has no algorithm that runs"));
  }
  Algorithms algorithms("1w 1s");
  EXPECT_EQ(time(shape()),
            "cuBLASLt cannot multiply 40 x 24 by 24 x 56: no algorithm needs "
            "at most 1048576 bytes of workspace");
}

TEST_F(GemmTimerTest, LeavesOutWhatIsNotWorthIt) {
  {
    Algorithms algorithms("5");
    EXPECT_TRUE(has(time(shape()), "has one algorithm"));
  }
  Algorithms algorithms("5 4");
  options.least = 40 * 56 + 1;
  EXPECT_TRUE(has(time(shape()), "is small"));
  options.least = 40 * 56;
  EXPECT_TRUE(has(time(shape()), "takes algorithm 2"));
  options.verbose = false;
  EXPECT_TRUE(time(shape()).starts_with("matmuls: 1 of 1"));
}

/// An algorithm that takes so long that there is no time for a second one.
TEST_F(GemmTimerTest, EndsInTime) {
  Algorithms algorithms("2000 1");
  Calls calls;
  EXPECT_TRUE(has(time(shape()), "takes algorithm 1 of 2, 1 of which"));
  EXPECT_FALSE(calls.has(1));
  options.limit = std::chrono::seconds(0);
  EXPECT_TRUE(has(time(shape()), "comes after the time limit"));
}

/// Of all types and epilogues, of sums that are added to and of batches:
/// another order of additions is found out.
TEST_F(GemmTimerTest, SeesOtherBits) {
  Algorithms algorithms("5 1r 4");
  auto expectSeen = [&](const fb::GemmStepT &made, bool adds) {
    std::string report = time(made, adds);
    EXPECT_TRUE(has(report, "takes algorithm 3 of 3, 2 of which")) << report;
  };
  for (bool adds : {false, true})
    expectSeen(shape(), adds);
  fb::GemmStepT batch = shape();
  batch.batch = {3, 2};
  batch.a_batch = {8192, 4096};
  batch.b_batch = {8192, 4096};
  batch.c_batch = {16384, 8192};
  expectSeen(batch, false);
  fb::GemmStepT sums = shape();
  sums.dtype = fb::DType::BF16;
  expectSeen(sums, true);
  for (fb::Epilogue epilogue :
       {fb::Epilogue::Bias, fb::Epilogue::Gelu, fb::Epilogue::GeluGradient}) {
    fb::GemmStepT made = shape();
    made.epilogue = epilogue;
    if (epilogue == fb::Epilogue::Bias)
      made.bias = std::make_unique<fb::Ref>(0, -1);
    else
      made.gelu_input = std::make_unique<fb::Ref>(0, -1);
    expectSeen(made, false);
  }
  fb::GemmStepT narrow = makeShape(384, 384, 64, false, false, 0);
  narrow.a = std::make_unique<fb::Ref>(0, -1);
  narrow.b = std::make_unique<fb::Ref>(0, -1);
  narrow.c = std::make_unique<fb::Ref>(0, -1);
  narrow.dtype = narrow.c_dtype = fb::DType::BF16;
  expectSeen(narrow, false);
}

//===----------------------------------------------------------------------===//
// What is kept
//===----------------------------------------------------------------------===//

/// Another order of additions counts, and so do algorithms of short results.
/// What leaves out half of the terms, or all, does not.
TEST_F(GemmTimerTest, RoundsInAnotherWayIfThatIsKept) {
  options.isKept = true;
  options.leastNarrow = 1 << 20;
  fb::GemmStepT narrow = shape();
  narrow.dtype = narrow.c_dtype = fb::DType::BF16;
  for (const fb::GemmStepT &made : {shape(), narrow})
    for (bool adds : {false, true}) {
      Algorithms algorithms("5 1h 1n 2r");
      std::string report = time(made, adds);
      EXPECT_TRUE(has(report, "takes algorithm 4 of 4, 2 of which have the "
                              "same results but for rounding: 2.000 ms instead "
                              "of 5.000\n"))
          << report;
      EXPECT_TRUE(has(report, "; 1 take another algorithm than cuBLASLt names "
                              "first, with the same results but for rounding: "
                              "6.000 ms a step instead of 15.000"))
          << report;
      EXPECT_EQ(findPinned(), 3);
    }
  options.isKept = false;
  Algorithms algorithms("5 1h 1n 2r");
  EXPECT_TRUE(has(time(shape()), "takes algorithm 1 of 4, 1 of which"));
}

/// As another start finds it, whatever it measures and in whatever order the
/// heuristic names algorithms.
TEST_F(GemmTimerTest, TakesWhatWasChosenBefore) {
  Algorithms algorithms("5 3 4");
  time(shape());
  EXPECT_EQ(choices.size(), 1u);
  LibraryChoices before = choices;
  for (const char *now : {"1 9 9", "1"}) {
    setenv("PLAIT_FAKE_GEMMS", now, 1);
    Calls calls;
    std::string report = timeKnown(shape());
    EXPECT_TRUE(has(report, "takes what was chosen before\n")) << report;
    EXPECT_TRUE(has(report, ": 0 of 1 shapes timed in 0.0 s of at most 10.0, 1 "
                            "as chosen before; 0 take"))
        << report;
    EXPECT_FALSE(calls.has(0) || calls.has(1));
    EXPECT_EQ(findPinned(), 1);
    EXPECT_EQ(choices, before);
  }
}

/// One for another GEMM, digits that are none, what the library refuses, what
/// does not fit the workspace.
TEST_F(GemmTimerTest, ChoosesAnewWhatCannotBeTaken) {
  Algorithms algorithms("5 3 4");
  fb::GemmStepT other = shape();
  other.accumulate = fb::Accumulate::Add;
  other.n = 48;
  time(other);
  EXPECT_TRUE(has(timeKnown(shape()), "takes algorithm 2 of 3"));
  EXPECT_EQ(choices.size(), 2u);

  time(shape());
  std::string what = gemms->describe(0), good = *choices.find(what);
  std::string refused = good, large = good;
  refused[3 * 16] = 'f';
  large[16] = 'f';
  for (const std::string &bad :
       {std::string(), std::string(128, 'x'), good + "0", refused, large}) {
    setenv("PLAIT_FAKE_GEMMS", "5 4 3", 1);
    choices.set(what, bad);
    EXPECT_TRUE(has(timeKnown(shape()), "takes algorithm 3 of 3")) << bad;
    EXPECT_NE(*choices.find(what), bad);
    EXPECT_EQ(findPinned(), 2);
  }
  std::string text = gemms->take(0, "12").message();
  EXPECT_EQ(text, "an algorithm of cuBLASLt has 128 digits, not '12'");
  EXPECT_EQ(gemms->take(0, refused).message(),
            "cublasLtMatmulAlgoCheck: the fake cuBLASLt objects");
  EXPECT_TRUE(has(gemms->take(0, large).message(), "the algorithm needs "));
  EXPECT_TRUE(
      has(gemms->take(0, large).message(), "workspace, the plan has 1048576"));
}

/// Whatever the library is told of a GEMM tells it from others.
TEST_F(GemmTimerTest, TellsGemmsApart) {
  Algorithms algorithms("5");
  std::set<std::string> all;
  auto add = [&](auto change) {
    fb::GemmStepT made = shape();
    change(made);
    time(made);
    for (uint32_t part : gemms->partsOf(0))
      EXPECT_TRUE(all.insert(gemms->describe(part)).second)
          << gemms->describe(part);
  };
  add([](fb::GemmStepT &) {});
  add([](fb::GemmStepT &made) { made.m = 48; });
  add([](fb::GemmStepT &made) { made.k = 16; });
  add([](fb::GemmStepT &made) { made.a_row += 8; });
  add([](fb::GemmStepT &made) { made.dtype = fb::DType::BF16; });
  add([](fb::GemmStepT &made) {
    made.b_row = 64;
    made.b_col = 1;
  });
  add([](fb::GemmStepT &made) {
    made.batch = {3};
    made.a_batch = made.b_batch = {4096};
    made.c_batch = {8192};
  });
  add([](fb::GemmStepT &made) {
    made.epilogue = fb::Epilogue::Bias;
    made.bias = std::make_unique<fb::Ref>(0, -1);
  });
  // Not a property of the algorithm.
  fb::GemmStepT sum = shape();
  sum.accumulate = fb::Accumulate::Add;
  time(sum);
  EXPECT_TRUE(all.contains(gemms->describe(0)));
}

TEST(LibraryChoices, AreReadAsWritten) {
  LibraryChoices choices("cuBLASLt 1 on a GPU");
  choices.set("gemm 1 by 2", "00");
  choices.set("gemm 3 by 4", "ff");
  std::string text = choices.write();
  auto read = LibraryChoices::parse(text);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, choices);
  EXPECT_EQ(read->library(), "cuBLASLt 1 on a GPU");
  // Any byte that is another.
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] ^= 1;
    EXPECT_FALSE(LibraryChoices::parse(damaged).ok()) << i;
  }
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_EQ(LibraryChoices::parse(text.substr(0, length)).status().message(),
              "it is not as it was written");
}

/// What one start has, and another has not or otherwise.
TEST(LibraryChoices, AreCompared) {
  LibraryChoices before("fake"), now("fake");
  before.set("a", "1");
  before.set("b", "2");
  now.set("a", "1");
  now.set("b", "3");
  now.set("c", "4");
  LibraryChoices since = now.since(before);
  EXPECT_EQ(since.size(), 2u);
  EXPECT_FALSE(since.find("a"));
  before.take(since);
  EXPECT_EQ(before, now);
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

/// Three steps of the test plan.
struct Run {
  std::string libraries;
  std::vector<StepMetrics> metrics;
};

Result<Run> train(const fb::Plan &plan, const ExecutorOptions &options,
                  std::optional<Calls> &calls) {
  auto executor = Executor::create(plan, options);
  if (!executor.ok())
    return executor.status();
  PLAIT_RETURN_IF_ERROR(initializeWeights(**executor, 7));
  calls.emplace();
  Run run = {(*executor)->libraries(), {}};
  auto metrics = trainThreeSteps(**executor, plan);
  if (!metrics.ok())
    return metrics.status();
  run.metrics = std::move(*metrics);
  return run;
}

/// Walked, recorded and replayed, with NCCL and without: training sees nothing
/// of it but another algorithm.
TEST(GemmTiming, StepsTakeWhatIsPinned) {
  fb::PlanT made = makePlan();
  fb::CodeObjectT &code = append(made.code);
  code.target = "x86_64";
  code.data = readFile(PLAIT_TEST_KERNELS);
  std::vector<uint8_t> packed =
      plan::packPlan(toCuda(std::move(made), makeDirectory()));
  const fb::Plan &plan = *fb::GetPlan(packed.data());
  ASSERT_TRUE(plan::checkPlan(plan).ok());
  Algorithms algorithms("5 1r 4");
  ExecutorOptions options;
  options.gemmTiming.least = options.gemmTiming.leastNarrow = 1;
  std::vector<StepMetrics> expected;
  for (bool enabled : {false, true})
    for (unsigned devices : {1u, 3u, 0u})
      for (bool graph : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << enabled << " " << devices << " GPUs, "
                     << "graph " << graph);
        options.gemmTiming.enabled = enabled;
        options.devices = devices;
        options.cudaGraph = graph;
        std::optional<Calls> calls;
        auto run = train(plan, options, calls);
        ASSERT_TRUE(run.ok()) << run.status().message();
        if (expected.empty())
          expected = run->metrics;
        EXPECT_EQ(run->metrics, expected);
        EXPECT_EQ(calls->has(0), !enabled);
        EXPECT_FALSE(calls->has(1));
        EXPECT_EQ(calls->has(2), enabled);
        EXPECT_EQ(has(run->libraries, "\nmatmuls: "), enabled)
            << run->libraries;
      }
}

#ifdef PLAIT_PLAITC
/// Deterministic plans say so at their attention. Kernels go to a folder each:
/// the code of the last plan is still loaded.
TEST(GemmTiming, LeavesDeterministicPlansAlone) {
  std::string path = makeDirectory() + "/model.plan";
  std::string command = PLAIT_PLAITC " " PLAIT_MODEL
                                     " --seq 16 --attention flash --no-prove "
                                     "--no-reference -o " +
                        path;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  auto file = plan::PlanFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  Algorithms algorithms("5 4");
  ExecutorOptions options;
  options.gemmTiming.least = 1;
  for (bool deterministic : {false, true}) {
    fb::PlanT made;
    file->plan().UnPackTo(&made);
    for (auto &function : made.programs.front()->functions)
      for (auto &step : function->steps)
        if (fb::AttentionStepT *attention = step->step.AsAttentionStep())
          attention->deterministic = deterministic;
    std::vector<uint8_t> packed =
        plan::packPlan(toCuda(std::move(made), makeDirectory()));
    std::optional<Calls> calls;
    auto run = train(*fb::GetPlan(packed.data()), options, calls);
    ASSERT_TRUE(run.ok()) << run.status().message();
    EXPECT_EQ(has(run->libraries, "\nmatmuls: "), !deterministic);
    EXPECT_EQ(calls->has(1), !deterministic);
  }
}
#endif

} // namespace
