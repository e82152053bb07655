//===- GradientTest.cpp - Vector-Jacobian products against differences ----===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include <functional>

using namespace mlir;
using namespace plait;
using namespace plait::test;

namespace {
/// How to build an op of inputs in the harness; returns the result that a
/// cotangent flows into.
struct Case {
  std::string name; // of the op, and what is special about it
  std::function<Value(GradientHarness &)> build;

  std::string getOpName() const { return name.substr(0, name.find(' ')); }
};

/// Ops that by their description pass no gradient.
const char *const constantOps[] = {"nn.is_zero", "nn.equal", "nn.greater",
                                   "nn.convert", "nn.stop_gradient"};
} // namespace

/// Numbers that logarithm and root are defined for.
static Array positive(ArrayRef<int64_t> shape) {
  Array array = random(shape, 3);
  for (double &x : array.data)
    x = 0.5 + x * x;
  return array;
}

template <typename OpTy> static Case unary(Array x = random({2, 3}, 1)) {
  return {OpTy::getOperationName().str(), [x](GradientHarness &test) {
            return test.nn.unary<OpTy>(test.input(x));
          }};
}

template <typename OpTy> static Case binary() {
  return {OpTy::getOperationName().str(), [](GradientHarness &test) {
            Value a = test.input(random({2, 3}, 1));
            Value b = test.input(positive({2, 3}));
            return test.nn.binary<OpTy>(a, b);
          }};
}

static std::vector<Case> getElementwiseCases() {
  std::vector<Case> cases = {unary<nn::NegOp>(),
                             unary<nn::ExpOp>(),
                             unary<nn::LogOp>(positive({2, 3})),
                             unary<nn::TanhOp>(),
                             unary<nn::SinOp>(),
                             unary<nn::CosOp>(),
                             unary<nn::ErfOp>(),
                             unary<nn::SqrtOp>(positive({2, 3})),
                             unary<nn::RsqrtOp>(positive({2, 3})),
                             unary<nn::SigmoidOp>(),
                             unary<nn::SiluOp>(),
                             binary<nn::AddOp>(),
                             binary<nn::SubOp>(),
                             binary<nn::MulOp>(),
                             binary<nn::DivOp>(),
                             binary<nn::MinOp>()};
  cases.push_back({"nn.scale", [](GradientHarness &test) {
                     return test.nn.scale(test.input(random({4}, 1)), -1.5);
                   }});
  cases.push_back({"nn.shift", [](GradientHarness &test) {
                     return test.nn.shift(test.input(random({4}, 1)), 2.5);
                   }});
  // The interpreter does not round, so differences see the gradient alone.
  cases.push_back({"nn.cast", [](GradientHarness &test) {
                     Value x = test.input(random({2, 3}, 1));
                     Value square = test.nn.mul(x, x);
                     return test.nn.widen(
                         test.nn.cast(square, test.builder.getBF16Type()));
                   }});
  for (bool tanh : {false, true})
    cases.push_back(
        {tanh ? "nn.gelu tanh" : "nn.gelu erf", [tanh](GradientHarness &test) {
           Value x = test.input(random({2, 5}, 1));
           return test.nn.unary<nn::GeluOp>(x, tanh ? test.builder.getUnitAttr()
                                                    : UnitAttr());
         }});
  return cases;
}

static Case matmul(const std::string &spec, ArrayRef<int64_t> lhs,
                   ArrayRef<int64_t> rhs) {
  SmallVector<int64_t> left(lhs), right(rhs);
  return {"nn.matmul " + spec, [=](GradientHarness &test) {
            Value a = test.input(random(left, 1));
            Value b = test.input(random(right, 2));
            return test.nn.matmul(a, b, spec);
          }};
}

static Case reduce(nn::ReduceKind kind, ArrayRef<int64_t> dims) {
  SmallVector<int64_t> list(dims);
  std::string name = kind == nn::ReduceKind::Sum ? "sum" : "max";
  return {"nn.reduce " + name, [=](GradientHarness &test) {
            return test.nn.reduce(test.input(random({2, 3, 4}, 1)), list, kind);
          }};
}

