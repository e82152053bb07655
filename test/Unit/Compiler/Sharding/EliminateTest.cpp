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

} // namespace
