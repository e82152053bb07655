//===- PaddingTest.cpp - What is derived of padding, against numbers ------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For every op that can be split, and every factor: the last element along it
// is padding. Numbers of many ranges are put there, and what the interpreter
// makes of them has to be what derivePadding says.
//
//===----------------------------------------------------------------------===//

#include "plait/Interfaces/Padding.h"
#include "Interpreter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringSet.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace mlir;
using namespace plait;
using namespace plait::test;

namespace {
struct Case {
  std::string arguments, op;
  std::string getOpName() const { return op.substr(0, op.find(' ')); }
};

void PrintTo(const Case &test, std::ostream *out) { *out << test.op; }
} // namespace

static Case unary(const std::string &name, const std::string &middle = "") {
  return {"%x: tensor<3x4xf32>", name + " %x" + middle + " : tensor<3x4xf32>"};
}

static Case binary(const std::string &name) {
  return {"%x: tensor<3x4xf32>, %y: tensor<3x4xf32>",
          name + " %x, %y : tensor<3x4xf32>"};
}

static Case matmul(const std::string &spec, const std::string &lhs,
                   const std::string &rhs, const std::string &result) {
  return {"%x: " + lhs + ", %y: " + rhs, "nn.matmul %x, %y \"" + spec +
                                             "\" : (" + lhs + ", " + rhs +
                                             ") -> " + result};
}

static std::vector<Case> getElementwiseCases() {
  std::vector<Case> cases;
  for (const char *name :
       {"neg", "exp", "log", "tanh", "sin", "cos", "erf", "sqrt", "rsqrt",
        "sigmoid", "is_zero", "stop_gradient", "gelu", "silu"})
    cases.push_back(unary("nn." + std::string(name)));
  for (const char *name : {"add", "sub", "mul", "div", "min", "gelu_grad"})
    cases.push_back(binary("nn." + std::string(name)));
  cases.push_back(unary("nn.gelu", " tanh"));
  cases.push_back(unary("nn.scale", " by -1.5"));
  cases.push_back(unary("nn.shift", " by -1.0"));
  cases.push_back({"%x: tensor<3x4xf32>, %y: tensor<3x4xf32>",
                   "nn.gelu_grad %x, %y tanh : tensor<3x4xf32>"});
  cases.push_back({"%x: tensor<3x4xf32>",
                   "nn.cast %x : tensor<3x4xf32> -> tensor<3x4xbf16>"});
  cases.push_back({"", "nn.fill 1.0 : tensor<3x4xf32>"});
  cases.push_back({"", "nn.iota along 1 : tensor<3x4xi32>"});
  for (const char *ignored : {"-100", "0"})
    cases.push_back(
        {"%i: tensor<3x4xi32>", "nn.valid %i ignore " + std::string(ignored) +
                                    " : tensor<3x4xi32> -> tensor<3x4xf32>"});
  return cases;
}

static std::vector<Case> getShapeCases() {
  std::vector<Case> cases = {matmul("bsh,hf->bsf", "tensor<2x3x4xf32>",
                                    "tensor<4x5xf32>", "tensor<2x3x5xf32>"),
                             matmul("bsf,fh->bsh", "tensor<2x3x4xf32>",
                                    "tensor<4x5xf32>", "tensor<2x3x5xf32>"),
                             matmul("bsh,bsf->hf", "tensor<2x3x4xf32>",
                                    "tensor<2x3x5xf32>", "tensor<4x5xf32>")};
  for (const char *kind : {"sum", "max"})
    cases.push_back(
        {"%x: tensor<2x3x4xf32>", "nn.reduce " + std::string(kind) +
                                      " %x dims [1] : tensor<2x3x4xf32> -> "
                                      "tensor<2x4xf32>"});
  cases.push_back({"%x: tensor<3xf32>", "nn.broadcast %x dims [1] : "
                                        "tensor<3xf32> -> tensor<2x3x4xf32>"});
  cases.push_back(
      {"%t: tensor<4x5xf32>, %i: tensor<2x3xi32>",
       "nn.embedding %t, %i : (tensor<4x5xf32>, tensor<2x3xi32>) -> "
       "tensor<2x3x5xf32>"});
  cases.push_back(
      {"%g: tensor<2x3x5xf32>, %i: tensor<2x3xi32>",
       "nn.embedding_grad %g, %i : (tensor<2x3x5xf32>, tensor<2x3xi32>) -> "
       "tensor<4x5xf32>"});
  cases.push_back({"%x: tensor<2x3x4xf32>, %i: tensor<2x3xi32>",
                   "nn.pick %x, %i : tensor<2x3x4xf32>, tensor<2x3xi32> -> "
                   "tensor<2x3x4xf32>"});
  return cases;
}

