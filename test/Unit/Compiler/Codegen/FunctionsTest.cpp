//===- FunctionsTest.cpp - Accuracy, sharing, determinism -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "gtest/gtest.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <cmath>
#include <sstream>

using namespace plait;
using namespace plait::test;

/// The largest relative error of `op` against libm over [low, high], absolute
/// below `floor`.
static double measure(const std::string &op, double (*exact)(double), float low,
                      float high, double floor) {
  const int64_t count = 1 << 16;
  Kernel kernel({{"tensor<65536xf32>"},
                 {"tensor<65536xf32>"},
                 "%y = nn." + op +
                     " %0 : tensor<65536xf32>\nplan.yield %y : "
                     "tensor<65536xf32>"});
  Buffer x(count), y(count);
  x.randomize(1, low, high);
  kernel({&x, &y});
  double worst = 0;
  for (int64_t index = 0; index < count; ++index) {
    double want = exact(x[index]);
    worst = std::max(worst, std::abs(y[index] - want) /
                                std::max(floor, std::abs(want)));
  }
  testing::Test::RecordProperty(op, (std::ostringstream() << worst).str());
  return worst;
}

TEST(Functions, Accuracy) {
  EXPECT_LT(measure("exp", std::exp, -80, 80, 1e-37), 3e-7);
  EXPECT_LT(measure("log", std::log, 1e-30f, 10, 1), 3e-7);
  EXPECT_LT(measure("log", std::log, 1, 1e30f, 1), 3e-7);
  EXPECT_LT(measure("tanh", std::tanh, -10, 10, 1e-3), 1e-6);
  EXPECT_LT(measure("sin", std::sin, -1000, 1000, 1), 3e-7);
  EXPECT_LT(measure("cos", std::cos, -1000, 1000, 1), 3e-7);
  EXPECT_LT(measure("erf", std::erf, -5, 5, 1e-3), 1e-6);
  EXPECT_LT(measure("sqrt", std::sqrt, 0, 100, 1e-3), 2e-7);
}

/// Values at the ends: a mask is minus infinity, a diverged loss NaN.
TEST(Functions, NotFinite) {
  auto apply = [](const std::string &op, float value) {
    Kernel kernel({{"tensor<3xf32>"},
                   {"tensor<3xf32>"},
                   "%y = nn." + op +
                       " %0 : tensor<3xf32>\nplan.yield %y : tensor<3xf32>"});
    Buffer x(3), y(3);
    x.fill(value);
    kernel({&x, &y});
    return y[1];
  };
  EXPECT_EQ(apply("exp", -INFINITY), 0.0f);
  EXPECT_EQ(apply("exp", INFINITY), INFINITY);
  EXPECT_EQ(apply("exp", -200.0f), 0.0f);
  EXPECT_EQ(apply("log", 0.0f), -INFINITY);
  EXPECT_EQ(apply("sigmoid", -INFINITY), 0.0f);
  EXPECT_EQ(apply("tanh", INFINITY), 1.0f);
  for (const char *op :
       {"exp", "log", "tanh", "sin", "cos", "erf", "sqrt", "sigmoid"})
    EXPECT_TRUE(std::isnan(apply(op, NAN))) << op;
}

/// A NaN among the numbers is the maximum, as in the frameworks.
TEST(Functions, MaximumOfNan) {
  Kernel kernel({{"tensor<2x100xf32>", "tensor<2x100xf32>"},
                 {"tensor<2xf32>"},
                 R"(
    %s = nn.add %0, %1 : tensor<2x100xf32>
    %m = nn.reduce max %s dims [1] : tensor<2x100xf32> -> tensor<2xf32>
    plan.yield %m : tensor<2xf32>)"});
  Buffer x(200), z(200), y(2);
  x.randomize(1), z.fill(0);
  x[40] = NAN, x[150] = 7;
  kernel({&x, &z, &y});
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 7.0f);
}

