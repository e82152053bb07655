//===- MergeEqualTest.cpp - Ops that are there twice ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MergeEqual.h"

#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "gtest/gtest.h"

#include <random>

using namespace mlir;
using namespace plait;

namespace {

/// A function of so many ops, drawn from few kinds on few operands: some are
/// equal, some read a parameter with and without a store in between, some name
/// a layer, and of many nobody needs the result.
std::string drawFunction(std::mt19937 &random, int ops) {
  auto draw = [&](int count) { return int(random() % unsigned(count)); };
  const std::string type = " : tensor<4xf32>\n";
  std::string text = "func.func @f(%0: tensor<4xf32>) -> tensor<4xf32> {\n";
  int values = 1;
  auto value = [&] { return "%" + std::to_string(draw(values)); };
  for (int i = 0; i < ops; ++i) {
    std::string layer =
        draw(4) ? "" : " {nn.layer = " + std::to_string(draw(2)) + " : i64}";
    std::string parameter = "@w" + std::to_string(draw(2));
    std::string one;
    switch (draw(6)) {
    case 0:
      text += "  nn.write " + value() + " to " + parameter + " value" + type;
      continue;
    case 1:
    case 2:
      one = "nn.read " + parameter + " value" + layer;
      break;
    case 3:
      one = "nn.add " + value() + ", " + value() + layer;
      break;
    case 4:
      one = "nn.mul " + value() + ", " + value();
      break;
    default:
      one = "nn.exp " + value() + layer;
    }
    text += "  %" + std::to_string(values) + " = " + one + type;
    ++values;
  }
  return text + "  return " + value() + type + "}\n";
}

/// What a pass leaves, locations included.
std::string run(std::unique_ptr<Pass> pass, ModuleOp module) {
  OwningOpRef<ModuleOp> copy = module.clone();
  PassManager manager(module.getContext());
  manager.addPass(std::move(pass));
  EXPECT_TRUE(succeeded(manager.run(*copy)));
  std::string text;
  llvm::raw_string_ostream out(text);
  copy->print(out, OpPrintingFlags().enableDebugInfo());
  return text;
}

TEST(MergeEqual, LeavesWhatCseLeaves) {
  MLIRContext context;
  context.loadDialect<nn::NNDialect, func::FuncDialect>();
  std::mt19937 random(1);
  size_t erased = 0;
  for (int i = 0; i < 200; ++i) {
    std::string text;
    for (std::string name : {"@w0", "@w1"})
      text += "nn.parameter " + name +
              " : tensor<4xf32> init<mean = 0.0, std = 1.0>\n";
    text += drawFunction(random, 5 + i % 60);
    auto module = parseSourceString<ModuleOp>(text, ParserConfig(&context));
    ASSERT_TRUE(module) << text;
    // Some ops have no known location, which another one's takes the place of.
    module->walk([&](nn::ExpOp op) {
      if (random() % 2)
        op->setLoc(UnknownLoc::get(&context));
    });
    std::string left = run(createMergeEqualPass(), *module);
    ASSERT_EQ(left, run(createCSEPass(), *module)) << text;
    erased += StringRef(text).count(" = nn.") - StringRef(left).count(" = nn.");
  }
  EXPECT_GT(erased, size_t(1000));
}

} // namespace