static std::vector<Case> getModelCases() {
  std::string q = "tensor<2x3x2x2x4xf32>", k = "tensor<2x3x2x4xf32>",
              lse = "tensor<2x2x2x3xf32>", sinks = "tensor<2x2xf32>";
  std::string qkv = "%q: " + q + ", %k: " + k + ", %v: " + k;
  return {
      {"%x: tensor<2x3x4xf32>, %w: tensor<4xf32>, %b: tensor<4xf32>",
       "nn.layer_norm %x, %w, %b epsilon 1.0e-05 : (tensor<2x3x4xf32>, "
       "tensor<4xf32>, tensor<4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3xf32>, "
       "tensor<2x3xf32>)"},
      {"%x: tensor<2x3x4xf32>, %w: tensor<4xf32>",
       "nn.rms_norm %x, %w epsilon 1.0e-05 : (tensor<2x3x4xf32>, "
       "tensor<4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3xf32>)"},
      {"%x: tensor<2x3x3x4xf32>",
       "nn.rope %x theta 1.0e+04 : tensor<2x3x3x4xf32>"},
      {qkv, "nn.attention %q, %k, %v scale 5.0e-01 : (" + q + ", " + k + ", " +
                k + ") -> (" + q + ", " + lse + ")"},
      {qkv + ", %o: " + q + ", %l: " + lse + ", %g: " + q,
       "nn.attention_grad %q, %k, %v, %o, %l, %g scale 5.0e-01 : (" + q + ", " +
           k + ", " + k + ", " + q + ", " + lse + ", " + q + ") -> (" + q +
           ", " + k + ", " + k + ")"},
      {qkv + ", %s: " + sinks,
       "nn.attention %q, %k, %v scale 5.0e-01 soft_cap 2.0 sinks %s : (" + q +
           ", " + k + ", " + k + ", " + sinks + ") -> (" + q + ", " + lse +
           ")"},
      {qkv + ", %o: " + q + ", %l: " + lse + ", %g: " + q + ", %s: " + sinks,
       "nn.attention_grad %q, %k, %v, %o, %l, %g scale 5.0e-01 soft_cap 2.0 "
       "sinks %s : (" +
           q + ", " + k + ", " + k + ", " + q + ", " + lse + ", " + q + ", " +
           sinks + ") -> (" + q + ", " + k + ", " + k + ", " + sinks + ")"}};
}

