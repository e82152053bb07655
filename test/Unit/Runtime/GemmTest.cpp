//===- GemmTest.cpp - GEMMs against a plain loop --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CPU/Gemm.h"

#include "CPU/Team.h"
#include "GemmCases.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

Multiply multiplyBy(GemmLibrary &library) {
  return [&](const fb::GemmStep &step, const GemmMemory &memory, bool add) {
    auto prepared = library.prepare(step);
    if (!prepared.ok())
      return prepared.status();
    GemmOperands operands = {memory.a.data(), memory.b.data(), memory.c.data(),
                             memory.bias.data(), memory.geluInput.data()};
    return library.run(*prepared, operands, add);
  };
}

const std::vector<std::array<int64_t, 3>> manySizes = {
    {1, 1, 1}, {1, 7, 5}, {5, 1, 7}, {7, 5, 1}, {33, 65, 17}};

/// Grouped queries: two heads share one B.
fb::GemmStepT makeGroupedShape() {
  fb::GemmStepT shape = makeShape(4, 6, 5, false, true, 0);
  shape.batch = {3, 2};
  shape.a_batch = {40, 20};
  shape.b_batch = {30, 0};
  shape.c_batch = {48, 24};
  return shape;
}

class GemmTest : public ::testing::TestWithParam<unsigned> {
protected:
  void SetUp() override { setTeamSize(GetParam()); }
  void TearDown() override { setTeamSize(1); }
  GemmLibrary library{GetParam()};
  Multiply run = multiplyBy(library);
};

TEST_P(GemmTest, AllLayouts) {
  forEachLayout(manySizes, {0, 5},
                [&](const fb::GemmStepT &shape) { expectGemm(shape, run); });
}

TEST_P(GemmTest, Attention) {
  // [batch, sequence, head, width], as the projections leave it: both kinds of
  // GEMMs of attention and of its gradient.
  constexpr int64_t batch = 2, length = 9, heads = 3, width = 8;
  std::vector<int64_t> tokens = {length * heads * width, width};
  std::vector<int64_t> scores = {heads * length * length, length * length};
  fb::GemmStepT shape;
  shape.batch = {batch, heads};
  shape.m = length, shape.n = length, shape.k = width;
  shape.a_batch = shape.b_batch = tokens;
  shape.c_batch = scores;
  shape.a_row = heads * width, shape.a_col = 1;
  shape.b_row = 1, shape.b_col = heads * width;
  shape.c_row = length;
  expectGemm(shape, run);
  for (bool transposed : {false, true}) {
    shape.m = length, shape.n = width, shape.k = length;
    shape.a_batch = scores;
    shape.b_batch = shape.c_batch = tokens;
    shape.a_row = transposed ? 1 : length;
    shape.a_col = transposed ? length : 1;
    shape.b_row = heads * width, shape.b_col = 1;
    shape.c_row = heads * width;
    expectGemm(shape, run);
  }
}

TEST_P(GemmTest, RepeatedOperand) { expectGemm(makeGroupedShape(), run); }

TEST_P(GemmTest, Epilogues) {
  // Rows as long as a block of the pass over C, and longer; slack stays.
  forEachLayout(
      {{1, 1, 1}, {5, 1, 7}, {37, 24, 17}, {3, 512, 9}, {3, 1030, 9}}, {0, 5},
      [&](const fb::GemmStepT &shape) { expectEpilogues(shape, run); });
}

TEST_P(GemmTest, EpiloguesDoNotShare) {
  fb::GemmStepT shape = makeShape(4, 6, 5, false, true, 0);
  expectGemm(shape, run);
  for (bool keeps : {true, false})
    expectEpilogue(shape, fb::Epilogue::Gelu, keeps, run);
  expectEpilogue(shape, fb::Epilogue::Bias, false, run);
  expectGemm(shape, run);
}

