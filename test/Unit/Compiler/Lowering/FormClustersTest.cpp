//===- FormClustersTest.cpp - Kernels of layers that are alike ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fusion.h"

#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace plait;

namespace {

/// A function of so many layers, of two kinds in turn.
std::string makeLayers(int layers) {
  const std::string type = "tensor<8x16xf32>";
  std::string text = "nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std "
                     "= 1.0>\nnn.parameter @b : tensor<16xf32> init<mean = "
                     "0.0, std = 1.0>\nfunc.func @f(%x0: " +
                     type + ") -> " + type + " {\n";
  for (int i = 0; i < layers; ++i) {
    std::string n = std::to_string(i);
    std::string layer = "{nn.layer = " + n + " : i64}";
    auto add = [&](const std::string &name, const std::string &rest) {
      text += "  %" + name + n + " = " + rest + "\n";
    };
    add("w", "nn.read @w value " + layer + " : tensor<16x16xf32>");
    add("b", "nn.read @b value " + layer + " : tensor<16xf32>");
    add("m", "nn.matmul %x" + n + ", %w" + n + " \"sh,hf->sf\" " + layer +
                 " : (" + type + ", tensor<16x16xf32>) -> " + type);
    add("c", "nn.broadcast %b" + n + " dims [1] " + layer +
                 " : tensor<16xf32> -> " + type);
    add("a", "nn.add %m" + n + ", %c" + n + " " + layer + " : " + type);
    add("s", std::string(i % 2 ? "nn.neg" : "nn.exp") + " %a" + n + " " +
                 layer + " : " + type);
    text += "  %x" + std::to_string(i + 1) + " = nn.add %s" + n + ", %x" + n +
            " " + layer + " : " + type + "\n";
  }
  return text + "  return %x" + std::to_string(layers) + " : " + type + "\n}\n";
}

/// Clusters that were built to find out what one kernel computes, and those
/// that there are in the end.
std::pair<int64_t, int64_t> countClusters(MLIRContext &context, int layers) {
  auto module =
      parseSourceString<ModuleOp>(makeLayers(layers), ParserConfig(&context));
  auto function = *module->getOps<func::FuncOp>().begin();
  KnownClusters known;
  formClusters(function, known);
  return {known.size(), llvm::range_size(function.getOps<plan::ClusterOp>())};
}

TEST(FormClusters, AsksOncePerKindOfLayer) {
  MLIRContext context;
  context.loadDialect<nn::NNDialect, plan::PlanDialect, func::FuncDialect>();
  auto [few, fewClusters] = countClusters(context, 4);
  auto [many, manyClusters] = countClusters(context, 60);
  EXPECT_EQ(fewClusters, 4);
  EXPECT_EQ(manyClusters, 60);
  EXPECT_GT(few, 2);
  EXPECT_EQ(few, many);
}

/// A sum of so many numbers is asked for once, not in each of its lengths.
TEST(FormClusters, AsksOnceForSumsOfNumbers) {
  MLIRContext context;
  context.loadDialect<nn::NNDialect, plan::PlanDialect, func::FuncDialect>();
  auto count = [&](int numbers) {
    std::string text = "func.func @f(%x0: tensor<f32>";
    for (int i = 1; i <= numbers; ++i)
      text += ", %a" + std::to_string(i) + ": tensor<f32>";
    text += ") -> tensor<f32> {\n";
    for (int i = 1; i <= numbers; ++i)
      text += "  %x" + std::to_string(i) + " = nn.add %x" +
              std::to_string(i - 1) + ", %a" + std::to_string(i) +
              " : tensor<f32>\n";
    text += "  return %x" + std::to_string(numbers) + " : tensor<f32>\n}\n";
    auto module = parseSourceString<ModuleOp>(text, ParserConfig(&context));
    auto function = *module->getOps<func::FuncOp>().begin();
    KnownClusters known;
    formClusters(function, known);
    EXPECT_EQ(llvm::range_size(function.getOps<plan::ClusterOp>()), 1);
    return known.size();
  };
  EXPECT_EQ(count(60), count(3));
}

/// What is built of members and outputs, as known clusters and anew.
TEST(FormClusters, TellsClustersApart) {
  MLIRContext context;
  context.loadDialect<nn::NNDialect, plan::PlanDialect, func::FuncDialect>();
  auto module =
      parseSourceString<ModuleOp>(makeLayers(3), ParserConfig(&context));
  auto function = *module->getOps<func::FuncOp>().begin();
  SmallVector<Operation *> adds, maps;
  for (Operation &op : function.getBody().front())
    if (isa<nn::AddOp>(op))
      adds.push_back(&op);
    else if (isa<nn::ExpOp, nn::NegOp>(op))
      maps.push_back(&op);
  KnownClusters known;
  auto ask = [&](ArrayRef<Operation *> members) {
    EXPECT_EQ(known.find(members, members.back()->getResult(0)),
              Copies::Shared);
    return known.size();
  };
  // By layer: what adds a bias, and with what follows it.
  EXPECT_EQ(ask({adds[0]}), 1);
  EXPECT_EQ(ask({adds[2]}), 1);
  EXPECT_EQ(ask({adds[0], maps[0]}), 2);
  EXPECT_EQ(ask({adds[2], maps[1]}), 3) << "another op";
  EXPECT_EQ(ask({adds[4], maps[2]}), 3);
  // Adds two values that are in memory, and one value to itself.
  EXPECT_EQ(ask({adds[1]}), 4) << "reads no bias";
  adds[1]->setOperand(0, adds[1]->getOperand(1));
  EXPECT_EQ(ask({adds[1]}), 5) << "reads one value twice";
  // The same ops with one result more.
  SmallVector<Value> both{adds[0]->getResult(0), maps[0]->getResult(0)};
  EXPECT_EQ(known.find({adds[0], maps[0]}, both), Copies::Shared);
  EXPECT_EQ(known.size(), 6);
}

} // namespace
