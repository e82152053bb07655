//===- KernelTrafficTest.cpp - What kernels move, counted by hand ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// This is KernelStep.traffic of a plan file, and what the planner's profile
// counts.
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/KernelTraffic.h"
#include "plait/InitAll.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace plait;

namespace {

class KernelTrafficTest : public ::testing::Test {
protected:
  KernelTrafficTest() : context(makeRegistry()) {
    context.loadAllAvailableDialects();
  }

  /// Bytes of the only cluster of `body`, a function of these arguments: 2 x 3
  /// token ids, 6 rows of 4 numbers and a table of 100 such rows.
  double getBytes(const std::string &body, const std::string &sorted = "") {
    auto module = parseSourceString<ModuleOp>(
        "func.func @f(%ids: tensor<2x3xi32> " + sorted +
            ", %rows: tensor<2x3x4xf32>, "
            "%table: tensor<100x4xf32>) {\n" +
            body + "\nreturn\n}",
        &context);
    EXPECT_TRUE(module);
    double bytes = 0;
    if (module)
      module->walk([&](plan::ClusterOp op) { bytes += getKernelTraffic(op); });
    return bytes;
  }

  MLIRContext context;

private:
  static DialectRegistry makeRegistry() {
    DialectRegistry registry;
    registerAllDialects(registry);
    return registry;
  }
};

constexpr double idBytes = 6 * 4, rowBytes = 24 * 4, tableBytes = 400 * 4;

std::string addRows(const std::string &accumulate) {
  return "%0 = plan.cluster(%rows, %rows) " + accumulate +
         R"( : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  ^bb0(%a: tensor<2x3x4xf32>, %b: tensor<2x3x4xf32>):
    %s = nn.add %a, %b : tensor<2x3x4xf32>
    plan.yield %s : tensor<2x3x4xf32>
  })";
}

std::string scatterRows(const std::string &accumulate) {
  return "%0 = plan.cluster(%rows, %ids) " + accumulate +
         R"( : (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<100x4xf32> {
  ^bb0(%dy: tensor<2x3x4xf32>, %i: tensor<2x3xi32>):
    %g = nn.embedding_grad %dy, %i :
        (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<100x4xf32>
    plan.yield %g : tensor<100x4xf32>
  })";
}

TEST_F(KernelTrafficTest, ReadsInputsAndWritesOutputsOnce) {
  EXPECT_EQ(getBytes(addRows("")), 3 * rowBytes);
}

/// What is only inside of a kernel stays in registers.
TEST_F(KernelTrafficTest, LeavesOutWhatIsInside) {
  EXPECT_EQ(getBytes(R"(
  %0 = plan.cluster(%rows) : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  ^bb0(%a: tensor<2x3x4xf32>):
    %s = nn.add %a, %a : tensor<2x3x4xf32>
    %t = nn.add %s, %a : tensor<2x3x4xf32>
    plan.yield %t : tensor<2x3x4xf32>
  })"),
            2 * rowBytes);
}

TEST_F(KernelTrafficTest, ReadsWhatItAddsTo) {
  EXPECT_EQ(getBytes(addRows("accumulate [1]")), 4 * rowBytes);
  EXPECT_EQ(getBytes(addRows("accumulate [2]")), 4 * rowBytes);
}

TEST_F(KernelTrafficTest, LooksUpRowsOfATable) {
  EXPECT_EQ(getBytes(R"(
  %0 = plan.cluster(%table, %ids) : (tensor<100x4xf32>, tensor<2x3xi32>)
      -> tensor<2x3x4xf32> {
  ^bb0(%t: tensor<100x4xf32>, %i: tensor<2x3xi32>):
    %e = nn.embedding %t, %i :
        (tensor<100x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
    plan.yield %e : tensor<2x3x4xf32>
  })"),
            idBytes + 2 * rowBytes);
}

/// The table is filled with zeros, unless it is added to, and each row that
/// comes in is added to one that is read and written.
TEST_F(KernelTrafficTest, AddsToRowsOfATable) {
  EXPECT_EQ(getBytes(scatterRows("")), idBytes + 3 * rowBytes + tableBytes);
  EXPECT_EQ(getBytes(scatterRows("accumulate [1]")), idBytes + 3 * rowBytes);
  EXPECT_EQ(getBytes(scatterRows("accumulate [2]")), idBytes + 3 * rowBytes);
}

/// A table that a kernel adds to where it lies is read and written in rows that
/// something is added to alone.
std::string scatterInto(const std::string &operands) {
  return R"(
  %0 = plan.cluster(%rows, %ids, %table) :
      (tensor<2x3x4xf32>, tensor<2x3xi32>, tensor<100x4xf32>)
      -> tensor<100x4xf32> {
  ^bb0(%dy: tensor<2x3x4xf32>, %i: tensor<2x3xi32>, %t: tensor<100x4xf32>):
    %g = nn.embedding_grad %dy, %i :
        (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<100x4xf32>
    %s = nn.add )" +
         operands + R"( : tensor<100x4xf32>
    plan.yield %s : tensor<100x4xf32>
  })";
}

TEST_F(KernelTrafficTest, AddsToRowsOfATableThatIsGiven) {
  for (const char *operands : {"%t, %g", "%g, %t"}) {
    EXPECT_EQ(getBytes(scatterInto(operands)), idBytes + 3 * rowBytes);
    EXPECT_EQ(getBytes(scatterInto(operands), "{plan.sorted = 100 : i64}"),
              idBytes + 3 * rowBytes);
  }
}

/// By sorted tokens each row is written once, and where there are others
/// already, read too: no more of them than positions.
TEST_F(KernelTrafficTest, WritesRowsOfSortedTokensOnce) {
  std::string sorted = "{plan.sorted = 100 : i64}";
  EXPECT_EQ(getBytes(scatterRows(""), sorted), idBytes + rowBytes + tableBytes);
  EXPECT_EQ(getBytes(scatterRows("accumulate [1]"), sorted),
            idBytes + 3 * rowBytes);
  EXPECT_EQ(getBytes(scatterRows("accumulate [2]"), sorted),
            idBytes + 3 * rowBytes);
}

} // namespace
