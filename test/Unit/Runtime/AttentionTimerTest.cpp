//===- AttentionTimerTest.cpp - The fastest engine of attention -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On the host in the place of cuDNN, with engines that take as long, and do as
// wrong, as PLAIT_FAKE_ATTENTION says.
//
//===----------------------------------------------------------------------===//

#include "CUDA/AttentionTimer.h"
#include "AttentionReference.h"
#include "CudaPlan.h"
#include "plait/Plan/Attention.h"
#include "plait/Plan/Check.h"
#include "plait/Runtime/Trainer.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <set>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

struct Engines {
  explicit Engines(const char *text) {
    setenv("PLAIT_FAKE_ATTENTION", text, 1);
  }
  ~Engines() { unsetenv("PLAIT_FAKE_ATTENTION"); }
};

/// Attention in some memory of a fake GPU.
class AttentionTimerTest : public ::testing::Test {
protected:
  static constexpr uint64_t operandBytes = 1 << 20, workspaceBytes = 8 << 20;

  void SetUp() override {
    options.verbose = options.isKept = true;
    auto driver = Driver::load();
    ASSERT_TRUE(driver.ok()) << driver.status().message();
    auto context = CudaContext::create(**driver, 0);
    ASSERT_TRUE(context.ok()) << context.status().message();
    auto made = CudaStream::create(*context, std::make_shared<std::mutex>());
    ASSERT_TRUE(made.ok()) << made.status().message();
    stream = std::move(*made);
    auto allocated = DeviceMemory::allocate(
        *context, workspaceBytes + 9 * operandBytes, "a test");
    ASSERT_TRUE(allocated.ok()) << allocated.status().message();
    memory = *allocated;
  }

  /// The report on one step that is called three times, of which nothing is
  /// known, or the failure.
  std::string time(fb::AttentionKind kind,
                   Shape shape = {2, 4, 2, 64, 64, 16}) {
    choices = LibraryChoices("fake");
    return timeKnown(kind, shape);
  }
  std::string timeKnown(fb::AttentionKind kind,
                        Shape shape = {2, 4, 2, 64, 64, 16}) {
    auto made =
        CudaAttention::create(*stream, {memory->data(), workspaceBytes});
    if (!made.ok())
      return made.status().message();
    attentions = std::move(*made);
    fb::AttentionStepT step = makeStep(shape, fb::DType::BF16, kind);
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(fb::AttentionStep::Pack(builder, &step));
    auto number = attentions->prepare(
        *flatbuffers::GetRoot<fb::AttentionStep>(builder.GetBufferPointer()),
        shape.firstQuery);
    if (!number.ok())
      return number.status().message();
    auto at = [&](int i) {
      return memory->data() + workspaceBytes + i * operandBytes;
    };
    operands = {at(0), at(1), at(2), at(3), at(4), nullptr};
    if (kind == fb::AttentionKind::Backward)
      operands = {at(0), at(1), at(2), at(3), at(4),
                  at(5), at(6), at(7), at(8)};
    Measurer measurer(*stream);
    AttentionTimer timer(measurer, *attentions, options);
    calls = attentions->callsOf({{*number, operands, 3}});
    Status status = timer.run(calls, choices);
    return status.ok() ? timer.report() : status.message();
  }

  std::string configuration() const {
    auto found = attentions->configurationOf(0);
    return found.ok() ? *found : found.status().message();
  }

  GemmTiming options;
  LibraryChoices choices{"fake"};
  std::unique_ptr<CudaStream> stream;
  std::shared_ptr<DeviceMemory> memory;
  std::unique_ptr<CudaAttention> attentions;
  std::vector<AttentionUse> calls;
  AttentionOperands operands = {};
};

constexpr auto bothPasses = {fb::AttentionKind::Forward,
                             fb::AttentionKind::Backward};

bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/// One that rounds in another way counts. What writes nothing, or half of the
/// rows, what fails and what cannot be made do not.
TEST_F(AttentionTimerTest, TakesTheFastestThatComputesTheSame) {
  for (fb::AttentionKind kind : bothPasses) {
    Engines engines("5 1n 1h 1f 1c 2r 3");
    std::string report = time(kind);
    EXPECT_TRUE(has(report,
                    " attention of 2 x 4 heads of size 16, 64 by 64 positions, "
                    "3 a step, takes engine 5, 3 of 6 engines have the same "
                    "results but for rounding: 2.000 ms instead of 5.000\n"))
        << report;
    EXPECT_TRUE(has(report, "attention: 1 of 1 shapes timed in ")) << report;
    EXPECT_TRUE(has(report, " of at most 10.0; 1 take another engine than the "
                            "library names first: 6.000 ms a step instead of "
                            "15.000"))
        << report;
    EXPECT_EQ(configuration(), "engine 5");
    EXPECT_EQ(*choices.find(attentions->describe(0)), "engine 5");
  }
}