static const char *const kTwins = R"(
  func.func @f(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>) {
    %0 = plan.cluster(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%x: tensor<4x8xf32>):
      %y = nn.scale %x by 2.0 {nn.layer = 0 : i64} : tensor<4x8xf32>
      plan.yield %y : tensor<4x8xf32>
    }
    %1 = plan.cluster(%b) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%x: tensor<4x8xf32>):
      %y = nn.scale %x by 2.0 {nn.layer = 1 : i64} : tensor<4x8xf32>
      plan.yield %y : tensor<4x8xf32>
    }
    %2 = plan.cluster(%b) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%x: tensor<4x8xf32>):
      %y = nn.scale %x by 3.0 : tensor<4x8xf32>
      plan.yield %y : tensor<4x8xf32>
    }
    %3 = plan.cluster(%b) accumulate [1] : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%x: tensor<4x8xf32>):
      %y = nn.scale %x by 3.0 : tensor<4x8xf32>
      plan.yield %y : tensor<4x8xf32>
    }
    return
  })";

TEST(Library, EqualClustersShareAKernelAndBytesRepeat) {
  mlir::MLIRContext context;
  context
      .loadDialect<nn::NNDialect, plan::PlanDialect, mlir::func::FuncDialect>();
  std::vector<char> before;
  for (int run = 0; run < 2; ++run) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(kTwins, &context);
    ASSERT_TRUE(module);
    auto library = codegen::KernelLibrary::create(&context, defaultTarget());
    std::vector<std::string> symbols;
    module->walk([&](plan::ClusterOp op) {
      auto info = library->add(op);
      ASSERT_TRUE(mlir::succeeded(info));
      symbols.push_back(info->symbol);
    });
    EXPECT_EQ(symbols[0], symbols[1]);
    EXPECT_NE(symbols[0], symbols[2]);
    EXPECT_NE(symbols[2], symbols[3]);
    auto code = library->finish();
    ASSERT_TRUE(mlir::succeeded(code));
    if (run)
      EXPECT_EQ(before, code->front().data);
    before = code->front().data;
  }
}

/// A weaker processor has fewer lanes, not other results.
TEST(Library, EveryLevelComputesTheSame) {
  Cluster cluster{{"tensor<3x97xf32>"},
                  {"tensor<3x97xf32>"},
                  R"(
    %e = nn.exp %0 : tensor<3x97xf32>
    %s = nn.reduce sum %e dims [1] : tensor<3x97xf32> -> tensor<3xf32>
    %b = nn.broadcast %s dims [0] : tensor<3xf32> -> tensor<3x97xf32>
    %y = nn.div %e, %b : tensor<3x97xf32>
    plan.yield %y : tensor<3x97xf32>)"};
  Buffer x(291), y(291);
  x.randomize(1);
  std::string host = codegen::TargetCPU::getHost().name;
  for (const char *level : {"x86-64-v3", "x86-64-v4"}) {
    if (level > host)
      break;
    Kernel kernel(cluster, codegen::TargetCPU{level, ""});
    kernel({&x, &y});
    for (int row = 0; row < 3; ++row) {
      double sum = 0;
      for (int j = 0; j < 97; ++j)
        sum += std::exp(double(x[row * 97 + j]));
      for (int j = 0; j < 97; ++j) {
        double want = std::exp(double(x[row * 97 + j])) / sum;
        EXPECT_NEAR(y[row * 97 + j], want, 1e-6 * want) << level;
      }
    }
  }
}

TEST(Library, OldProcessorsAreRefused) {
  Kernel kernel({{"tensor<4xf32>"},
                 {"tensor<4xf32>"},
                 "%y = nn.neg %0 : tensor<4xf32>\n"
                 "plan.yield %y : tensor<4xf32>"},
                codegen::TargetCPU{"x86-64-v2", ""});
  EXPECT_NE(kernel.errors.find("'x86-64-v2': kernels need avx2 and fma"),
            std::string::npos)
      << kernel.errors;
}

TEST(Library, FeaturesOfALevel) {
  mlir::MLIRContext context;
  auto library = codegen::KernelLibrary::create(
      &context, codegen::TargetCPU{"x86-64-v3", ""});
  auto code = library->finish();
  ASSERT_TRUE(mlir::succeeded(code));
  const std::vector<std::string> &features = code->front().features;
  EXPECT_TRUE(llvm::is_contained(features, "avx2"));
  EXPECT_TRUE(llvm::is_contained(features, "fma"));
  EXPECT_FALSE(llvm::is_contained(features, "avx512f"));
}