static std::vector<Case> getCases() {
  std::vector<Case> all = getElementwiseCases();
  for (const auto &more : {getShapeCases(), getModelCases()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

//===----------------------------------------------------------------------===//
// One op, one factor, one choice of what lies in padding
//===----------------------------------------------------------------------===//

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const NumberRange contents[] = {NumberRange::exactly(0),
                                NumberRange::exactly(1),
                                NumberRange::finite(),
                                {0.5, 2.0},
                                {-1.5, 0.0},
                                NumberRange::exactly(-kInfinity)};

class PaddingTest : public ::testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    context.loadDialect<func::FuncDialect, nn::NNDialect, dist::DistDialect>();
    const Case &test = GetParam();
    std::string results = llvm::StringRef(test.op).ends_with(")") &&
                                  test.op.find("-> (") != std::string::npos
                              ? "%r:" + countResults(test.op) + " = "
                              : "%r = ";
    module = parseSourceString<ModuleOp>(
        "dist.mesh @mesh [\"tp\"] = [1]\nfunc.func @f(" + test.arguments +
            ") {\n" + results + test.op + "\nreturn\n}",
        &context);
    ASSERT_TRUE(module);
    op = &cast<func::FuncOp>(module->lookupSymbol("f"))
              .getBody()
              .front()
              .front();
    rule = cast<ShardableOpInterface>(op).getFactorRule();
  }

  static std::string countResults(const std::string &text) {
    llvm::StringRef types = llvm::StringRef(text).rsplit("-> (").second;
    return std::to_string(types.count(',') + 1);
  }

  void draw(Interpreter &interpreter, int factor, ArrayRef<NumberRange> ranges,
            unsigned seed);
  void checkKept(int factor, ArrayRef<NumberRange> ranges,
                 ArrayRef<NumberRange> derived, unsigned seed);
  void checkReduced(int factor, ArrayRef<NumberRange> ranges, unsigned seed);
  void check(int factor, unsigned seed);

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  Operation *op = nullptr;
  FactorRule rule;
};
} // namespace

static bool isPadding(ArrayRef<int64_t> index, ArrayRef<int64_t> shape,
                      const FactorRule::DimFactors &dims, int factor) {
  for (auto [i, extent, along] : llvm::zip_equal(index, shape, dims))
    if (along == factor && i == extent - 1)
      return true;
  return false;
}

template <typename Body>
static void forEachIndex(ArrayRef<int64_t> shape, Body body) {
  SmallVector<int64_t> index(shape.size(), 0);
  int64_t left = ShapedType::getNumElements(shape);
  for (; left > 0; --left) {
    body(ArrayRef<int64_t>(index));
    for (int64_t dim = shape.size() - 1; dim >= 0; --dim) {
      if (++index[dim] < shape[dim])
        break;
      index[dim] = 0;
    }
  }
}

/// A number of `range`; those without a bound are of a model's size.
static double drawFrom(const NumberRange &range, std::mt19937 &generator) {
  if (range.low == range.high)
    return range.low;
  return std::uniform_real_distribution(std::max(range.low, -8.0),
                                        std::min(range.high, 8.0))(generator);
}

/// Sets the operands: the same numbers for the same seed, but in padding.
void PaddingTest::draw(Interpreter &interpreter, int factor,
                       ArrayRef<NumberRange> ranges, unsigned seed) {
  std::mt19937 generator(seed), padding(seed + 1);
  for (auto [operand, dims, range] :
       llvm::zip_equal(op->getOperands(), rule.operands, ranges)) {
    auto type = cast<RankedTensorType>(operand.getType());
    Array array(type.getShape());
    forEachIndex(type.getShape(), [&](ArrayRef<int64_t> index) {
      double number = drawFrom(NumberRange::finite(), generator);
      if (isPadding(index, type.getShape(), dims, factor))
        number = drawFrom(range, padding);
      array.at(index) =
          type.getElementType().isInteger() ? std::round(number / 2) : number;
    });
    interpreter.set(operand, array);
  }
}

/// The interpreter computes in double precision, generated code does not.
static bool holds(const NumberRange &range, double number) {
  if (range.contains(number) || range.is(0) || !std::isfinite(number))
    return range.contains(number);
  double tolerance = 1e-6 * (1 + std::abs(number));
  return range.low - tolerance <= number && number <= range.high + tolerance;
}

void PaddingTest::checkReduced(int factor, ArrayRef<NumberRange> ranges,
                               unsigned seed) {
  double neutral =
      rule.factors[factor].kind == FactorKind::Sum ? 0 : -kInfinity;
  Interpreter interpreter, without;
  draw(interpreter, factor, ranges, seed);
  SmallVector<NumberRange> masked(op->getNumOperands(),
                                  NumberRange::exactly(neutral));
  draw(without, factor, masked, seed);
  const Array &actual = interpreter.get(op->getResult(0));
  const Array &expected = without.get(op->getResult(0));
  for (auto [a, b] : llvm::zip_equal(actual.data, expected.data))
    EXPECT_NEAR(a, b, 1e-12 * (1 + std::abs(b)));
}

