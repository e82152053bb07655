//===- AttentionTest.cpp - Attention by blocks against the formulas -------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reference writes out all scores, in double. Its gradients are themselves
// held against central differences of its own forward pass.
//
//===----------------------------------------------------------------------===//

#include "CPU/Attention.h"
#include "AttentionReference.h"
#include "CPU/RowMath.h"
#include "CPU/Team.h"
#include "plait/Plan/Attention.h"

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

/// The bytes of numbers in memory, as f32 or bf16.
struct Memory {
  std::vector<float> wide;
  std::vector<BFloat16> narrow;
  bool isNarrow;

  Memory(const Numbers &numbers, fb::DType dtype)
      : wide(numbers.begin(), numbers.end()),
        isNarrow(dtype == fb::DType::BF16) {
    narrow.resize(wide.size());
    runtime::narrow(wide.data(), narrow.data(), int64_t(wide.size()));
  }
  std::byte *data() {
    return isNarrow ? reinterpret_cast<std::byte *>(narrow.data())
                    : reinterpret_cast<std::byte *>(wide.data());
  }
  Numbers numbers() const {
    return isNarrow ? Numbers(narrow.begin(), narrow.end())
                    : Numbers(wide.begin(), wide.end());
  }
};

Status compute(AttentionLibrary &library, fb::AttentionStepT step,
               AttentionBegin begin, const AttentionOperands &operands) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::AttentionStep::Pack(builder, &step));
  const auto &packed =
      *flatbuffers::GetRoot<fb::AttentionStep>(builder.GetBufferPointer());
  PLAIT_RETURN_IF_ERROR(plan::checkAttention(plan::RankGrid({1}), packed));
  return library.run(library.prepare(packed, begin), operands);
}

