//===- GoldenTest.cpp - nn ops against PyTorch's numbers ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// test/golden/README.md describes the files.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace plait;
using namespace plait::test;

namespace {
/// A golden file, and the function of its inputs that a test builds.
class GoldenTest : public ::testing::Test {
protected:
  void load(const std::string &name);
  double attribute(StringRef name);
  Array array(const llvm::json::Object &tensor);
  /// An input under another shape with the same elements.
  Value read(StringRef name, ArrayRef<int64_t> shape = {});
  Value readIds(StringRef name);
  Array golden(StringRef name) { return array(*file.getObject(name)); }
  /// Compares `result` and the gradients of the inputs that were read.
  void check(Value result);

  GradientHarness test;
  llvm::json::Object file;
  std::map<std::string, Value> inputs;
};
} // namespace

void GoldenTest::load(const std::string &name) {
  auto buffer =
      llvm::MemoryBuffer::getFile(PLAIT_GOLDEN "/ops/" + name + ".json");
  ASSERT_TRUE(bool(buffer)) << name;
  auto value = llvm::json::parse((*buffer)->getBuffer());
  ASSERT_TRUE(bool(value)) << name;
  file = std::move(*value->getAsObject());
}

double GoldenTest::attribute(StringRef name) {
  return *file.getObject("attributes")->getNumber(name);
}

Array GoldenTest::array(const llvm::json::Object &tensor) {
  SmallVector<int64_t> shape;
  for (const llvm::json::Value &extent : *tensor.getArray("shape"))
    shape.push_back(*extent.getAsInteger());
  std::vector<double> data;
  for (const llvm::json::Value &x : *tensor.getArray("data"))
    data.push_back(*x.getAsNumber());
  return Array(shape, std::move(data));
}

Value GoldenTest::read(StringRef name, ArrayRef<int64_t> shape) {
  Array data = array(*file.getObject("inputs")->getObject(name));
  if (!shape.empty())
    data.shape.assign(shape.begin(), shape.end());
  return inputs[name.str()] = test.input(std::move(data));
}

Value GoldenTest::readIds(StringRef name) {
  Array data = array(*file.getObject("inputs")->getObject(name));
  return test.ids(data.shape, data.data);
}

void GoldenTest::check(Value result) {
  expectNear(test.interpreter.get(result), golden("output"), "output");
  // The golden cotangent may have fewer dimensions than the result.
  Array cotangent = golden("cotangent");
  auto shape = cast<RankedTensorType>(result.getType()).getShape();
  cotangent.shape.assign(shape.begin(), shape.end());
  auto gradients =
      differentiate(*test.module->getBody(), result, test.input(cotangent));
  for (const auto &[name, value] : inputs) {
    Value gradient = gradients.lookup(value);
    ASSERT_TRUE(gradient) << name;
    expectNear(test.interpreter.get(gradient),
               array(*file.getObject("gradients")->getObject(name)),
               "gradient of " + name);
  }
}

TEST_F(GoldenTest, LayerNorm) {
  load("layer_norm");
  Value x = read("x"), weight = read("weight"), bias = read("bias");
  auto rows = test.type({2, 3});
  auto op = nn::LayerNormOp::create(
      test.builder, test.nn.loc, x.getType(), rows, rows, x, weight, bias,
      test.builder.getF32FloatAttr(attribute("eps")));
  check(op.getOut());
}

TEST_F(GoldenTest, RMSNorm) {
  load("rms_norm");
  Value x = read("x"), weight = read("weight");
  auto op = nn::RMSNormOp::create(
      test.builder, test.nn.loc, x.getType(), test.type({2, 3}), x, weight,
      test.builder.getF32FloatAttr(attribute("eps")));
  check(op.getOut());
}

TEST_F(GoldenTest, GeluTanh) {
  load("gelu_tanh");
  Value x = read("x");
  check(test.nn.unary<nn::GeluOp>(x, test.builder.getUnitAttr()));
}

TEST_F(GoldenTest, GeluErf) {
  load("gelu_erf");
  check(test.nn.unary<nn::GeluOp>(read("x"), UnitAttr()));
}

TEST_F(GoldenTest, Silu) {
  load("silu");
  check(test.nn.unary<nn::SiluOp>(read("x")));
}

TEST_F(GoldenTest, SwiGLU) {
  load("swiglu");
  Value gate = read("gate"), up = read("up");
  check(test.nn.mul(test.nn.unary<nn::SiluOp>(gate), up));
}

TEST_F(GoldenTest, Rope) {
  load("rope");
  Value x = read("x");
  check(test.nn.unary<nn::RopeOp>(
      x, test.builder.getF64FloatAttr(attribute("theta")),
      nn::RopeScalingAttr(), nn::YarnAttr(), IntegerAttr(), UnitAttr(),
      nn::BeginAttr()));
}

