//===- MeasureTest.cpp - What lowered functions need ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Measure.h"
#include "plait/InitAll.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace plait;

namespace {

/// 140 numbers of 4 bytes need more than 200 of 2, wherever either are.
TEST(Measure, TheWorkspaceIsTheOneOfTheMostBytes) {
  const std::string narrow = R"(
    %f = nn.fill 1.0 : tensor<100xbf16>
    %g = nn.exp %f : tensor<100xbf16>
    %h = nn.exp %g : tensor<100xbf16>)";
  const std::string wide = R"(
    %i = nn.iota along 0 : tensor<70xi32>
    %v = nn.valid %i ignore 0 : tensor<70xi32> -> tensor<70xf32>
    %w = nn.exp %v : tensor<70xf32>)";
  DialectRegistry registry;
  registerAllDialects(registry);
  MLIRContext context(registry);
  for (auto [forward, backward] :
       {std::pair(narrow + wide, narrow), {narrow, wide}, {wide, narrow}}) {
    auto module = parseSourceString<ModuleOp>(
        "func.func @forward() {" + forward +
            "\nreturn\n}\nfunc.func @backward() {" + backward + "\nreturn\n}",
        &context);
    ASSERT_TRUE(module);
    planner::Saved workspace =
        measureBlock(module->lookupSymbol<func::FuncOp>("forward"),
                     module->lookupSymbol<func::FuncOp>("backward"),
                     BFloat16Type::get(&context))
            .workspace;
    EXPECT_EQ(workspace.elements, 0);
    EXPECT_EQ(workspace.fourByte, 140);
  }
}

} // namespace