/// Runs both passes of `shape` on `t` in place of the reference. Results begin
/// as what nobody wants to see.
Tensors run(const Shape &shape, const Tensors &t, fb::DType dtype,
            unsigned threads) {
  AttentionLibrary library(threads);
  auto nothing = [](const Numbers &like) {
    return Numbers(like.size(), -12345);
  };
  Memory q(t.q, dtype), k(t.k, dtype), v(t.v, dtype), o(nothing(t.q), dtype),
      gradient(t.gradient, dtype), dq(nothing(t.q), dtype),
      dk(nothing(t.k), dtype), dv(nothing(t.v), dtype),
      stats(Numbers(shape.batch * shape.heads * shape.queries, -12345),
            fb::DType::F32);
  AttentionOperands operands = {q.data(),  k.data(),     v.data(),
                                o.data(),  stats.data(), gradient.data(),
                                dq.data(), dk.data(),    dv.data()};
  std::vector<uint32_t> keys;
  for (int64_t sequence = 0; sequence < shape.batch; ++sequence)
    keys.push_back(keyOf(sequence));
  operands.dropoutKeys = reinterpret_cast<const std::byte *>(keys.data());
  std::vector<int32_t> starts;
  for (int64_t sequence = 0; sequence < shape.batch; ++sequence)
    for (int64_t query = 0; query < shape.queries; ++query)
      starts.push_back(
          int32_t(shape.startOf(sequence, shape.positionOf(query))));
  if (shape.document)
    operands.starts = reinterpret_cast<const std::byte *>(starts.data());
  std::vector<float> sinks;
  for (int64_t head = 0; head < shape.heads; ++head)
    sinks.push_back(float(sinkOf(head)));
  for (auto kind : {fb::AttentionKind::Forward, fb::AttentionKind::Backward}) {
    if (shape.sinks && kind == fb::AttentionKind::Forward)
      operands.sinks = reinterpret_cast<const std::byte *>(sinks.data());
    else
      operands.sinks = nullptr;
    Status status = compute(library, makeStep(shape, dtype, kind),
                            {shape.firstQuery, shape.firstGroup}, operands);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return {q.numbers(),  k.numbers(),     v.numbers(),
          o.numbers(),  stats.numbers(), gradient.numbers(),
          dq.numbers(), dk.numbers(),    dv.numbers()};
}

const Shape shapes[] = {
    {1, 1, 1, 1, 1, 8},
    {2, 4, 2, 77, 77, 40},
    {1, 3, 1, 130, 130, 64},
    {2, 2, 2, 64, 64, 128},
    {1, 2, 1, 65, 65, 16, /*window=*/1},
    {2, 2, 1, 150, 150, 24, /*window=*/20},
    {1, 2, 2, 9, 33, 16},
    {1, 2, 2, 70, 73, 16},
    {1, 2, 1, 20, 70, 8, 0, /*causal=*/false},
    {2, 4, 2, 77, 77, 40, 0, false},
    {2, 2, 1, 150, 150, 24, /*window=*/20, false},
    {1, 2, 2, 65, 65, 16, 1, false},
    {2, 4, 2, 77, 77, 40, 0, false, 0, 0.3},
    {1, 2, 1, 70, 210, 16, 90, false, /*firstQuery=*/70},
    {2, 2, 2, 80, 200, 16, 30, false, 80, 0.3, 2, 0, 10},
    // The second and the last rank of three.
    {2, 4, 2, 70, 210, 16, 0, true, /*firstQuery=*/70},
    {1, 2, 1, 70, 210, 16, 90, true, /*firstQuery=*/140},
    {2, 4, 2, 77, 77, 40, 0, true, 0, /*dropout=*/0.1},
    {2, 2, 1, 150, 150, 24, 20, true, 0, 0.5},
    {1, 2, 2, 9, 9, 16, 0, true, 0, 1e-12},
    // One rank of a mesh of three by two.
    {2, 4, 2, 70, 210, 16, 0, true, 70, 0.3,
     /*firstGroup=*/2},
    {2, 4, 2, 77, 77, 40, 0, true, 0, 0, 0, /*document=*/5},
    {2, 2, 1, 200, 200, 24, 0, true, 0, 0, 0, 90},
    {1, 2, 1, 65, 65, 16, 0, true, 0, 0, 0, 1},
    {2, 2, 1, 150, 150, 24, 20, true, 0, 0, 0, 30},
    {2, 4, 2, 70, 210, 16, 0, true, 70, 0.3, 2, 60},
    // In zig-zag order: two chunks, four, one and a part of
    // another, all.
    {2, 4, 2, 70, 210, 16, 0, true, 70, 0, 0, 0, 6},
    {1, 2, 1, 80, 200, 16, 30, true, 80, 0.3, 2, 60, 10},
    {1, 2, 2, 60, 180, 16, 0, true, 60, 0, 0, 0, 4},
    {1, 2, 2, 96, 96, 8, 0, true, 0, 0.5, 0, 0, 8},
    // A soft cap, near which scores are or are not, and sinks.
    {2, 4, 2, 77, 77, 40, 0, true, 0, 0, 0, 0, 0, 0.3},
    {2, 2, 1, 150, 150, 24, 20, true, 0, 0.3, 0, 0, 0, 50},
    {2, 6, 2, 77, 77, 40, 0, true, 0, 0, 0, 0, 0, 0, true},
    {2, 6, 2, 70, 210, 16, 30, true, 70, 0.3, 2, 0, 10, 0.8, true}};

class AttentionTest
    : public ::testing::TestWithParam<std::tuple<Shape, unsigned>> {
protected:
  void SetUp() override { setTeamSize(std::get<1>(GetParam())); }
  void TearDown() override { setTeamSize(1); }

  /// The reference on the very numbers that were computed with: those in
  /// memory.
  void compare(fb::DType dtype, double tolerance) {
    auto [shape, threads] = GetParam();
    Tensors found = run(shape, makeTensors(shape), dtype, threads);
    Tensors expected = found;
    Reference reference(shape);
    reference.forward(expected);
    // Statistics are f32 in either case.
    expectNear(found.stats, expected.stats, 1e-5, "stats");
    expectNear(found.o, expected.o, tolerance, "o");
    expected.o = found.o;
    reference.backward(expected);
    expectNear(found.dq, expected.dq, tolerance, "dq");
    expectNear(found.dk, expected.dk, tolerance, "dk");
    expectNear(found.dv, expected.dv, tolerance, "dv");
  }
};

// Some hundred f32 products are added, each rounded by 6e-8.
TEST_P(AttentionTest, F32) { compare(fb::DType::F32, 1e-5); }

// Half of the last of bf16's eight digits, once.
TEST_P(AttentionTest, BF16) { compare(fb::DType::BF16, 1.0 / 256); }

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(shapes),
                                            ::testing::Values(1u, 2u)));

TEST(AttentionReference, AgreesWithCentralDifferences) {
  for (const Shape &shape :
       {Shape{1, 4, 2, 5, 5, 3},
        {2, 1, 1, 6, 6, 2, 2},
        {1, 4, 2, 5, 5, 3, 0, true, 0, 0, 0, 0, 0, 0.5, true}}) {
    Tensors t = makeTensors(shape);
    Reference reference(shape);
    auto loss = [&](const Tensors &inputs) {
      Tensors copy = inputs;
      reference.forward(copy);
      double sum = 0;
      for (size_t i = 0; i < copy.o.size(); ++i)
        sum += copy.o[i] * copy.gradient[i];
      return sum;
    };
    reference.forward(t);
    reference.backward(t);
    for (auto [input, gradient] : {std::pair(&Tensors::q, &Tensors::dq),
                                   {&Tensors::k, &Tensors::dk},
                                   {&Tensors::v, &Tensors::dv}})
      for (size_t i = 0; i < (t.*input).size(); ++i) {
        constexpr double step = 1e-5; // leaves 1e-10 of error
        Tensors above = t, below = t;
        (above.*input)[i] += step;
        (below.*input)[i] -= step;
        double slope = (loss(above) - loss(below)) / (2 * step);
        ASSERT_NEAR((t.*gradient)[i], slope, 1e-8);
      }
  }
}

