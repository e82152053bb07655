//===- SourceTest.cpp - Models for any batch and sequence -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A config says what a model of any size is. So what becomes of its IR in
// another size is held against another import.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Import/ModelSource.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <regex>
#include <set>

using namespace mlir;
using namespace plait;
using namespace plait::test;

namespace {
struct SourceTest : ImportHarness {
  /// Whether the model of a config, written as IR without its layers, becomes
  /// what the config is in other sizes.
  void expectFollows(const std::string &config);
  /// The labels of the ops of a model, in order; -1: none. Reads are left out.
  std::vector<int64_t> findLayers(const std::string &body);
};
} // namespace

static std::string print(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream out(text);
  module.print(out);
  return text;
}

void SourceTest::expectFollows(const std::string &config) {
  std::string text = print(*importText(config, 2, 16).module);
  std::string bare = std::regex_replace(
      text, std::regex("nn\\.layer = [0-9]+ : i64(, )?"), "");
  ASSERT_NE(bare, text);
  Imported read = importIR(bare);
  ASSERT_TRUE(read.module) << read.errors.front();
  std::unique_ptr<ModelSource> source =
      makeModuleSource(std::move(read.module));
  EXPECT_EQ(source->getSequence(), 16);
  EXPECT_FALSE(source->hasFixedBatch());
  for (auto [batch, sequence] :
       {std::pair(2, 16), {1, 1}, {16, 2}, {3, 8}, {11, 12}}) {
    auto module = source->get(batch, sequence);
    ASSERT_TRUE(succeeded(module)) << batch << " x " << sequence;
    EXPECT_EQ(print(**module),
              print(*importText(config, batch, sequence).module))
        << batch << " x " << sequence;
  }
}

/// Batch and sequence are 2 and 16, as are other extents of these models.
TEST_F(SourceTest, TypesAreThoseOfAnotherImport) {
  expectFollows(std::string(kGPT2) + "}");
  expectFollows(std::string(kGPT2) + ", \"resid_pdrop\": 0.0,"
                                     "\"embd_pdrop\": 0.0, "
                                     "\"attn_pdrop\": 0.0}");
  expectFollows(std::string(kLlama) + "}");
  expectFollows(std::string(kLlama) + ", \"attention_dropout\": 0.5}");
  expectFollows(likeLlama("qwen2") + "}");
  expectFollows(likeLlama("qwen3") + "}");
  expectFollows(likeLlama("phi3") + "}");
  expectFollows(likeLlama("mixtral") + ", \"num_local_experts\": 2}");
  expectFollows(likeLlama("qwen3_moe") +
                ", \"num_experts\": 16, \"num_experts_per_tok\": 2, "
                "\"moe_intermediate_size\": 16}");
  expectFollows(likeLlama("qwen3_moe") +
                ", \"num_local_experts\": 16, \"num_experts_per_tok\": 2, "
                "\"moe_intermediate_size\": 16}");
}

/// `body` is that of a model over x, which it ends with the logits %y.
static std::string makeModel(const std::string &body) {
  std::string parameters;
  for (char name : std::string("abcdef"))
    parameters += std::string("nn.parameter @") + name +
                  " : tensor<4x4xf32> init<mean = 0.0, std = 1.0>\n";
  return "module {\nnn.parameter @table : tensor<8x4xf32> init<mean = 0.0, "
         "std = 1.0>\n" +
         parameters +
         "func.func @loss(%tokens: tensor<2x4xi32>, %targets: "
         "tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {\n"
         "%table = nn.read @table value : tensor<8x4xf32>\n"
         "%x = nn.embedding %table, %tokens : (tensor<8x4xf32>, "
         "tensor<2x4xi32>) -> tensor<2x4x4xf32>\n" +
         body +
         "%logits = nn.matmul %y, %table \"bsh,vh->bsv\" : (tensor<2x4x4xf32>, "
         "tensor<8x4xf32>) -> tensor<2x4x8xf32>\n"
         "%sum, %count = nn.softmax_cross_entropy %logits, %targets ignore "
         "-100 : (tensor<2x4x8xf32>, tensor<2x4xi32>) -> (tensor<f32>, "
         "tensor<f32>)\nreturn %sum, %count : tensor<f32>, tensor<f32>\n}\n}\n";
}

static std::string read(const std::string &name) {
  return "%" + name + " = nn.read @" + name + " value : tensor<4x4xf32>\n";
}

static std::string multiply(const std::string &result, const std::string &x,
                            const std::string &weight) {
  return "%" + result + " = nn.matmul %" + x + ", %" + weight +
         " \"bsh,hg->bsg\" : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> "
         "tensor<2x4x4xf32>\n";
}