/// A site of the tests' model.
static constexpr int64_t kSite = 3;

static std::vector<Case> getShapeCases() {
  std::vector<Case> cases = {
      matmul("bsh,hgrd->bsgrd", {2, 3, 4}, {4, 2, 1, 3}),
      matmul("bsgrd,hgrd->bsh", {2, 3, 2, 1, 3}, {4, 2, 1, 3}),
      matmul("bgrst,btgd->bsgrd", {2, 2, 1, 3, 4}, {2, 4, 2, 3}),
      reduce(nn::ReduceKind::Sum, {0, 2}), reduce(nn::ReduceKind::Max, {1})};
  cases.push_back({"nn.broadcast", [](GradientHarness &test) {
                     Value x = test.input(random({3, 2}, 1));
                     return test.nn.broadcast(x, {3, 4, 2}, {0, 2});
                   }});
  cases.push_back({"nn.broadcast in another order", [](GradientHarness &test) {
                     Value x = test.input(random({3, 2, 4}, 1));
                     return test.nn.broadcast(x, {3, 4, 2, 5}, {0, 2, 1});
                   }});
  cases.push_back({"nn.embedding", [](GradientHarness &test) {
                     Value table = test.input(random({5, 2}, 1));
                     Value ids = test.ids({2, 3}, {1, 4, 1, 0, -100, 1});
                     Value y = nn::EmbeddingOp::create(
                         test.builder, test.nn.loc, test.type({2, 3, 2}), table,
                         ids, nn::BeginAttr());
                     return y;
                   }});
  cases.push_back({"nn.dropout", [](GradientHarness &test) {
                     Value x = test.input(random({2, 3, 5}, 1));
                     Value keys = test.ids({2}, {12345, -678});
                     Builder &b = test.builder;
                     return test.nn.unary<nn::DropoutOp>(
                         x, keys, b.getF64FloatAttr(0.4),
                         b.getI64IntegerAttr(kSite), ArrayAttr());
                   }});
  for (bool inverse : {false, true})
    cases.push_back({inverse ? "nn.reorder inverse" : "nn.reorder",
                     [inverse](GradientHarness &test) {
                       Value x = test.input(random({2, 12, 3}, 1));
                       Builder &b = test.builder;
                       return test.nn.unary<nn::ReorderOp>(
                           x, b.getI64IntegerAttr(1), b.getI64IntegerAttr(6),
                           inverse ? b.getUnitAttr() : UnitAttr());
                     }});
  cases.push_back({"nn.pick", [](GradientHarness &test) {
                     Value x = test.input(random({3, 4}, 1));
                     Value ids = test.ids({3}, {2, -100, 0});
                     Value y = nn::PickOp::create(test.builder, test.nn.loc,
                                                  x.getType(), x, ids,
                                                  nn::BeginAttr());
                     return y;
                   }});
  return cases;
}

/// Rows of experts 0 and 2, of none, and two of one token.
static Case grouped(const std::string &spec, ArrayRef<int64_t> lhs,
                    ArrayRef<int64_t> rhs, ArrayRef<int64_t> result) {
  SmallVector<int64_t> left(lhs), right(rhs), shape(result);
  return {"nn.grouped_matmul " + spec, [=](GradientHarness &test) {
            Value a = test.input(random(left, 1));
            Value b = test.input(random(right, 2));
            Value ids = test.ids({2, 2}, {0, 2, -1, 2});
            Value y = nn::GroupedMatmulOp::create(
                test.builder, test.nn.loc, test.type(shape), a, b, ids,
                test.builder.getStringAttr(spec), nn::BeginAttr());
            return y;
          }};
}