void PaddingTest::checkKept(int factor, ArrayRef<NumberRange> ranges,
                            ArrayRef<NumberRange> derived, unsigned seed) {
  Interpreter interpreter;
  draw(interpreter, factor, ranges, seed);
  for (auto [result, dims, range] :
       llvm::zip_equal(op->getResults(), rule.results, derived)) {
    Array array = interpreter.get(result);
    forEachIndex(ArrayRef<int64_t>(array.shape), [&](ArrayRef<int64_t> index) {
      if (isPadding(index, array.shape, dims, factor)) {
        EXPECT_TRUE(holds(range, array.at(index)))
            << array.at(index) << " is not in [" << range.low << ", "
            << range.high << "], special " << range.special;
      }
    });
  }
}

void PaddingTest::check(int factor, unsigned seed) {
  std::mt19937 generator(seed);
  SmallVector<NumberRange> ranges;
  for (auto [operand, dims] :
       llvm::zip_equal(op->getOperands(), rule.operands)) {
    bool drawn = llvm::is_contained(dims, factor) &&
                 !getElementTypeOrSelf(operand).isInteger();
    ranges.push_back(drawn ? contents[generator() % std::size(contents)]
                           : getUnpadded(operand.getType()));
  }
  auto derived = derivePadding(cast<ShardableOpInterface>(op), factor, ranges);
  FactorKind kind = rule.factors[factor].kind;
  if (kind == FactorKind::Parallel)
    checkKept(factor, ranges, derived, seed);
  else if (derived[0].is(kind == FactorKind::Sum ? 0 : -kInfinity))
    checkReduced(factor, ranges, seed);
}

