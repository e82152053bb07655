//===- CublasGemmsTest.cpp - GEMMs on a GPU -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CUDA/CublasLt.h"
#include "CUDA/CudaBackend.h"
#include "GemmCases.h"
#include "TestPlan.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

/// One rank's device, or the test is skipped.
class CublasGemmsTest : public ::testing::Test {
protected:
  static constexpr uint64_t operandBytes = 1 << 20, workspaceBytes = 8 << 20;
  static constexpr size_t elements = 20000;

  void SetUp() override {
#ifdef PLAIT_REAL_CUBLASLT
    if (std::filesystem::exists(PLAIT_REAL_CUBLASLT))
      setenv("PLAIT_REAL_CUBLASLT", PLAIT_REAL_CUBLASLT, 1);
#endif
    plan = packWorkspacePlan(5 * operandBytes, workspaceBytes);
    ExecutorOptions options;
    options.devices = 1;
    auto made = createCudaThreadBackend(*fb::GetPlan(plan.data()), {}, options);
    if (!made.ok() && made.status().message().starts_with("this plan is for "))
      GTEST_SKIP() << made.status().message();
    ASSERT_TRUE(made.ok()) << made.status().message();
    backend = std::move(*made);
    ASSERT_TRUE(device().attachThread().ok());
  }

  void TearDown() override { unsetenv("PLAIT_REAL_CUBLASLT"); }

  Device &device() { return *backend.parts.front().device; }

  /// The operands lie one after the other in the arena, the bias where its
  /// part begins and as many bytes on as its address in the step.
  Status run(const fb::GemmStep &step, const GemmMemory &memory, bool add) {
    uint64_t bias =
        3 * operandBytes + (step.bias() ? step.bias()->offset() : 0);
    const std::pair<uint64_t, std::span<std::byte>> parts[] = {
        {0, memory.a},
        {operandBytes, memory.b},
        {2 * operandBytes, memory.c},
        {bias, memory.bias},
        {4 * operandBytes, memory.geluInput}};
    for (auto [place, bytes] : parts)
      PLAIT_RETURN_IF_ERROR(device().write(place, bytes));
    auto prepared = device().prepareGemm(step);
    if (!prepared.ok())
      return prepared.status();
    std::byte *arena = device().arena();
    GemmOperands operands = {arena, arena + operandBytes,
                             arena + 2 * operandBytes};
    if (step.bias())
      operands.bias = arena + bias;
    if (step.gelu_input())
      operands.geluInput = arena + 4 * operandBytes;
    PLAIT_RETURN_IF_ERROR(device().gemm(*prepared, operands, add));
    for (auto [place, bytes] : parts)
      PLAIT_RETURN_IF_ERROR(device().read(place, bytes));
    return Status::success();
  }

  Multiply multiplier() {
    return [this](auto &&...operands) { return run(operands...); };
  }

  std::vector<uint8_t> plan;
  Backend backend;
};

/// The real library refuses values of another size than it expects; all tests
/// here would fail if the runtime gave it one.
TEST_F(CublasGemmsTest, DescriptorsAreHeldToTheLibrary) {
  if (!std::getenv("PLAIT_REAL_CUBLASLT"))
    GTEST_SKIP() << "there is no cuBLASLt";
  auto library = CublasLt::load();
  ASSERT_TRUE(library.ok()) << library.status().message();
  cublasLtMatrixLayout_t layout = nullptr;
  ASSERT_EQ(
      (*library)->cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, 8, 8, 8),
      CUBLAS_STATUS_SUCCESS);
  int64_t batch = 1;
  for (size_t bytes : {1, 2, 4, 8})
    EXPECT_EQ((*library)->cublasLtMatrixLayoutSetAttribute(
                  layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, bytes),
              bytes == 4 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE)
        << bytes;
  (*library)->cublasLtMatrixLayoutDestroy(layout);
}

TEST_F(CublasGemmsTest, Floats) {
  forEachLayout({{40, 56, 24}}, {8}, [&](const fb::GemmStepT &shape) {
    expectGemm(shape, multiplier(), elements);
  });
}

TEST_F(CublasGemmsTest, Halves) {
  forEachLayout({{40, 56, 24}}, {8}, [&](const fb::GemmStepT &shape) {
    expectHalfGemms(shape, multiplier(), elements);
  });
}

/// What is computed in parts, since cuBLASLt is slow with such sizes. The sum
/// in f32, since one in bf16 is rounded once more.
TEST_F(CublasGemmsTest, OddSizes) {
  fb::GemmStepT columns = makeShape(3, 2051, 4, false, true, 0);
  columns.b_col = columns.b_row == 1 ? 8 : columns.b_col;
  columns.a_row = 8, columns.c_row = 2056;
  columns.dtype = columns.c_dtype = fb::DType::BF16;
  expectGemm(columns, multiplier(), elements);
  fb::GemmStepT terms = makeShape(4, 8, 2051, false, false, 0);
  terms.a_row = 2056;
  terms.dtype = fb::DType::BF16;
  expectGemm(terms, multiplier(), elements);
}

/// Two batch dimensions, of which one is cuBLASLt's; the places of the others
/// are counted in bytes of each operand's type.
TEST_F(CublasGemmsTest, BatchesOfHalves) {
  fb::GemmStepT shape = makeShape(8, 16, 8, false, true, 8);
  shape.batch = {3, 2};
  shape.a_batch = {256, 128};
  shape.b_batch = {512, 0};
  shape.c_batch = {400, 200};
  expectHalfGemms(shape, multiplier(), elements);
}

TEST_F(CublasGemmsTest, Epilogues) {
  forEachLayout({{40, 56, 24}}, {8}, [&](const fb::GemmStepT &shape) {
    expectEpilogues(shape, multiplier());
  });
}

/// Without an algorithm: what the library lacks, the runtime does.
TEST_F(CublasGemmsTest, EpiloguesAfterTheGemm) {
  setenv("PLAIT_FAKE_NO_EPILOGUES", "1", 1);
  expectEpilogues(makeShape(40, 56, 24, false, true, 8), multiplier());
  // 300 rows: more elements than a grid has threads.
  expectEpilogues(makeShape(300, 56, 24, false, false, 8), multiplier());
  unsetenv("PLAIT_FAKE_NO_EPILOGUES");
}

/// Rows that are no multiple of 8 elements, and a bias in the middle of a
/// vector, as a pack of parameters may have it.
TEST_F(CublasGemmsTest, UnalignedEpilogues) {
  expectEpilogues(makeShape(40, 51, 24, false, true, 0), multiplier());
  fb::GemmStepT shape = makeShape(40, 56, 24, false, true, 8);
  for (uint64_t offset : {4, 8, 16}) {
    shape.bias = std::make_unique<fb::Ref>(offset, -1);
    expectEpilogue(shape, fb::Epilogue::BiasGelu, true, multiplier());
  }
}

} // namespace
