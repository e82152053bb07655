//===- IdenticalFunctionsTest.cpp - What is transformed once --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "IdenticalFunctions.h"

#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace plait;

namespace {

/// `count` functions that read a parameter of their own layer, and one that
/// reads it twice.
std::string makeModule(int count) {
  std::string text;
  for (int i = 0; i <= count; ++i) {
    std::string number = std::to_string(i);
    text += "nn.parameter @w" + number +
            " : tensor<4xf32> init<mean = 0.0, std = 1.0>\n"
            "func.func @f" +
            number + "(%x: tensor<4xf32>) -> tensor<4xf32> {\n";
    for (int read = 0; read <= (i == count); ++read)
      text += "  %" + std::to_string(read) + " = nn.read @w" + number +
              " value {nn.layer = " + number + " : i64} : tensor<4xf32>\n";
    text += "  %y = nn.add %x, %0 : tensor<4xf32>\n"
            "  return %y : tensor<4xf32>\n}\n";
  }
  return text;
}

/// Has every function negate what it returns.
void negate(func::FuncOp function) {
  Operation *terminator = function.getBody().front().getTerminator();
  OpBuilder builder(terminator);
  Value value = terminator->getOperand(0);
  terminator->setOperand(
      0, nn::NegOp::create(builder, terminator->getLoc(), value));
}

TEST(IdenticalFunctions, DepthCostsNothing) {
  MLIRContext context;
  context.loadDialect<nn::NNDialect, func::FuncDialect>();
  for (int count : {2, 50}) {
    auto module =
        parseSourceString<ModuleOp>(makeModule(count), ParserConfig(&context));
    ASSERT_TRUE(module);
    int transformed = 0;
    EXPECT_EQ(transformOnce(*module,
                            [&](func::FuncOp function) {
                              ++transformed;
                              negate(function);
                            }),
              2);
    EXPECT_EQ(transformed, 2);
    ASSERT_TRUE(succeeded(verify(*module)));
    int i = 0;
    for (auto function : module->getOps<func::FuncOp>()) {
      EXPECT_EQ(llvm::range_size(function.getOps<nn::NegOp>()), 1);
      for (auto read : function.getOps<nn::ReadOp>()) {
        EXPECT_EQ(read.getSymbol(), "w" + std::to_string(i));
        EXPECT_EQ(read->getAttrOfType<IntegerAttr>(nn::kLayerAttr).getInt(), i);
      }
      ++i;
    }
  }
}

} // namespace