/// The weights of a routing; ids pass nothing. With `groups` experts lie in
/// that many, of which two are kept.
static Case route(nn::Scores scores, bool normalized, int64_t groups = 0) {
  return {"nn.route " + nn::stringifyScores(scores).str() +
              (groups ? " of groups" : ""),
          [=](GradientHarness &test) {
            Value x = test.input(random({2, 3, groups ? 2 * groups : 5}, 1));
            IntegerAttr kept, all;
            if (groups) {
              kept = test.builder.getI64IntegerAttr(2);
              all = test.builder.getI64IntegerAttr(groups);
            }
            auto op = nn::RouteOp::create(
                test.builder, test.nn.loc, test.type({2, 3, 2}),
                RankedTensorType::get({2, 3, 2}, test.builder.getI32Type()), x,
                /*bias=*/Value(), 2, scores, kept, all, normalized,
                test.builder.getF32FloatAttr(2.5));
            Value weights = op.decompose(test.builder)[0];
            op->erase();
            return weights;
          }};
}

static Case attention(const std::string &name, int64_t heads) {
  return {"nn.attention " + name, [heads, name](GradientHarness &test) {
            Value q = test.input(random({2, 5, 2, heads, 4}, 1));
            Value k = test.input(random({2, 5, 2, 4}, 2));
            Value v = test.input(random({2, 5, 2, 4}, 3));
            bool windowed = name == "window" || name == "near";
            bool both = name == "bidirectional" || name == "near";
            bool drops = name == "dropout";
            // Documents of 2, 2 and 1 tokens, and of 1, 2 and 2.
            Value starts = name == "documents"
                               ? test.ids({2, 5}, {0, 0, 2, 2, 4, //
                                                   0, 1, 1, 3, 3})
                               : Value();
            auto score = nn::ScoreAttr::get(
                &test.context, test.builder.getF32FloatAttr(0.5),
                windowed ? test.builder.getI64IntegerAttr(2) : IntegerAttr(),
                both,
                name == "soft cap" ? test.builder.getF32FloatAttr(0.8)
                                   : FloatAttr());
            Value sinks =
                name == "sinks" ? test.input(random({2, heads}, 4)) : Value();
            auto op = nn::AttentionOp::create(
                test.builder, test.nn.loc, q.getType(),
                test.type({2, 2, heads, 5}), q, k, v, starts, sinks,
                drops ? test.ids({2}, {12345, -678}) : Value(), score,
                nn::BeginAttr(),
                drops ? test.builder.getF64FloatAttr(0.4) : FloatAttr(),
                drops ? test.builder.getI64IntegerAttr(kSite) : IntegerAttr(),
                nn::BeginAttr());
            return Value(op.getOut());
          }};
}

static Case rope(bool inverse) {
  return {inverse ? "nn.rope inverse" : "nn.rope",
          [inverse](GradientHarness &test) {
            Value x = test.input(random({2, 3, 2, 4}, 1));
            Builder &b = test.builder;
            auto scaling = nn::RopeScalingAttr::get(
                &test.context, b.getF64FloatAttr(8.0), b.getF64FloatAttr(1.0),
                b.getF64FloatAttr(4.0), 64);
            return test.nn.unary<nn::RopeOp>(
                x, b.getF64FloatAttr(100.0), scaling, nn::YarnAttr(),
                IntegerAttr(), inverse ? b.getUnitAttr() : UnitAttr(),
                nn::BeginAttr());
          }};
}

/// The last pair of three turns, stretched.
static Case yarn(bool inverse) {
  return {inverse ? "nn.rope yarn inverse" : "nn.rope yarn",
          [inverse](GradientHarness &test) {
            Value x = test.input(random({2, 3, 2, 6}, 1));
            Builder &b = test.builder;
            auto number = [&](double x) { return b.getF64FloatAttr(x); };
            auto attr =
                nn::YarnAttr::get(&test.context, number(8.0), number(-0.5),
                                  number(1.5), number(1.25));
            return test.nn.unary<nn::RopeOp>(
                x, number(100.0), nn::RopeScalingAttr(), attr,
                b.getI64IntegerAttr(2), inverse ? b.getUnitAttr() : UnitAttr(),
                nn::BeginAttr());
          }};
}