TEST_P(PaddingTest, IsWhatIsDerived) {
  for (auto [index, factor] : llvm::enumerate(rule.factors)) {
    RankTerm begin{StringAttr::get(&context, "tp"), factor.size};
    if (factor.kind == FactorKind::Whole || factor.mustDivide)
      continue;
    Operation *original = op;
    op = OpBuilder(op).clone(*op);
    cast<ShardableOpInterface>(op).localizeFactor(index, begin,
                                                  factor.size - 1);
    for (unsigned seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE("factor " + factor.name + ", draw " + std::to_string(seed));
      check(index, seed);
    }
    op = original;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, PaddingTest, ::testing::ValuesIn(getCases()),
                         [](const auto &info) {
                           std::string name = info.param.getOpName();
                           llvm::replace(name, '.', '_');
                           return name + "_" + std::to_string(info.index);
                         });

TEST(PaddingCases, CoverAllOps) {
  MLIRContext context;
  context.loadDialect<nn::NNDialect>();
  llvm::StringSet<> covered;
  for (const Case &test : getCases())
    covered.insert(test.getOpName());
  for (RegisteredOperationName name :
       context.getRegisteredOperationsByDialect("nn"))
    if (name.hasInterface<ShardableOpInterface>())
      EXPECT_TRUE(covered.contains(name.getStringRef()))
          << name.getStringRef().str() << " has no case";
}

//===----------------------------------------------------------------------===//
// What has to be proven, lest there be masks in every layer
//===----------------------------------------------------------------------===//

namespace {
/// What `op` makes of zeros along the first dimension of its result.
NumberRange deriveOfZeros(const std::string &arguments, const std::string &op) {
  MLIRContext context;
  context.loadDialect<func::FuncDialect, nn::NNDialect>();
  auto module = parseSourceString<ModuleOp>(
      "func.func @f(" + arguments + ") {\n" + op + "\nreturn\n}", &context);
  auto shardable = cast<ShardableOpInterface>(
      cast<func::FuncOp>(module->lookupSymbol("f")).getBody().front().front());
  FactorRule rule = shardable.getFactorRule();
  int factor = rule.results[0][0];
  SmallVector<NumberRange> ranges;
  for (auto [operand, dims] :
       llvm::zip_equal(shardable->getOperands(), rule.operands))
    ranges.push_back(llvm::is_contained(dims, factor)
                         ? NumberRange::exactly(0)
                         : getUnpadded(operand.getType()));
  return derivePadding(shardable, factor, ranges)[0];
}
} // namespace

TEST(PaddingProofs, ZerosStayZeros) {
  for (const char *op :
       {"nn.tanh %x", "nn.erf %x", "nn.sqrt %x", "nn.gelu %x",
        "nn.gelu %x tanh", "nn.silu %x", "nn.mul %x, %x", "nn.add %x, %x",
        "nn.min %x, %x", "nn.gelu_grad %x, %x"})
    EXPECT_TRUE(deriveOfZeros("%x: tensor<3x4xf32>",
                              "%r = " + std::string(op) + " : tensor<3x4xf32>")
                    .is(0))
        << op;
  EXPECT_TRUE(deriveOfZeros("%x: tensor<3x4xf32>, %w: tensor<4x5xf32>",
                            "%r = nn.matmul %x, %w \"ij,jk->ik\" : "
                            "(tensor<3x4xf32>, tensor<4x5xf32>) -> "
                            "tensor<3x5xf32>")
                  .is(0));
  EXPECT_TRUE(deriveOfZeros("%x: tensor<3x4xf32>, %w: tensor<4xf32>",
                            "%r:2 = nn.rms_norm %x, %w epsilon 1.0e-05 : "
                            "(tensor<3x4xf32>, tensor<4xf32>) -> "
                            "(tensor<3x4xf32>, tensor<3xf32>)")
                  .is(0));
}

TEST(PaddingProofs, WhatIsNotZeroMayBeFinite) {
  for (const char *op : {"nn.exp %x", "nn.sigmoid %x", "nn.is_zero %x"}) {
    NumberRange range =
        deriveOfZeros("%x: tensor<3x4xf32>",
                      "%r = " + std::string(op) + " : tensor<3x4xf32>");
    EXPECT_TRUE(range.isFinite() && !range.contains(0)) << op;
  }
  EXPECT_TRUE(
      deriveOfZeros("%x: tensor<3x4xf32>, %w: tensor<4xf32>",
                    "%r:3 = nn.layer_norm %x, %w, %w epsilon 1.0e-05 : "
                    "(tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> "
                    "(tensor<3x4xf32>, tensor<3xf32>, tensor<3xf32>)")
          .isFinite());
  for (const char *op : {"nn.log %x", "nn.rsqrt %x", "nn.div %x, %x"})
    EXPECT_FALSE(deriveOfZeros("%x: tensor<3x4xf32>",
                               "%r = " + std::string(op) + " : tensor<3x4xf32>")
                     .isFinite())
        << op;
}

TEST(PaddingProofs, ManyNumbersMayOverflow) {
  EXPECT_TRUE(NumberRange::finite().sum().isFinite());
  EXPECT_TRUE(NumberRange::exactly(-1e20).sum().isFinite());
  // Two are 2e38, which f32 holds; four are not.
  EXPECT_FALSE(NumberRange::exactly(1e38).sum().isFinite());
  EXPECT_FALSE(NumberRange::exactly(-1e38).sum().isFinite());
}

TEST(PaddingProofs, AnEmbeddingFetchesARowForPaddingIds) {
  NumberRange range = deriveOfZeros(
      "%t: tensor<4x5xf32>, %i: tensor<3xi32>",
      "%r = nn.embedding %t, %i : (tensor<4x5xf32>, tensor<3xi32>) -> "
      "tensor<3x5xf32>");
  EXPECT_TRUE(range.isFinite() && range.contains(1));
}