TEST_P(GemmTest, EqualShapesShare) {
  fb::GemmStepT shape = makeShape(4, 6, 5, false, true, 0);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::GemmStep::Pack(builder, &shape));
  const auto &step =
      *flatbuffers::GetRoot<fb::GemmStep>(builder.GetBufferPointer());
  EXPECT_EQ(*library.prepare(step), *library.prepare(step));
}

INSTANTIATE_TEST_SUITE_P(Threads, GemmTest, ::testing::Values(1u, 2u));

TEST(HalfPrimitivesTest, FollowTheProcessor) {
  for (bool isIntel : {false, true}) {
    auto choose = [&](unsigned isa) {
      return chooseHalfPrimitives(isa, isIntel);
    };
    EXPECT_EQ(choose(dnnl_cpu_isa_avx2), HalfPrimitives::None);
    EXPECT_EQ(choose(dnnl_cpu_isa_avx512_core_vnni), HalfPrimitives::None);
    EXPECT_EQ(choose(dnnl_cpu_isa_avx512_core_amx), HalfPrimitives::All);
  }
  EXPECT_EQ(chooseHalfPrimitives(dnnl_cpu_isa_avx512_core_bf16, false),
            HalfPrimitives::All);
  EXPECT_EQ(chooseHalfPrimitives(dnnl_cpu_isa_avx512_core_bf16, true),
            HalfPrimitives::Batches);
}

/// GEMMs of halves, into floats and halves, by the processor's instructions
/// and without them.
class HalfGemmTest
    : public ::testing::TestWithParam<std::tuple<unsigned, HalfPrimitives>> {
protected:
  void SetUp() override {
    // Where there are no instructions, oneDNN's code for AVX-512 emulates them.
    if (std::get<1>(GetParam()) != HalfPrimitives::None && !hasEmulation())
      GTEST_SKIP() << "oneDNN multiplies no bf16 on this processor";
    setTeamSize(std::get<0>(GetParam()));
  }
  void TearDown() override { setTeamSize(1); }

  static bool hasEmulation() {
    constexpr unsigned needed = dnnl_cpu_isa_avx512_core;
    return (dnnl_get_effective_cpu_isa() & needed) == needed;
  }

  GemmLibrary library{std::get<0>(GetParam()), std::get<1>(GetParam())};
  Multiply run = multiplyBy(library);
};

TEST_P(HalfGemmTest, AllLayouts) {
  forEachLayout(manySizes, {0, 5}, [&](const fb::GemmStepT &shape) {
    expectHalfGemms(shape, run);
  });
}

TEST_P(HalfGemmTest, LongerThanABlock) {
  for (bool transposed : {false, true}) {
    expectHalfGemms(makeShape(1030, 3, 5, transposed, transposed, 1), run);
    expectHalfGemms(makeShape(3, 1030, 5, transposed, transposed, 1), run);
    expectHalfGemms(makeShape(3, 5, 1030, transposed, transposed, 1), run);
  }
}

TEST_P(HalfGemmTest, Batches) {
  fb::GemmStepT shape = makeGroupedShape();
  expectHalfGemms(shape, run);
  // Heads as projections leave them.
  shape.a_row = 10, shape.a_batch = {40, 5};
  expectHalfGemms(shape, run);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, HalfGemmTest,
    ::testing::Combine(::testing::Values(1u, 2u),
                       ::testing::Values(HalfPrimitives::All,
                                         HalfPrimitives::Batches,
                                         HalfPrimitives::None)));

/// f32 GEMMs of which operands are copied because of how far their rows lie
/// apart.
class FloatGemmTest : public ::testing::TestWithParam<unsigned> {
protected:
  void SetUp() override { setTeamSize(GetParam()); }
  void TearDown() override { setTeamSize(1); }