static std::vector<Case> getModelCases() {
  std::vector<Case> cases = {attention("grouped", 3),
                             attention("window", 1),
                             attention("dropout", 2),
                             attention("documents", 2),
                             attention("bidirectional", 2),
                             attention("soft cap", 2),
                             attention("sinks", 3),
                             attention("near", 1),
                             rope(false),
                             rope(true),
                             yarn(false),
                             yarn(true)};
  // Rows that share one of lhs, rows of their own, and the two gradients.
  cases.push_back(grouped("th,efh->tcf", {2, 3}, {3, 4, 3}, {2, 2, 4}));
  cases.push_back(grouped("tcf,efh->tch", {2, 2, 4}, {3, 4, 3}, {2, 2, 3}));
  cases.push_back(grouped("th,tcf->efh", {2, 3}, {2, 2, 4}, {3, 4, 3}));
  cases.push_back(grouped("tch,tcf->ehf", {2, 2, 3}, {2, 2, 4}, {3, 3, 4}));
  cases.push_back(route(nn::Scores::Softmax, true));
  cases.push_back(route(nn::Scores::Sigmoid, true));
  cases.push_back(route(nn::Scores::ChosenSoftmax, false));
  cases.push_back(route(nn::Scores::Sigmoid, true, /*groups=*/3));
  cases.push_back({"nn.layer_norm", [](GradientHarness &test) {
                     Value x = test.input(random({2, 3, 7}, 1));
                     Value w = test.input(random({7}, 2));
                     Value b = test.input(random({7}, 3));
                     auto rows = test.type({2, 3});
                     auto op = nn::LayerNormOp::create(
                         test.builder, test.nn.loc, x.getType(), rows, rows, x,
                         w, b, test.builder.getF32FloatAttr(1e-5));
                     return Value(op.getOut());
                   }});
  cases.push_back({"nn.rms_norm", [](GradientHarness &test) {
                     Value x = test.input(random({2, 3, 7}, 1));
                     Value w = test.input(random({7}, 2));
                     auto op = nn::RMSNormOp::create(
                         test.builder, test.nn.loc, x.getType(),
                         test.type({2, 3}), x, w,
                         test.builder.getF32FloatAttr(1e-5));
                     return Value(op.getOut());
                   }});
  return cases;
}

static std::vector<Case> getCases() {
  std::vector<Case> all = getElementwiseCases();
  for (const auto &more : {getShapeCases(), getModelCases()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

class GradientTest : public ::testing::TestWithParam<Case> {};

TEST_P(GradientTest, AgreesWithCentralDifferences) {
  GradientHarness test;
  Value result = GetParam().build(test);
  test.checkGradients(result);
}

INSTANTIATE_TEST_SUITE_P(Ops, GradientTest, ::testing::ValuesIn(getCases()),
                         [](const auto &info) {
                           std::string name = info.param.name;
                           for (char &c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c)))
                               c = '_';
                           return name;
                         });

/// A new op with a gradient has to be added above.
TEST(GradientCoverage, EveryDifferentiableOpHasACase) {
  GradientHarness test;
  std::vector<Case> cases = getCases();
  for (RegisteredOperationName op : test.context.getRegisteredOperations()) {
    StringRef name = op.getStringRef();
    if (!op.hasInterface<DifferentiableOpInterface>() ||
        llvm::is_contained(constantOps, name))
      continue;
    EXPECT_TRUE(llvm::any_of(
        cases, [&](const Case &c) { return c.getOpName() == name; }))
        << name.str() << " has no gradient test";
  }
}

/// Those that pass none say so.
TEST(GradientCoverage, ConstantOpsPassNothing) {
  GradientHarness test;
  Value x = test.input(random({3}, 1));
  Value y = test.nn.unary<nn::StopGradientOp>(test.nn.unary<nn::IsZeroOp>(x));
  Value z = test.nn.widen(test.nn.equal(y, x));
  Value ones = test.nn.fillLike(z, 1.0);
  auto gradients = differentiate(*test.module->getBody(), z, ones);
  EXPECT_FALSE(gradients.lookup(x));
}