TEST_F(AttentionTimerTest, KeepsTheFirst) {
  for (const char *times : {"5 5 5", "5 4.95 4.91", "5 6"}) {
    Engines engines(times);
    EXPECT_TRUE(has(time(fb::AttentionKind::Forward), "takes engine 0, "))
        << times;
    EXPECT_EQ(configuration(), "engine 0");
    EXPECT_EQ(choices.size(), 1u);
  }
  {
    Engines engines("5");
    EXPECT_TRUE(has(time(fb::AttentionKind::Forward), "has one engine"));
  }
  {
    Engines engines("5f 4f");
    EXPECT_TRUE(
        has(time(fb::AttentionKind::Forward), "has no engine that runs"));
  }
  // The first that can be made is what others are held to.
  Engines engines("1c 5 4n 3");
  EXPECT_TRUE(
      has(time(fb::AttentionKind::Backward), "takes engine 3, 2 of 3 engines"));
}

TEST_F(AttentionTimerTest, EndsInTime) {
  Engines engines("2000 1");
  EXPECT_TRUE(
      has(time(fb::AttentionKind::Forward), "takes engine 0, 1 of 2 engines"));
  options.limit = std::chrono::seconds(0);
  EXPECT_TRUE(
      has(time(fb::AttentionKind::Forward), "comes after the time limit"));
  EXPECT_EQ(configuration(), "engine 0");
}

/// Whatever another start would measure; what it does not have is measured.
TEST_F(AttentionTimerTest, TakesWhatWasChosenBefore) {
  Engines engines("5 3 4");
  time(fb::AttentionKind::Forward);
  LibraryChoices before = choices;
  setenv("PLAIT_FAKE_ATTENTION", "1 9 9", 1);
  std::string report = timeKnown(fb::AttentionKind::Forward);
  EXPECT_TRUE(has(report, "takes what was chosen before\n")) << report;
  EXPECT_TRUE(has(report, ", 1 as chosen before; 0 take")) << report;
  EXPECT_EQ(configuration(), "engine 1");
  EXPECT_EQ(choices, before);
  setenv("PLAIT_FAKE_ATTENTION", "5", 1);
  report = timeKnown(fb::AttentionKind::Forward);
  EXPECT_TRUE(has(report, "has one engine")) << report;
  EXPECT_EQ(configuration(), "engine 0");
  EXPECT_EQ(attentions->take(0, "engine 1").message(),
            "the fake cuDNN has no engine 'engine 1'");
  EXPECT_EQ(configuration(), "engine 0");
}

/// In zig-zag order a step is two calls, whose second adds to what the first
/// has written: each has a choice of its own.
TEST_F(AttentionTimerTest, ChoosesForEachPiece) {
  Engines engines("5 1h 2");
  Shape shape = {2, 4, 2, 128, 512, 16};
  shape.firstQuery = 128;
  shape.chunks = 8;
  for (fb::AttentionKind kind : bothPasses) {
    std::string report = time(kind, shape);
    EXPECT_TRUE(has(report, "2 of 2 shapes timed")) << report;
    EXPECT_EQ(choices.size(), 2u);
    for (const AttentionUse &call : calls) {
      EXPECT_EQ(*attentions->configurationOf(call.number), "engine 2");
      EXPECT_EQ(call.calls, 3u);
    }
  }
}

/// Whatever the library is told of attention tells it from other.
TEST_F(AttentionTimerTest, TellsCallsApart) {
  Engines engines("5");
  std::set<std::string> all;
  auto add = [&](fb::AttentionKind kind, const Shape &shape) {
    time(kind, shape);
    EXPECT_TRUE(all.insert(attentions->describe(0)).second)
        << attentions->describe(0);
  };
  Shape shape = {2, 4, 2, 64, 64, 16};
  for (fb::AttentionKind kind : bothPasses)
    add(kind, shape);
  for (auto [field, value] : {std::pair(&Shape::batch, 1),
                              {&Shape::heads, 2},
                              {&Shape::kvHeads, 4},
                              {&Shape::keys, 128},
                              {&Shape::size, 8},
                              {&Shape::window, 5}}) {
    Shape other = shape;
    other.*field = value;
    other.firstQuery = other.keys - other.queries;
    add(fb::AttentionKind::Forward, other);
  }
  shape.causal = false;
  add(fb::AttentionKind::Forward, shape);
}