static std::string apply(const std::string &result, const std::string &op,
                         const std::string &operands) {
  return "%" + result + " = nn." + op + " " + operands +
         " : tensor<2x4x4xf32>\n";
}

std::vector<int64_t> SourceTest::findLayers(const std::string &body) {
  Imported imported = importIR(makeModel(body));
  std::vector<int64_t> layers;
  if (!imported.module) {
    ADD_FAILURE() << imported.errors.front();
    return layers;
  }
  auto loss = imported.module->lookupSymbol<func::FuncOp>(nn::kLossFunction);
  std::set<int64_t> seen;
  int64_t last = -1;
  for (Operation &op : loss.getBody().front().without_terminator()) {
    auto layer = op.getAttrOfType<IntegerAttr>(nn::kLayerAttr);
    // Stages need them in order, reads as well.
    if (layer) {
      EXPECT_GE(layer.getInt(), last);
      last = layer.getInt();
      seen.insert(last);
    }
    if (op.getNumOperands())
      layers.push_back(layer ? layer.getInt() : -1);
  }
  auto model =
      (*imported.module)->getAttrOfType<DictionaryAttr>(nn::kModelAttr);
  EXPECT_EQ(model.getAs<IntegerAttr>("layers").getInt(),
            std::max<int64_t>(1, seen.size()));
  EXPECT_EQ(model.getAs<IntegerAttr>("vocab").getInt(), 8);
  EXPECT_EQ(model.getAs<StringAttr>("name"), "model");
  return layers;
}

/// All parameters first, as some front ends write them.
TEST_F(SourceTest, FindsLayersWhereverParametersAreRead) {
  std::string body = read("a") + read("b") + read("c") +
                     multiply("m0", "x", "a") + apply("y0", "add", "%x, %m0") +
                     multiply("m1", "y0", "b") +
                     apply("y1", "add", "%y0, %m1") +
                     multiply("m2", "y1", "c") + apply("y", "add", "%y1, %m2");
  // The embedding, three layers, logits and loss.
  EXPECT_EQ(findLayers(body),
            (std::vector<int64_t>{-1, 0, 0, 1, 1, 2, 2, -1, -1}));
}

/// A parameter that all layers share belongs to none of them.
TEST_F(SourceTest, FindsLayersThatShareTheirParameters) {
  std::string body = read("a") + multiply("m0", "x", "a") +
                     apply("t0", "tanh", "%m0") + multiply("m1", "t0", "a") +
                     apply("y", "tanh", "%m1");
  EXPECT_EQ(findLayers(body), (std::vector<int64_t>{-1, 0, 0, 1, 1, -1, -1}));
}

/// The ends of a layer are where least crosses: the sum in front of the first
/// layer looks like one of a layer.
TEST_F(SourceTest, CutsLayersAtTheResidualStream) {
  std::string body = apply("s", "add", "%x, %x") + read("a") +
                     multiply("m0", "s", "a") + apply("t0", "tanh", "%m0") +
                     apply("y0", "add", "%s, %t0") + read("b") +
                     multiply("m1", "y0", "b") + apply("t1", "tanh", "%m1") +
                     apply("y", "add", "%y0, %t1");
  EXPECT_EQ(findLayers(body),
            (std::vector<int64_t>{-1, -1, 0, 0, 0, 1, 1, 1, -1, -1}));
}

/// An encoder and a decoder, say.
TEST_F(SourceTest, FindsRunsOfSeveralKinds) {
  std::string body = read("a") + read("b") + read("c") + read("d") +
                     multiply("m0", "x", "a") + apply("t0", "tanh", "%m0") +
                     multiply("m1", "t0", "b") + apply("t1", "tanh", "%m1") +
                     multiply("m2", "t1", "c") + apply("t2", "silu", "%m2") +
                     multiply("m3", "t2", "d") + apply("y", "silu", "%m3");
  EXPECT_EQ(findLayers(body),
            (std::vector<int64_t>{-1, 0, 0, 1, 1, 2, 2, 3, 3, -1, -1}));
}

/// Side by side they are no layers, and neither is what has no matrix.
TEST_F(SourceTest, FindsNoLayersWhereNoneAre) {
  std::string heads = read("a") + read("b") + multiply("m0", "x", "a") +
                      apply("t0", "tanh", "%m0") + multiply("m1", "x", "b") +
                      apply("t1", "tanh", "%m1") +
                      apply("y", "add", "%t0, %t1");
  EXPECT_EQ(findLayers(heads), std::vector<int64_t>(8, -1));
  std::string waves = apply("t0", "tanh", "%x") + apply("t1", "tanh", "%t0") +
                      apply("y", "tanh", "%t1");
  EXPECT_EQ(findLayers(waves), std::vector<int64_t>(6, -1));
}
