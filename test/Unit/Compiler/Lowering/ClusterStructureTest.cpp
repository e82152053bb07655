//===- ClusterStructureTest.cpp - Keys of clusters ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/ClusterStructure.h"
#include "Fusion.h"

#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace plait;

namespace {

struct ClusterStructure : ::testing::Test {
  ClusterStructure() {
    context.loadDialect<nn::NNDialect, plan::PlanDialect, func::FuncDialect>();
    module = parseSourceString<ModuleOp>(R"(
      func.func @f(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>,
                   %n: tensor<8x4xf32>, %keys: tensor<4xi32>) {
        %0 = nn.mul %a, %b : tensor<4x8xf32>
        %1 = nn.sub %0, %a : tensor<4x8xf32>
        %2 = nn.mul %a, %b : tensor<4x8xf32>
        %3 = nn.sub %2, %b : tensor<4x8xf32>
        %4 = nn.mul %b, %a : tensor<4x8xf32>
        %5 = nn.sub %4, %b : tensor<4x8xf32>
        %6 = nn.scale %a by 2.0 : tensor<4x8xf32>
        %7 = nn.scale %a by 3.0 : tensor<4x8xf32>
        %8 = nn.scale %n by 2.0 : tensor<8x4xf32>
        %9 = nn.dropout %a, %keys probability 0.5 site 0
            : tensor<4x8xf32>, tensor<4xi32>
        %10 = nn.dropout %b, %keys probability 0.5 site 1
            : tensor<4x8xf32>, tensor<4xi32>
        return
      }
    )",
                                         &context);
    for (Operation &op : module->lookupSymbol<func::FuncOp>("f").front())
      ops.push_back(&op);
  }

  /// The key of a cluster of `count` ops, of which it yields the last.
  std::string describe(unsigned first, unsigned count = 1, int mode = 0) {
    ArrayRef<Operation *> members = ArrayRef(ops).slice(first, count);
    auto cluster =
        createCluster(members, members.back()->getResult(0), Copies::Shared);
    if (mode)
      cluster->setAccumulate(ArrayRef<int32_t>(mode));
    return describeStructure(*cluster);
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  SmallVector<Operation *> ops;
};

} // namespace

// Operands are named by where they come from in the cluster, and what a call
// gives does not count.
TEST_F(ClusterStructure, OfClustersThatComputeTheSameIsOne) {
  EXPECT_EQ(describe(0, 2), describe(4, 2));
  EXPECT_EQ(describe(9), describe(10));
}

TEST_F(ClusterStructure, TellsOthersApart) {
  EXPECT_NE(describe(0, 2), describe(2, 2)); // reads another operand
  EXPECT_NE(describe(0), describe(0, 2));    // fewer ops
  EXPECT_NE(describe(6), describe(7));       // another property
  EXPECT_NE(describe(6), describe(8));       // another type
  EXPECT_NE(describe(6), describe(6, 1, 1)); // adds its result
  EXPECT_NE(describe(6, 1, 1), describe(6, 1, 2));
}
