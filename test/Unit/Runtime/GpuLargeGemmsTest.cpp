//===- GpuLargeGemmsTest.cpp - GEMMs beyond 2^31 elements -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The logits of GPT-2 with 64 sequences of 1024 tokens have 3.3e9 elements.
// Needs a GPU with 8 GB to spare.
//
//===----------------------------------------------------------------------===//

#include "CUDA/CudaBackend.h"
#include "TestPlan.h"
#include "plait/Support/BFloat16.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

constexpr int64_t tokens = 65536, vocabulary = 50257, width = 64;
constexpr uint64_t inputs = 0, weights = 16 << 20, logits = 32 << 20;
constexpr uint64_t workspace =
    (logits + 2 * tokens * vocabulary + 255) / 256 * 256;
constexpr uint64_t workspaceBytes = 32 << 20;

// Sums of one term, and exact in bf16.
float inputOf(int64_t token) { return float(1 + token % 13); }
float weightOf(int64_t word) { return float(1 + word % 11); }

class LargeGemmsTest : public ::testing::Test {
protected:
  void SetUp() override {
    plan = packWorkspacePlan(workspace, workspaceBytes);
    ExecutorOptions options;
    options.devices = 1;
    auto made = createCudaThreadBackend(*fb::GetPlan(plan.data()), {}, options);
    if (!made.ok())
      GTEST_SKIP() << made.status().message();
    backend = std::move(*made);
    ASSERT_TRUE(device().attachThread().ok());
    write(inputs, tokens, inputOf);
    write(weights, vocabulary, weightOf);
  }

  Device &device() { return *backend.parts.front().device; }

  /// Rows of `width` numbers, of which the first is not 0.
  void write(uint64_t place, int64_t rows, float (*value)(int64_t)) {
    std::vector<BFloat16> numbers(rows * width, BFloat16(0));
    for (int64_t row = 0; row < rows; ++row)
      numbers[row * width] = BFloat16(value(row));
    Status status = device().write(place, std::as_bytes(std::span(numbers)));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  std::vector<BFloat16> read(uint64_t place, int64_t count) {
    std::vector<BFloat16> numbers(count);
    Status status =
        device().read(place, std::as_writable_bytes(std::span(numbers)));
    EXPECT_TRUE(status.ok()) << status.message();
    return numbers;
  }

  void multiply(fb::GemmStepT step, uint64_t a, uint64_t b, uint64_t c) {
    step.dtype = step.c_dtype = fb::DType::BF16;
    step.a = std::make_unique<fb::Ref>(a, -1);
    step.b = std::make_unique<fb::Ref>(b, -1);
    step.c = std::make_unique<fb::Ref>(c, -1);
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(fb::GemmStep::Pack(builder, &step));
    auto number = device().prepareGemm(
        *flatbuffers::GetRoot<fb::GemmStep>(builder.GetBufferPointer()));
    ASSERT_TRUE(number.ok()) << number.status().message();
    GemmOperands operands = {};
    std::byte *arena = device().arena();
    operands.a = arena + a, operands.b = arena + b, operands.c = arena + c;
    Status status = device().gemm(*number, operands, /*add=*/false);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  std::vector<uint8_t> plan;
  Backend backend;
};

TEST_F(LargeGemmsTest, LogitsAndTheirGradientAreWhole) {
  fb::GemmStepT forward; // logits = inputs weights^T
  forward.m = tokens, forward.n = vocabulary, forward.k = width;
  forward.a_row = width, forward.a_col = 1;
  forward.b_row = 1, forward.b_col = width;
  forward.c_row = vocabulary;
  multiply(forward, inputs, weights, logits);
  // The row in which element 2^31 is lies between the others.
  const int64_t rows[] = {0, 1, 42729, 42730, tokens - 1};
  for (int64_t row : rows) {
    auto found = read(logits + 2 * row * vocabulary, vocabulary);
    for (int64_t word = 0; word < vocabulary; ++word)
      ASSERT_EQ(float(found[word]), inputOf(row) * weightOf(word))
          << row << ", " << word;
  }

  fb::GemmStepT backward; // inputs = logits weights
  backward.m = tokens, backward.n = width, backward.k = vocabulary;
  backward.a_row = vocabulary, backward.a_col = 1;
  backward.b_row = width, backward.b_col = 1;
  backward.c_row = width;
  multiply(backward, logits, weights, inputs);
  double squares = 0;
  for (int64_t word = 0; word < vocabulary; ++word)
    squares += weightOf(word) * weightOf(word);
  for (int64_t row : rows) {
    double expected = inputOf(row) * squares;
    // Rounded to 8 bits once; the sum in f32 is off by less.
    EXPECT_NEAR(float(read(inputs + 2 * row * width, 1)[0]), expected,
                0x1p-7 * expected)
        << row;
  }
}

} // namespace
