//===- EliminateTest.cpp - Sums of tables, solved -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Eliminate.h"

#include "gtest/gtest.h"

using namespace plait;

namespace {

/// A hub with 64 neighbours of four values each. A table over them would have
/// 2^128 entries, which is 0 in 64 bits.
TEST(Eliminate, AHubComesAfterItsManyNeighbours) {
  constexpr int neighbours = 64, values = 4;
  CostNetwork network;
  int hub = network.addVariable(values);
  network.addCost(hub, [](int x) { return x == 2 ? 0 : 1000; });
  for (int i = 0; i < neighbours; ++i)
    network.addCost(hub, network.addVariable(values), [&](int x, int y) {
      return (y + i) % values == x ? 1 : 2;
    });
  double cost = 0;
  auto found = network.solve(cost);
  ASSERT_TRUE(found);
  EXPECT_EQ(cost, neighbours);
  EXPECT_EQ((*found)[hub], 2);
  for (int i = 0; i < neighbours; ++i)
    EXPECT_EQ(((*found)[1 + i] + i) % values, 2) << i;
}

/// Any two of as many variables: there is no small table to begin with.
TEST(Eliminate, RefusesWhatNeedsATableTooLarge) {
  constexpr int variables = 65, values = 4;
  CostNetwork network;
  for (int i = 0; i < variables; ++i)
    network.addVariable(values);
  for (int i = 0; i < variables; ++i)
    for (int j = 0; j < i; ++j)
      network.addCost(i, j, [](int x, int y) { return x == y; });
  double cost = 0;
  EXPECT_FALSE(network.solve(cost));
}

/// Costs of one pair, in both orders, and of each of its variables: as many
/// tables however many layers add to them, or solving would take longer for
/// each.
TEST(Eliminate, AddsUpCostsOfTheSameVariables) {
  CostNetwork network;
  int a = network.addVariable(2), b = network.addVariable(3);
  for (int layer = 0; layer < 100; ++layer) {
    network.addCost(a, b, [](int x, int y) { return x + y == 1 ? 1 : 2; });
    network.addCost(b, a, [](int y, int x) { return x == 1 ? 2 : 4; });
    network.addCost(a, [](int x) { return x == 0; });
    network.addCost(b, b,
                    [](int x, int y) { return x == 0 && y == 0 ? 3 : 1; });
  }
  ASSERT_EQ(network.getTables().size(), 3u);
  EXPECT_EQ(network.getTables()[0].costs,
            (std::vector<double>{600, 500, 600, 300, 400, 400}));
  double cost = 0;
  auto found = network.solve(cost);
  ASSERT_TRUE(found);
  EXPECT_EQ((*found)[a], 1);
  EXPECT_EQ((*found)[b], 1); // the first of two
  EXPECT_EQ(cost, 100 * (2 + 2 + 0 + 1));
  EXPECT_EQ(network.findCost(b, 0), 100 * (1 + 2 + 0 + 3));
  EXPECT_EQ(network.findCost(a, 0), 100 * (1 + 4 + 1 + 1));
}

} // namespace
