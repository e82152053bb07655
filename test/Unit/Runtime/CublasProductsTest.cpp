//===- CublasProductsTest.cpp - Matrix products on a GPU ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CUDA/CudaBackend.h"
#include "Products.h"
#include "plait/Plan/Container.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

/// One rank's device, or the test is skipped.
class CublasProductsTest : public ::testing::Test {
protected:
  static constexpr uint64_t operandBytes = 1 << 20, workspaceBytes = 8 << 20;
  static constexpr size_t elements = 20000;

  void SetUp() override {
    fb::PlanT source;
    for (const char *name : {"pp", "tp"}) {
      source.mesh.push_back(std::make_unique<fb::MeshAxisT>());
      source.mesh.back()->name = name;
      source.mesh.back()->size = 1;
    }
    source.programs.push_back(std::make_unique<fb::ProgramT>());
    fb::ProgramT &program = *source.programs.back();
    program.library_workspace = 3 * operandBytes;
    program.library_workspace_bytes = workspaceBytes;
    program.arena_bytes = program.library_workspace + workspaceBytes;
    plan = plan::packPlan(source);
    ExecutorOptions options;
    options.devices = 1;
    auto made = createCudaThreadBackend(*fb::GetPlan(plan.data()), {}, options);
    if (!made.ok() && made.status().message().starts_with("this plan is for "))
      GTEST_SKIP() << made.status().message();
    ASSERT_TRUE(made.ok()) << made.status().message();
    backend = std::move(*made);
    ASSERT_TRUE(device().attachThread().ok());
  }

  Device &device() { return *backend.parts.front().device; }

  /// A, B and C lie one after the other in the arena.
  Status run(const fb::GemmStep &step, std::span<std::byte> a,
             std::span<std::byte> b, std::span<std::byte> c, bool add) {
    std::byte *arena = device().arena();
    PLAIT_RETURN_IF_ERROR(device().write(0, a));
    PLAIT_RETURN_IF_ERROR(device().write(operandBytes, b));
    PLAIT_RETURN_IF_ERROR(device().write(2 * operandBytes, c));
    auto prepared = device().prepareGemm(step);
    if (!prepared.ok())
      return prepared.status();
    PLAIT_RETURN_IF_ERROR(device().gemm(*prepared, arena, arena + operandBytes,
                                        arena + 2 * operandBytes, add));
    return device().read(2 * operandBytes, c);
  }

  Multiply multiplier() {
    return [this](auto &&...operands) { return run(operands...); };
  }

  std::vector<uint8_t> plan;
  Backend backend;
};

TEST_F(CublasProductsTest, Floats) {
  for (bool transposeA : {false, true})
    for (bool transposeB : {false, true})
      expectProduct(makeShape(40, 56, 24, transposeA, transposeB, 8),
                    multiplier(), elements);
}

TEST_F(CublasProductsTest, Halves) {
  for (bool transposeA : {false, true})
    for (bool transposeB : {false, true})
      expectHalfProducts(makeShape(40, 56, 24, transposeA, transposeB, 8),
                         multiplier(), elements);
}

/// Two batch dimensions, of which one is cuBLASLt's; the places of the others
/// are counted in bytes of each operand's type.
TEST_F(CublasProductsTest, BatchesOfHalves) {
  fb::GemmStepT shape = makeShape(8, 16, 8, false, true, 8);
  shape.batch = {3, 2};
  shape.a_batch = {256, 128};
  shape.b_batch = {512, 0};
  shape.c_batch = {400, 200};
  expectHalfProducts(shape, multiplier(), elements);
}

} // namespace