/// Starts that no data has, behind the query or in no order: every query sees
/// itself, and none a key before its start.
TEST(AttentionStarts, MayBeAnything) {
  constexpr int64_t queries = 6;
  Tensors t = makeTensors({1, 1, 1, queries, queries, 8});
  auto compute = [&](std::vector<int32_t> starts) {
    AttentionLibrary library(1);
    std::vector<float> q(t.q.begin(), t.q.end()), k(t.k.begin(), t.k.end()),
        v(t.v.begin(), t.v.end()), o(q.size()), stats(queries);
    auto bytes = [](auto &values) {
      return reinterpret_cast<std::byte *>(values.data());
    };
    AttentionOperands operands = {bytes(q), bytes(k), bytes(v), bytes(o),
                                  bytes(stats)};
    operands.starts = bytes(starts);
    fb::AttentionStepT step =
        makeStep({1, 1, 1, queries, queries, 8, 0, true, 0, 0, 0, 1},
                 fb::DType::F32, fb::AttentionKind::Forward);
    EXPECT_TRUE(::compute(library, step, {}, operands).ok());
    return o;
  };
  EXPECT_EQ(compute({0, 1 << 30, -5, 3, 1, INT32_MIN}),
            compute({0, 1, 0, 3, 1, 0}));
}

/// A step that fails does not let those after it fail.
TEST(AttentionLibrary, ForgetsFailures) {
  Shape shape = {1, 1, 1, 4, 4, 8};
  Tensors t = makeTensors(shape);
  Memory q(t.q, fb::DType::F32), k(t.k, fb::DType::F32), v(t.v, fb::DType::F32),
      o(t.q, fb::DType::F32), stats(Numbers(4), fb::DType::F32);
  AttentionOperands operands = {q.data(), k.data(), v.data(), o.data(),
                                stats.data()};
  AttentionLibrary library(1);
  fb::AttentionStepT good =
      makeStep(shape, fb::DType::F32, fb::AttentionKind::Forward);
  fb::AttentionStepT bad = good;
  bad.q_strides[1] = 1; // rows that overlap, which no check lets through
  auto prepare = [&](const fb::AttentionStepT &step) {
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(fb::AttentionStep::Pack(builder, &step));
    return library.prepare(
        *flatbuffers::GetRoot<fb::AttentionStep>(builder.GetBufferPointer()),
        {});
  };
  uint32_t first = prepare(bad), second = prepare(good);
  EXPECT_EQ(library.run(first, operands).message().find("oneDNN failed"), 0u);
  EXPECT_TRUE(library.run(second, operands).ok());
}

TEST(AttentionThreads, DoNotChangeTheBits) {
  Shape shape = {1, 4, 2, 100, 100, 32};
  Tensors t = makeTensors(shape);
  setTeamSize(1);
  Tensors one = run(shape, t, fb::DType::F32, 1);
  setTeamSize(2);
  Tensors two = run(shape, t, fb::DType::F32, 2);
  setTeamSize(1);
  EXPECT_EQ(one.o, two.o);
  EXPECT_EQ(one.dq, two.dq);
  EXPECT_EQ(one.dk, two.dk);
  EXPECT_EQ(one.dv, two.dv);
}

TEST(RowMath, SoftCaps) {
  constexpr float cap = 3;
  std::vector<float> row;
  for (float x = -40; x <= 40; x += 0.0037f)
    row.push_back(x);
  for (float x = 1e-30f; x < 1; x *= 3)
    row.push_back(x);
  row.push_back(0);
  std::vector<float> capped = row, slopes(row.size());
  runtime::softCap(capped.data(), int64_t(row.size()), cap, slopes.data());
  for (size_t i = 0; i < row.size(); ++i) {
    double bent = std::tanh(double(row[i]) / cap);
    ASSERT_NEAR(capped[i], cap * bent, 4e-7 * std::abs(cap * bent)) << row[i];
    ASSERT_NEAR(slopes[i], 1 - bent * bent, 5e-7) << row[i];
  }
}

TEST(RowMath, Exponentials) {
  std::vector<float> row;
  for (float x = -87; x <= 1; x += 0.013f)
    row.push_back(x);
  std::vector<float> found = row;
  float sum = exponentiate(found.data(), int64_t(found.size()), 0);
  double expected = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    expected += std::exp(double(row[i]));
    // A unit in the last place.
    ASSERT_NEAR(found[i] / std::exp(double(row[i])), 1, 1.2e-7) << row[i];
  }
  EXPECT_NEAR(sum / expected, 1, 1e-6);
  float low = -87.5f;
  exponentiate(&low, 1, 0);
  EXPECT_EQ(low, 0);
}

} // namespace