#ifdef PLAIT_PLAITC
/// Two ranks that train a model with attention, each on a GPU that finds
/// another engine fast, from checkpoints.
class KeptEngines : public ::testing::Test {
protected:
  std::string directory = makeDirectory();
  std::vector<uint8_t> bytes;
  TrainOptions options;

  explicit KeptEngines(bool deterministic = false) {
    fb::PlanT made = compilePlan(PLAIT_MODEL,
                                 "--seq 16 --attention flash --mesh dp=2 "
                                 "--global-batch 2 --no-prove",
                                 directory + "/model.plan");
    made.deterministic = deterministic;
    bytes = plan::packPlan(toCuda(std::move(made), directory));
    options.text = directory + "/text";
    options.textAsBytes = true;
    options.planHash = 1;
    options.executor.timeLimit = std::chrono::seconds(20);
    writeFile(options.text, std::vector<uint8_t>(4000, 'a'));
  }
  ~KeptEngines() override {
    unsetenv("PLAIT_FAKE_ATTENTION");
    unsetenv("PLAIT_FAKE_CUDNN");
  }

  std::string run() const { return directory + "/run"; }
  std::string kept() const {
    auto text = readFile(run() + "/algorithms.txt");
    return {text.begin(), text.end()};
  }
  /// The weights after step `steps` of a run that goes on from its directory.
  std::vector<uint8_t> start(const char *times, uint64_t steps) {
    setenv("PLAIT_FAKE_ATTENTION", times, 1);
    options.checkpoint.directory = options.resume = run();
    options.steps = steps;
    options.save = directory + "/saved";
    Status status = train(*fb::GetPlan(bytes.data()), options);
    EXPECT_TRUE(status.ok()) << status.message();
    return readFile(options.save + "/model.safetensors");
  }
  std::vector<uint8_t> startAnew(const char *times, uint64_t steps) {
    std::filesystem::remove_all(run());
    return start(times, steps);
  }
};

/// 1. What rank 0 has found counts, also on a GPU that finds another fast.
/// 2. A later start takes what the first has kept.
/// 3. Another version of the library chooses anew.
TEST_F(KeptEngines, AllRanksAndStartsTakeWhatOneHasMeasured) {
  // 1.
  auto whole = startAnew("5 3r", 4);
  EXPECT_TRUE(has(kept(), "and fake cuDNN 1 on ")) << kept();
  EXPECT_TRUE(has(kept(), "attention Forward")) << kept();
  EXPECT_TRUE(has(kept(), " = engine 1\n")) << kept();
  EXPECT_EQ(startAnew("5 3r|5 9r", 4), whole);
  EXPECT_NE(startAnew("5 9r|5 3r", 4), whole);
  // 2.
  startAnew("5 3r", 2);
  EXPECT_EQ(start("5 9r", 4), whole);
  // 3.
  startAnew("5 3r", 2);
  setenv("PLAIT_FAKE_CUDNN", "2", 1);
  start("5 9r", 4);
  EXPECT_TRUE(has(kept(), "and fake cuDNN 2 on ")) << kept();
  EXPECT_FALSE(has(kept(), " = engine 1\n")) << kept();
}

/// Without checkpoints there is nothing to keep them, and a first choice has
/// the same bits in every start.
TEST_F(KeptEngines, TheFirstCountsWithoutCheckpoints) {
  auto expected = startAnew("5", 3);
  setenv("PLAIT_FAKE_ATTENTION", "5 3r", 1);
  options.checkpoint.directory = options.resume = "";
  Status status = train(*fb::GetPlan(bytes.data()), options);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(readFile(options.save + "/model.safetensors"), expected);
}

struct DeterministicEngines : KeptEngines {
  DeterministicEngines() : KeptEngines(/*deterministic=*/true) {}
};
TEST_F(DeterministicEngines, TakeTheFirst) {
  auto expected = startAnew("5", 3);
  EXPECT_EQ(startAnew("5 3r", 3), expected);
  EXPECT_FALSE(std::filesystem::exists(run() + "/algorithms.txt"));
}
#endif

} // namespace
