//===- DropoutTest.cpp - Kernels draw the masks that the op describes -----===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "gtest/gtest.h"

#include "mlir/Parser/Parser.h"

#include <cmath>

using namespace plait;
using namespace plait::test;

/// What an element is multiplied with, from the description of nn.dropout.
static float keptFactor(int32_t key, std::initializer_list<int64_t> numbers,
                        double probability) {
  uint32_t hash = static_cast<uint32_t>(key);
  for (int64_t number : numbers) {
    hash += 0x9e3779b9u * static_cast<uint32_t>(number);
    hash ^= hash >> 16;
    hash *= 0x7feb352du;
    hash ^= hash >> 15;
    hash *= 0x846ca68bu;
    hash ^= hash >> 16;
  }
  return hash < (1.0 - probability) * 4294967296.0
             ? static_cast<float>(1.0 / (1.0 - probability))
             : 0.0f;
}

/// The scalars of a call on the rank of index 2 along every axis.
static std::vector<int64_t> scalarsOf(const codegen::KernelInfo &info) {
  std::vector<int64_t> scalars;
  for (const codegen::RankScalar &scalar : info.scalars)
    scalars.push_back(scalar.bias + 2 * scalar.scale);
  return scalars;
}

namespace {
class Dropout : public testing::TestWithParam<std::tuple<int64_t, int64_t>> {
protected:
  int64_t rows = std::get<0>(GetParam()), columns = std::get<1>(GetParam());
  std::string sized(std::string text) {
    return test::sized(std::move(text), rows, columns);
  }
  /// Three sequences.
  void setKeys(Buffer &keys) {
    keys.ints()[0] = 0;
    keys.ints()[1] = -559038737;
    keys.ints()[2] = 1;
  }
};
} // namespace

INSTANTIATE_TEST_SUITE_P(Sizes, Dropout,
                         testing::Combine(testing::Values(1, 3, 5),
                                          testing::Values(1, 7, 33, 64, 1000)));

TEST_P(Dropout, Elementwise) {
  Kernel kernel({{sized("tensor<3xRxCxf32>"), "tensor<3xi32>"},
                 {sized("tensor<3xRxCxf32>")},
                 sized(R"(
    %s = nn.dropout %0, %1 probability 0.3 site 6 : tensor<3xRxCxf32>, tensor<3xi32>
    %y = nn.add %s, %0 : tensor<3xRxCxf32>
    plan.yield %y : tensor<3xRxCxf32>)")});
  Buffer x(3 * rows * columns), keys(3), y(3 * rows * columns);
  x.randomize(1), setKeys(keys), y.fill(NAN);
  kernel({&x, &keys, &y}, scalarsOf(kernel.info));
  for (int64_t b = 0, at = 0; b < 3; ++b)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c, ++at)
        ASSERT_NEAR(y[at],
                    x[at] * (1 + keptFactor(keys.ints()[b], {6, r, c}, 0.3)),
                    1e-6)
            << b << ", " << r << ", " << c;
  kernel.expectSplit({&x, &keys, &y}, 2, scalarsOf(kernel.info));
}

/// Indices are those of the whole tensor, in the softmax's company.
TEST_P(Dropout, BlockOfSoftmax) {
  Kernel kernel({{sized("tensor<3x2xRxCxf32>"), "tensor<3xi32>"},
                 {sized("tensor<3x2xRxCxf32>")},
                 sized(R"(
    %x = nn.exp %0 : tensor<3x2xRxCxf32>
    %t = nn.reduce sum %x dims [3] : tensor<3x2xRxCxf32> -> tensor<3x2xRxf32>
    %b = nn.broadcast %t dims [0, 1, 2] : tensor<3x2xRxf32> -> tensor<3x2xRxCxf32>
    %p = nn.div %x, %b : tensor<3x2xRxCxf32>
    %y = nn.dropout %p, %1 probability 0.5 site 2147483647 {begins = [unit, #nn.begin<"tp" * 2>, #nn.begin<"cp" * 7, "tp" * 100>, unit]} : tensor<3x2xRxCxf32>, tensor<3xi32>
    plan.yield %y : tensor<3x2xRxCxf32>)")});
  Buffer x(6 * rows * columns), keys(3), y(6 * rows * columns);
  x.randomize(1), setKeys(keys), y.fill(NAN);
  kernel({&x, &keys, &y}, scalarsOf(kernel.info));
  for (int64_t b = 0, at = 0; b < 3; ++b)
    for (int64_t g = 0; g < 2; ++g)
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t c = 0; c < columns; ++c)
          sum += std::exp(x[at + c]);
        for (int64_t c = 0; c < columns; ++c, ++at)
          ASSERT_NEAR(y[at],
                      std::exp(x[at]) / sum *
                          keptFactor(keys.ints()[b],
                                     {2147483647, 4 + g, 214 + r, c}, 0.5),
                      2e-6)
              << b << ", " << g << ", " << r << ", " << c;
      }
  kernel.expectSplit({&x, &keys, &y}, 2, scalarsOf(kernel.info));
}

/// A probability that rounds to none drops nothing, not one in 2^32.
TEST(DropoutKernels, OfNextToNothing) {
  Kernel kernel({{"tensor<1x64xf32>", "tensor<1xi32>"},
                 {"tensor<1x64xf32>"},
                 R"(
    %y = nn.dropout %0, %1 probability 1.0e-12 site 0 : tensor<1x64xf32>, tensor<1xi32>
    plan.yield %y : tensor<1x64xf32>)"});
  Buffer x(64), keys(1), y(64);
  x.randomize(1), y.fill(NAN);
  keys.ints()[0] = 7;
  kernel({&x, &keys, &y}, scalarsOf(kernel.info));
  for (int64_t at = 0; at < 64; ++at)
    EXPECT_EQ(y[at], x[at]);
}

/// Dropouts of other sites share a kernel, and are told apart when it is
/// called; other probabilities are other kernels.
TEST(DropoutKernels, SitesShareOne) {
  mlir::MLIRContext context;
  context.loadDialect<nn::NNDialect, plan::PlanDialect>();
  auto body = [](const std::string &site, const std::string &probability) {
    return "plan.cluster(%x, %k) : (tensor<2x8xf32>, tensor<2xi32>) -> "
           "tensor<2x8xf32> {\n^bb0(%0: tensor<2x8xf32>, %1: tensor<2xi32>):\n"
           "%y = nn.dropout %0, %1 probability " +
           probability + " site " + site +
           " : tensor<2x8xf32>, tensor<2xi32>\n"
           "plan.yield %y : tensor<2x8xf32>\n}\n";
  };
  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      "%x = nn.fill 1.0 : tensor<2x8xf32>\n%k = nn.iota along 0 : "
      "tensor<2xi32>\n%a = " +
          body("3", "0.1") + "%b = " + body("8", "0.1") +
          "%c = " + body("3", "0.2"),
      &context);
  ASSERT_TRUE(module);
  auto library = codegen::KernelLibrary::create(&context, defaultTarget());
  std::vector<codegen::KernelInfo> infos;
  module->walk([&](plan::ClusterOp cluster) {
    auto info = library->add(cluster);
    ASSERT_TRUE(mlir::succeeded(info));
    infos.push_back(*info);
  });
  ASSERT_EQ(infos.size(), 3u);
  EXPECT_EQ(infos[0].symbol, infos[1].symbol);
  EXPECT_NE(infos[0].symbol, infos[2].symbol);
  ASSERT_EQ(infos[0].scalars.size(), 1u);
  EXPECT_EQ(infos[0].scalars[0].bias, 3);
  EXPECT_EQ(infos[1].scalars[0].bias, 8);
}
