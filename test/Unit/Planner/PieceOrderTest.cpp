//===- PieceOrderTest.cpp - Pieces of a chain -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Support/PieceOrder.h"

#include "gtest/gtest.h"

#include <cmath>
#include <random>
#include <utility>

using namespace plait;

/// A step of `seconds`, which pieces divide without a loss.
static ChainLink makeLink(bool exchanges, double seconds, int pieces) {
  return {exchanges, seconds / pieces, seconds};
}

/// Computed, exchanged, computed, of one second each. Two pieces: 0.5 s of the
/// exchange are beside the first matmul's second piece, 0.5 beside the other
/// matmul's first.
TEST(PieceOrder, PiecesTakeTurns) {
  std::vector<ChainLink> chain{makeLink(false, 1, 2), makeLink(true, 1, 2),
                               makeLink(false, 1, 2)};
  EXPECT_DOUBLE_EQ(listWays(chain, 2).front().seconds, 2);
  std::vector<ChainLink> whole{makeLink(false, 1, 1), makeLink(true, 1, 1),
                               makeLink(false, 1, 1)};
  EXPECT_DOUBLE_EQ(listWays(whole, 1).front().seconds, 3);
}

/// Exchanged, computed, exchanged. Step by step, the last exchange would begin
/// behind both pieces of the first, which it does anyhow: 1 + 0.5 + 0.5 where
/// the matmul is as long.
TEST(PieceOrder, NothingIsExchangedBeforeItIsMade) {
  std::vector<ChainLink> chain{makeLink(true, 1, 2), makeLink(false, 1, 2),
                               makeLink(true, 1, 2)};
  EXPECT_DOUBLE_EQ(listWays(chain, 2).front().seconds, 2);
}

/// All pieces are there, those of a link and the links of a piece in order,
/// whatever the distance.
TEST(PieceOrder, KeepsLinksAndPiecesInOrder) {
  std::vector<ChainLink> chain;
  for (int link = 0; link < 6; ++link)
    chain.push_back(makeLink(link % 2, 1 + link, 4));
  for (double lag : {0.0, 0.1, 0.5, 1.0}) {
    std::vector<std::pair<size_t, size_t>> seen;
    forEachPiece(chain, {4, 6, lag, 0}, [&](size_t link, size_t piece) {
      for (auto [other, one] : seen) {
        EXPECT_FALSE(one == piece && other >= link);
        EXPECT_FALSE(other == link && one >= piece);
      }
      seen.push_back({link, piece});
      return true;
    });
    EXPECT_EQ(seen.size(), 24u);
  }
}

/// A matmul behind the last exchange that takes as long in a piece as whole is
/// not cut.
TEST(PieceOrder, WhatLosesBehindTheLastExchangeStaysWhole) {
  std::vector<ChainLink> chain{makeLink(true, 1, 4), {false, 1, 1}};
  ChainWay best = listWays(chain, 4).front();
  EXPECT_EQ(best.links, 1u);
  EXPECT_DOUBLE_EQ(best.seconds, 2);
}

/// Layers of one second computed and one exchanged: two pieces of a second each
/// take turns where one is half a layer behind the other, and wait for the
/// first half alone. Up to one layer they may be apart, not the whole run.
TEST(PieceOrder, PiecesGoThroughLayers) {
  std::vector<ChainLink> run;
  for (int layer = 0; layer < 8; ++layer)
    for (bool exchanges : {false, true})
      run.push_back({exchanges, 0.5, 1});
  EXPECT_DOUBLE_EQ(listWays(run, 2, 8).front().seconds, 8.5);
  for (const ChainWay &way : listWays(run, 2, 8))
    EXPECT_LE(way.lag, 1.0 / 8);
}

/// What ends early is as slow as `limit`, and nothing else ends early: the way
/// is that of the list, whatever is faster than it or not.
TEST(PieceOrder, FindsTheFastestWayOfTheList) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> seconds(0, 1);
  for (int round = 0; round < 200; ++round) {
    int pieces = 2 + round % 4;
    std::vector<ChainLink> chain;
    for (int link = 0; link < 2 + round % 7; ++link) {
      double whole = seconds(random);
      chain.push_back({seconds(random) < 0.4,
                       whole * (1 + seconds(random)) / pieces, whole});
    }
    ChainWay first = listWays(chain, pieces).front();
    ChainWay found = findFastestWay(chain, pieces, {1, 0, 0, 1e300});
    EXPECT_EQ(found.seconds, first.seconds);
    EXPECT_EQ(found.links, first.links);
    EXPECT_EQ(found.lag, first.lag);
    EXPECT_EQ(findFastestWay(chain, pieces, {1, 0, 0, first.seconds}).pieces,
              1);
    double slower = std::nextafter(first.seconds, 1e300);
    EXPECT_EQ(findFastestWay(chain, pieces, {1, 0, 0, slower}).lag, first.lag);
  }
}
