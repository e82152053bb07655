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

/// Takes experts out of sight whose group is not among the best two, by the sum
/// of the two best scores of each; of equal groups the first is better.
void keepGroups(std::vector<double> &ranked, size_t size) {
  std::vector<double> sums;
  for (auto group = ranked.begin(); group != ranked.end(); group += size) {
    std::vector<double> own(group, group + size);
    std::sort(own.rbegin(), own.rend());
    sums.push_back(own[0] + own[1]);
  }
  for (size_t group = 0; group < sums.size(); ++group) {
    int64_t before = 0;
    for (size_t other = 0; other < sums.size(); ++other)
      before += sums[other] > sums[group] ||
                (sums[other] == sums[group] && other < group);
    if (before >= 2)
      std::fill_n(ranked.begin() + group * size, size, -1e9);
  }
}

/// The chosen come first: a stable sort leaves equal scores in order. With
/// `size` groups of that many experts are chosen before.
Routing routeToken(std::vector<double> logits, const std::vector<double> &bias,
                   int64_t choices, nn::Scores kind, bool normalized,
                   size_t size) {
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
  std::vector<double> ranked = scores;
  for (size_t i = 0; i < ranked.size(); ++i)
    ranked[i] += bias[i];
  if (size)
    keepGroups(ranked, size);
  Routing routing;
  routing.ids.resize(scores.size());
  std::iota(routing.ids.begin(), routing.ids.end(), 0);
  std::stable_sort(routing.ids.begin(), routing.ids.end(),
                   [&](int64_t a, int64_t b) { return ranked[a] > ranked[b]; });
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
    for (auto [choices, groups] : {std::pair<int64_t, int64_t>{1, 0},
                                   {3, 0},
                                   {6, 0},
                                   {1, 3},
                                   {4, 3},
                                   {6, 2}})
      for (bool hasBias : {false, true}) {
        GradientHarness test;
        Array logits = random({tokens, experts}, choices);
        for (double &x : logits.data)
          x = std::round(x);
        Array bias = random({experts}, 7);
        for (double &x : bias.data)
          x = hasBias ? std::round(x) / 2 : 0;
        IntegerAttr kept, all;
        if (groups) {
          kept = test.builder.getI64IntegerAttr(2);
          all = test.builder.getI64IntegerAttr(groups);
        }
        auto op = nn::RouteOp::create(
            test.builder, test.nn.loc, test.type({tokens, choices}),
            RankedTensorType::get({tokens, choices}, test.builder.getI32Type()),
            test.input(logits), hasBias ? test.input(bias) : Value(), choices,
            kind, kept, all, /*normalized=*/hasBias,
            test.builder.getF32FloatAttr(2.5));
        SmallVector<Value> parts = op.decompose(test.builder);
        Array weights = test.interpreter.get(parts[0]);
        Array ids = test.interpreter.get(parts[1]);
        for (int64_t token = 0; token < tokens; ++token) {
          auto row = logits.data.begin() + token * experts;
          Routing expected =
              routeToken({row, row + experts}, bias.data, choices, kind,
                         hasBias, groups ? experts / groups : 0);
          for (int64_t i = 0; i < choices; ++i) {
            EXPECT_EQ(ids.at({token, i}), expected.ids[i]);
            EXPECT_NEAR(weights.at({token, i}), expected.weights[i],
                        kTolerance);
          }
        }
      }
}