  /// Rows of B, or of the transposed A, 4 KiB apart; of more than one block.
  static std::vector<fb::GemmStepT> makeCopied() {
    std::vector<fb::GemmStepT> shapes;
    shapes.push_back(makeShape(70, 900, 40, false, false, 124));
    shapes.push_back(makeShape(1000, 40, 30, true, false, 24));
    shapes.push_back(makeShape(1000, 40, 30, true, false, 24));
    shapes.back().b_row = 1024;
    // Heads side by side, and two that share one B.
    fb::GemmStepT heads = makeShape(64, 32, 40, false, false, 0);
    heads.batch = {3, 2};
    heads.a_batch = {6000, 3000};
    heads.b_row = 1024, heads.b_batch = {32, 0};
    heads.c_row = 192, heads.c_batch = {64, 32};
    shapes.push_back(heads);
    return shapes;
  }

  static std::vector<float> multiplyBy(FloatGemm &gemms,
                                       const fb::GemmStepT &shape) {
    std::vector<float> a = valuesOf(100000, 1), b = valuesOf(100000, 2),
                       c = valuesOf(100000, 3);
    gemms.prepare(shape);
    EXPECT_TRUE(gemms.run(shape, a.data(), b.data(), c.data(), true).ok());
    return c;
  }

  FloatGemm copying{GetParam(), true}, plain{GetParam(), false};
  Multiply run = [this](const fb::GemmStep &step, const GemmMemory &memory,
                        bool add) {
    fb::GemmStepT shape;
    step.UnPackTo(&shape);
    copying.prepare(shape);
    auto floats = [](std::span<std::byte> bytes) {
      return reinterpret_cast<float *>(bytes.data());
    };
    return copying.run(shape, floats(memory.a), floats(memory.b),
                       floats(memory.c), add);
  };
};

TEST_P(FloatGemmTest, CopiesWhatLiesBadly) {
  for (const fb::GemmStepT &shape : makeCopied()) {
    EXPECT_TRUE(copying.copies(shape));
    EXPECT_FALSE(plain.copies(shape));
  }
}

TEST_P(FloatGemmTest, CopiesNothingElse) {
  // An odd number of lines, no whole number of them, and B transposed.
  EXPECT_FALSE(copying.copies(makeShape(70, 900, 40, false, false, 140)));
  EXPECT_FALSE(copying.copies(makeShape(70, 900, 40, false, false, 125)));
  EXPECT_FALSE(copying.copies(makeShape(70, 900, 1024, false, true, 0)));
  // A batch of which no stride is 1.
  fb::GemmStepT heads = makeCopied().back();
  heads.a_row = 80, heads.a_col = 2;
  EXPECT_FALSE(copying.copies(heads));
  // Too few uses, and what oneDNN packs.
  EXPECT_FALSE(copying.copies(makeShape(16, 1024, 1024, false, false, 0)));
  EXPECT_FALSE(copying.copies(makeShape(1024, 1024, 1024, false, false, 0)));
}

TEST_P(FloatGemmTest, AgainstALoop) {
  for (const fb::GemmStepT &shape : makeCopied())
    expectGemm(shape, run);
}

TEST_P(FloatGemmTest, LongerThanACopy) {
  fb::GemmStepT shape = makeShape(40, 288, 2100, false, false, 0);
  shape.b_row = 1024;
  EXPECT_TRUE(copying.copies(shape));
  expectGemm(shape, run, 2100 * 1024);
}

/// Copies of B change no bits. With those of A, oneDNN adds up the rows that
/// are left over in another order.
TEST_P(FloatGemmTest, BitsStay) {
  if (!FloatGemm::machineReadsInPlace())
    GTEST_SKIP() << "operands are not copied on this processor";
  fb::GemmStepT shape = makeShape(70, 900, 40, false, false, 124);
  EXPECT_EQ(multiplyBy(copying, shape), multiplyBy(plain, shape));
}

INSTANTIATE_TEST_SUITE_P(Threads, FloatGemmTest, ::testing::Values(1u, 2u, 3u));

} // namespace
