//===- AttentionTest.cpp - The checker on attention -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Attention.h"

#include "TestPlan.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::test;

namespace {

/// A sound backward step: 2 sequences of 3 positions, 4 heads over 2, of size
/// 2. All tensors are in the arena, of 4096 bytes.
fb::AttentionStepT makeStep() {
  fb::AttentionStepT step;
  step.kind = fb::AttentionKind::Backward;
  step.batch = 2, step.heads = 4, step.kv_heads = 2;
  step.queries = step.keys = 3, step.head_size = 2;
  step.q_strides = step.out_strides = {24, 8, 2};
  step.k_strides = step.v_strides = {12, 4, 2};
  uint64_t offset = 0;
  for (auto *tensor : {&step.q, &step.k, &step.v, &step.out, &step.stats,
                       &step.d_out, &step.d_q, &step.d_k, &step.d_v})
    *tensor = std::make_unique<fb::Ref>(256 * offset++, -1);
  step.dropout = std::make_unique<fb::AttentionDropoutT>();
  step.dropout->keys = std::make_unique<fb::Ref>(256 * offset, -1);
  step.dropout->probability = 0.5;
  return step;
}

std::string check(fb::AttentionStepT step) {
  fb::PlanT plan = makePlan();
  append(plan.programs[0]->functions[0]->steps).step.Set(std::move(step));
  return findFault(plan);
}

struct Case {
  const char *name;
  void (*damage)(fb::AttentionStepT &);
  const char *message; // a part of it
};

class CheckAttention : public ::testing::TestWithParam<Case> {};

TEST(CheckPlanAttention, AcceptsASoundStep) {
  EXPECT_EQ(check(makeStep()), "");
}

TEST_P(CheckAttention, Refuses) {
  fb::AttentionStepT step = makeStep();
  GetParam().damage(step);
  std::string message = check(std::move(step));
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
}

using A = fb::AttentionStepT;

const Case cases[] = {
    {"Kind", [](A &a) { a.kind = fb::AttentionKind(2); },
     "(AttentionStep): unknown attention 2"},
    {"Type", [](A &a) { a.dtype = fb::DType::I32; }, "has dtype 2"},
    {"Groups", [](A &a) { a.kv_heads = 3; }, "4 heads over 3"},
    {"NoHeads", [](A &a) { a.kv_heads = 0; }, "4 heads over 0"},
    {"Queries", [](A &a) { a.queries = 4; },
     "has 4 queries, more than the 3 keys"},
    {"Overflow", [](A &a) { a.queries = int64_t(1) << 45; }, "has batch 2"},
    {"Window", [](A &a) { a.window = 4; }, "has window 4, allowed are 0 to 3"},
    {"SoftCap", [](A &a) { a.soft_cap = -1; },
     "has soft cap -1, expected a positive number, or 0 for none"},
    {"SoftCapNaN", [](A &a) { a.soft_cap = NAN; }, "has soft cap nan"},
    {"SoftCapInfinite", [](A &a) { a.soft_cap = INFINITY; },
     "has soft cap inf"},
    {"SinksBackward", [](A &a) { a.sinks = std::make_unique<fb::Ref>(0, -1); },
     "has sinks, which a forward step has"},
    {"SinksRange",
     [](A &a) {
       a.kind = fb::AttentionKind::Forward;
       a.sinks = std::make_unique<fb::Ref>(4084, -1);
     },
     "sinks of 16 bytes at 4084 ends beyond the 4096"},
    {"Starts",
     [](A &a) {
       a.causal = false;
       a.starts = std::make_unique<fb::Ref>();
     },
     "has starts of documents, which only causal attention has"},
    {"ChunksOdd", [](A &a) { a.chunks = 1; },
     "has 1 chunks of 3 keys, expected an even number that divides them"},
    {"ChunksNegative", [](A &a) { a.chunks = -2; }, "has -2 chunks of 3 keys"},
    {"ChunksDivide", [](A &a) { a.chunks = 2; }, "has 2 chunks of 3 keys"},
    {"FirstQuery",
     [](A &a) { a.first_query = {fb::RankScalar(0, 1, 1, false)}; },
     "first_query is up to 1, allowed are 0 to 0"},
    {"FirstQueryAxis",
     [](A &a) { a.first_query = {fb::RankScalar(0, 0, 2, false)}; },
     "first_query names axis 2, there are 2"},
    {"FirstQueryOverflow",
     [](A &a) {
       a.first_query = {fb::RankScalar(INT64_MAX, INT64_MAX, 1, false)};
     },
     "first_query adds"},
    {"DropsAll", [](A &a) { a.dropout->probability = 1; },
     "has dropout of probability 1, allowed are 0 to below 1"},
    {"DropsNaN", [](A &a) { a.dropout->probability = NAN; },
     "has dropout of probability nan"},
    {"DropoutKeys", [](A &a) { a.dropout->keys = nullptr; },
     "dropout's keys is missing"},
    {"DropoutKeysRange", [](A &a) { *a.dropout->keys = fb::Ref(4092, -1); },
     "dropout's keys of 8 bytes at 4092 ends beyond the 4096"},
    {"FirstGroup",
     [](A &a) {
       a.dropout->first_group = {fb::RankScalar(0, INT32_MAX, 1, false)};
     },
     "first_group is up to 2147483647, allowed are 0 to 2147483645"},
    {"StrideCount", [](A &a) { a.q_strides.pop_back(); },
     "q has 2 strides, expected those of sequence, position and head"},
    {"Overlap", [](A &a) { a.k_strides[2] = 1; },
     "k has strides 12, 4 and 1 for heads of size 2"},
    {"Rows", [](A &a) { a.v_strides[1] = 1; }, "v has strides 12, 1 and 2"},
    {"Missing", [](A &a) { a.stats = nullptr; }, "stats is missing"},
    {"Range", [](A &a) { a.out_strides[0] = 4096; }, "ends beyond the 4096"},
    {"GradientRange", [](A &a) { *a.d_v = fb::Ref(4096 - 64, -1); },
     "d_v of 96 bytes at 4032 ends beyond the 4096 bytes of the arena"},
    {"Slot", [](A &a) { *a.d_q = fb::Ref(0, 9); }, "d_q is in slot 9"}};

INSTANTIATE_TEST_SUITE_P(Cases, CheckAttention, ::testing::ValuesIn(cases),
                         [](const auto &info) { return info.param.name; });

TEST(GpuAttention, LimitsAreThoseOfTheArchitecture) {
  auto refused = [](fb::DType type, int64_t length, int64_t size, int gpu) {
    Status status = plan::checkGpuAttention(type, length, size, gpu);
    return status.ok() ? "" : status.message();
  };
  EXPECT_EQ(refused(fb::DType::BF16, 77, 128, 80), "");
  EXPECT_EQ(refused(fb::DType::BF16, 77, 136, 80),
            "its heads have size 136, allowed are multiples of 8 up to 128");
  EXPECT_EQ(refused(fb::DType::BF16, 77, 136, 90), "");
  EXPECT_EQ(refused(fb::DType::BF16, 77, 12, 90),
            "its heads have size 12, allowed are multiples of 8 up to 256");
  EXPECT_EQ(refused(fb::DType::BF16, 1, 64, 90),
            "its sequences have one position");
  EXPECT_EQ(refused(fb::DType::F32, 77, 64, 90),
            "its elements are f32, not bf16");
}

TEST(GpuAttention, WorkspaceGrowsWithTheSequence) {
  fb::AttentionStepT step = makeStep();
  auto bytes = [&](int64_t length, int gpu) {
    step.queries = step.keys = length;
    return plan::gpuAttentionWorkspace(step, gpu);
  };
  // dQ and a sum a row, dK and dV of each query head; 64 KiB for the rest.
  uint64_t rest = 65536, heads = 2 * 4;
  EXPECT_EQ(bytes(1024, 90) - rest, heads * 1024 * (8 + 4 + 8));
  EXPECT_EQ(bytes(1024, 80) - rest, heads * 1024 * (16 + 4 + 8));
  step.deterministic = true;
  EXPECT_EQ(bytes(1024, 90) - rest, heads * 1024 * (2048 + 4 + 8));
  EXPECT_EQ(bytes(1024, 100) - rest, heads * 1024 * (8 + 4 + 8));
  step.kind = fb::AttentionKind::Forward;
  EXPECT_EQ(bytes(1024, 80), rest);
}

/// Two calls of half the queries, with copies of their statistics; the second
/// adds gradients of half of the keys at most.
TEST(GpuAttention, ZigzagOrderIsTwoCalls) {
  fb::AttentionStepT step = makeStep();
  step.dtype = fb::DType::BF16;
  step.queries = 1024;
  step.keys = 4096;
  step.chunks = 8;
  uint64_t both = plan::gpuAttentionWorkspace(step, 90);
  // Of the first of two sequences all keys, as gradients lie in memory.
  uint64_t term = (4096 + 2048) * 2 * 2 * 2;
  EXPECT_EQ(plan::attentionTermBytes(step, 2048), term);
  uint64_t stats = step.batch * step.heads * 1024 * 4;
  EXPECT_EQ(plan::attentionStatsBytes(step), stats);
  step.queries = 512;
  step.chunks = 0;
  EXPECT_EQ(both, plan::gpuAttentionWorkspace(step, 90) + 2 * term + stats);
  step.kind = fb::AttentionKind::Forward;
  uint64_t forward = plan::gpuAttentionWorkspace(step, 90);
  step.queries = 1024;
  step.chunks = 8;
  EXPECT_EQ(plan::gpuAttentionWorkspace(step, 90), forward + stats);
}

TEST(GpuAttention, TakesPairsOfChunks) {
  auto refused = [](int64_t queries, int64_t heads, int64_t chunks = 4) {
    Status status = plan::checkGpuChunks({24, chunks}, queries, heads);
    return status.ok() ? "" : status.message();
  };
  EXPECT_EQ(refused(12, 2), "");
  EXPECT_EQ(refused(6, 2),
            "its 6 queries are not a pair of chunks of 6 positions");
  EXPECT_EQ(refused(12, 1), "its chunks of 6 positions have 6 rows of scores, "
                            "allowed are multiples of 4");
  EXPECT_EQ(refused(2, 4, 24), "its chunks have one position");
}

} // namespace