TEST_F(GoldenTest, RopeFrequenciesOfLlama3) {
  load("rope_llama3_inverse_frequencies");
  Builder &b = test.builder;
  auto scaling = nn::RopeScalingAttr::get(
      &test.context, b.getF64FloatAttr(attribute("factor")),
      b.getF64FloatAttr(attribute("low_freq_factor")),
      b.getF64FloatAttr(attribute("high_freq_factor")),
      attribute("original_max_position_embeddings"));
  std::vector<double> actual = nn::computeRopeFrequencies(
      attribute("theta"), scaling, nn::YarnAttr(), attribute("head_dim"));
  std::vector<double> expected = golden("output").data;
  ASSERT_EQ(actual.size(), expected.size());
  // PyTorch computes them in fp32.
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i] / expected[i], 1.0, 1e-6) << i;
}

/// Heads of the file are consecutive in groups, as ours are. A `softCap` of 0
/// is none.
static Value buildAttention(GradientHarness &test, Value q, Value k, Value v,
                            Value sinks = {}, double softCap = 0) {
  auto shape = cast<RankedTensorType>(q.getType()).getShape();
  Builder &b = test.builder;
  auto score = nn::ScoreAttr::get(
      &test.context, b.getF32FloatAttr(0.5), IntegerAttr(),
      /*bidirectional=*/false,
      softCap != 0 ? b.getF32FloatAttr(softCap) : FloatAttr());
  auto op = nn::AttentionOp::create(
      test.builder, test.nn.loc, q.getType(),
      test.type({shape[0], shape[2], shape[3], shape[1]}), q, k, v, Value(),
      sinks, Value(), score, nn::BeginAttr(), FloatAttr(), IntegerAttr(),
      nn::BeginAttr());
  return op.getOut();
}

TEST_F(GoldenTest, Attention) {
  load("attention");
  Value q = read("q", {2, 5, 2, 1, 4}), k = read("k"), v = read("v");
  check(buildAttention(test, q, k, v));
}

TEST_F(GoldenTest, AttentionGrouped) {
  load("attention_grouped");
  Value q = read("q", {2, 5, 2, 2, 4}), k = read("k"), v = read("v");
  check(buildAttention(test, q, k, v));
}

TEST_F(GoldenTest, AttentionSinks) {
  load("attention_sinks");
  Value q = read("q", {2, 5, 2, 2, 4}), k = read("k"), v = read("v");
  check(buildAttention(test, q, k, v, read("sinks", {2, 2})));
}

/// A sink beside which the keys have no weight, and one that has none beside
/// them: neither overflows, in doubles from 709 on.
TEST_F(GoldenTest, AttentionWithSinksFarFromItsScores) {
  load("attention_sinks");
  Value q = read("q", {2, 5, 2, 2, 4}), k = read("k"), v = read("v");
  Value sinks = test.input({{2, 2}, {1e4, -1e4, -1e4, 1e4}});
  auto far = buildAttention(test, q, k, v, sinks);
  auto without = buildAttention(test, q, k, v);
  auto lse = far.getDefiningOp<nn::AttentionOp>().getLse();
  Array out = test.interpreter.get(far), rows = test.interpreter.get(lse),
        rest = test.interpreter.get(without);
  for (size_t i = 0; i < out.data.size(); ++i) {
    bool isKept = i / 4 % 4 == 1 || i / 4 % 4 == 2;
    EXPECT_EQ(out.data[i], isKept ? rest.data[i] : 0) << i;
  }
  for (size_t row = 0; row < 5; ++row)
    EXPECT_EQ(rows.data[row], 1e4) << row; // of the first head
}

TEST_F(GoldenTest, AttentionSoftCap) {
  load("attention_soft_cap");
  Value q = read("q", {2, 5, 2, 2, 4}), k = read("k"), v = read("v");
  check(buildAttention(test, q, k, v, Value(), attribute("soft_cap")));
}

/// Ours is a sum and a count; theirs the quotient.
TEST_F(GoldenTest, SoftmaxCrossEntropy) {
  load("cross_entropy_ignored");
  Value logits = read("logits"), targets = readIds("targets");
  auto op = nn::SoftmaxCrossEntropyOp::create(test.builder, test.nn.loc, logits,
                                              targets, -100);
  auto parts = op.decompose(test.builder);
  op.erase();
  EXPECT_EQ(test.interpreter.get(parts[1]).data[0], 4.0);
  check(test.nn.scale(parts[0], 0.25));
}

/// Ties, too.
TEST_F(GoldenTest, Amax) {
  load("amax");
  check(test.nn.reduce(read("x"), {1}, nn::ReduceKind::Max));
}

TEST_F(GoldenTest, Minimum) {
  load("minimum");
  Value input = read("input"), other = read("other");
  check(test.nn.binary<nn::MinOp>(input, other));
}

TEST_F(GoldenTest, Embedding) {
  load("embedding");
  Value table = read("table"), ids = readIds("tokens");
  check(nn::EmbeddingOp::create(test.builder, test.nn.loc, test.type({2, 3, 3}),
                                table, ids, nn::BeginAttr()));
}
