//===- PieceOrder.h - Pieces of a chain of steps ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In a forward pass of tensor parallelism everything between two attentions
// goes row by row: matmuls, kernels and what they exchange. Cut into pieces of
// rows, all of it is a chain that each piece goes through by itself, computed
// on one stream and exchanged on another. Each piece follows the one before it
// at some distance: at once, so that what is exchanged first is all that waits
// for the first matmul, or later, so that a piece is far ahead when the next
// one needs the stream.
//
// The pass that cuts and the planner ask the same functions.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_PIECEORDER_H
#define PLAIT_SUPPORT_PIECEORDER_H

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace plait {

/// What a kernel or a matmul takes on a GPU to begin and to end, of which the
/// rate of a large one says nothing: each piece takes it anew.
inline constexpr double kBeginSeconds = 4e-6;

/// A step of a chain.
struct ChainLink {
  bool exchanges; // on the stream of collectives
  double seconds; // of one piece
  double whole;   // of the step where it is not cut
};

/// A way to run a chain: its first `links` in pieces, of which each follows the
/// one before it by `lag` of the length of a piece, then the others, whole.
struct ChainWay {
  int pieces;
  size_t links;
  double lag;
  double seconds; // of all of the chain
};

/// Which piece of which link, as both streams run them.
using PieceOrder = std::vector<std::pair<size_t, int>>; // link, piece

/// Returns the pieces of a way in the order in which they begin. The links of a
/// piece keep their order, and so do the pieces of a link. What is computed
/// counts a tenth: collectives of two pieces then take turns, and a piece that
/// has begun matmuls goes through most of them before the next one does, so
/// that what these make is exchanged early.
inline PieceOrder orderPieces(const std::vector<ChainLink> &chain,
                              const ChainWay &way) {
  std::vector<double> begins{0};
  for (size_t link = 0; link < way.links; ++link)
    begins.push_back(begins.back() + chain[link].seconds *
                                         (chain[link].exchanges ? 1 : 0.1));
  double lag = way.lag * begins.back();
  std::vector<size_t> next(way.pieces);
  PieceOrder order;
  order.reserve(way.links * way.pieces);
  while (order.size() < way.links * way.pieces) {
    int first = -1;
    double least = 0;
    for (int piece = 0; piece < way.pieces; ++piece) {
      double begin = begins[next[piece]] + piece * lag;
      if (next[piece] < way.links && (first < 0 || begin < least)) {
        first = piece;
        least = begin;
      }
    }
    order.push_back({next[first]++, first});
  }
  return order;
}

/// Returns the seconds that the pieces take in an order. Either stream runs its
/// pieces one after the other, each when the piece's link before is done.
inline double getSeconds(const std::vector<ChainLink> &chain, int pieces,
                         const PieceOrder &order) {
  std::vector<double> ready(pieces);
  double free[2] = {0, 0}; // by stream
  for (auto [link, piece] : order) {
    double &stream = free[chain[link].exchanges];
    stream = std::max(stream, ready[piece]) + chain[link].seconds;
    ready[piece] = stream;
  }
  return std::max(free[0], free[1]);
}

/// Lists ways to run a chain in so many pieces, the fastest first. What comes
/// behind its last exchange may stay whole: it is beside none.
inline std::vector<ChainWay> listWays(const std::vector<ChainLink> &chain,
                                      int pieces) {
  constexpr int lags = 32;
  std::vector<ChainWay> ways;
  double rest = 0; // of what is whole
  for (size_t links = chain.size(); links > 0; --links) {
    for (int lag = 0; lag <= lags; ++lag) {
      ChainWay way{pieces, links, double(lag) / lags, 0};
      way.seconds = rest + getSeconds(chain, pieces, orderPieces(chain, way));
      ways.push_back(way);
    }
    if (chain[links - 1].exchanges)
      break;
    rest += chain[links - 1].whole;
  }
  std::stable_sort(ways.begin(), ways.end(),
                   [](const ChainWay &a, const ChainWay &b) {
                     return a.seconds < b.seconds;
                   });
  return ways;
}

} // namespace plait

#endif // PLAIT_SUPPORT_PIECEORDER_H
