//===- ExpertsTest.cpp - Routing against its description ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace plait;
using namespace plait::test;

namespace {

/// The experts of one token, and their weights.
struct Routing {
  std::vector<int64_t> ids;
  std::vector<double> weights;
};

/// The chosen come first: a stable sort leaves equal scores in order.
Routing routeToken(std::vector<double> logits, const std::vector<double> &bias,
                   int64_t choices, nn::Scores kind, bool normalized) {
  std::vector<double> scores = logits, weights;
  auto softmax = [](std::vector<double> &list) {
    double sum = 0;
    for (double &x : list)
      sum += x = std::exp(x);
    for (double &x : list)
      x /= sum;
  };
  if (kind == nn::Scores::Softmax)
    softmax(scores);
  if (kind == nn::Scores::Sigmoid)
    for (double &x : scores)
      x = 1 / (1 + std::exp(-x));
  Routing routing;
  routing.ids.resize(scores.size());
  std::iota(routing.ids.begin(), routing.ids.end(), 0);
  std::stable_sort(routing.ids.begin(), routing.ids.end(),
                   [&](int64_t a, int64_t b) {
                     return scores[a] + bias[a] > scores[b] + bias[b];
                   });
  routing.ids.resize(choices);
  for (int64_t id : routing.ids)
    routing.weights.push_back(scores[id]);
  if (kind == nn::Scores::ChosenSoftmax)
    softmax(routing.weights);
  double sum =
      std::accumulate(routing.weights.begin(), routing.weights.end(), 0.0);
  for (double &x : routing.weights)
    x *= 2.5 / (normalized ? sum : 1);
  return routing;
}

} // namespace

/// Logits of few values, so that most experts share theirs with others.
TEST(Route, ChoosesTheHighestAndOfEqualOnesTheFirst) {
  constexpr int64_t tokens = 20, experts = 6;
  for (auto kind :
       {nn::Scores::Softmax, nn::Scores::Sigmoid, nn::Scores::ChosenSoftmax})
    for (int64_t choices : {1, 3, 6})
      for (bool hasBias : {false, true}) {
        GradientHarness test;
        Array logits = random({tokens, experts}, choices);
        for (double &x : logits.data)
          x = std::round(x);
        Array bias = random({experts}, 7);
        for (double &x : bias.data)
          x = hasBias ? std::round(x) / 2 : 0;
        auto op = nn::RouteOp::create(
            test.builder, test.nn.loc, test.type({tokens, choices}),
            RankedTensorType::get({tokens, choices}, test.builder.getI32Type()),
            test.input(logits), hasBias ? test.input(bias) : Value(), choices,
            kind, /*normalized=*/hasBias, test.builder.getF32FloatAttr(2.5));
        SmallVector<Value> parts = op.decompose(test.builder);
        Array weights = test.interpreter.get(parts[0]);
        Array ids = test.interpreter.get(parts[1]);
        for (int64_t token = 0; token < tokens; ++token) {
          auto row = logits.data.begin() + token * experts;
          Routing expected = routeToken({row, row + experts}, bias.data,
                                        choices, kind, hasBias);
          for (int64_t i = 0; i < choices; ++i) {
            EXPECT_EQ(ids.at({token, i}), expected.ids[i]);
            EXPECT_NEAR(weights.at({token, i}), expected.weights[i],
                        kTolerance);
          }
        }
      }
}
