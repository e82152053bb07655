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
// Pieces of whole sequences go through attentions, too, and through one layer
// after the other.
//
// The pass that cuts and the planner ask the same functions.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_PIECEORDER_H
#define PLAIT_SUPPORT_PIECEORDER_H

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace plait {

/// Seconds that a kernel or a matmul takes on a GPU to begin and to end, of
/// which the rate of a large one says nothing: each piece takes it anew.
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

/// Calls `visit` with each piece of a way's links, in the order in which they
/// begin, until it returns false. The links of a piece keep their order, and so
/// do the pieces of a link. What is computed counts a tenth: collectives of two
/// pieces then take turns, and a piece that has begun matmuls goes through most
/// of them before the next one does, so that what these make is exchanged
/// early.
template <typename Visit>
void forEachPiece(const std::vector<ChainLink> &chain, const ChainWay &way,
                  Visit visit) {
  auto getLength = [&](size_t link) {
    return chain[link].seconds * (chain[link].exchanges ? 1 : 0.1);
  };
  double length = 0;
  for (size_t link = 0; link < way.links; ++link)
    length += getLength(link);
  std::vector<size_t> next(way.pieces);
  std::vector<double> begins(way.pieces);
  for (int piece = 0; piece < way.pieces; ++piece)
    begins[piece] = piece * way.lag * length;
  for (size_t count = way.links * way.pieces; count > 0; --count) {
    size_t piece =
        std::min_element(begins.begin(), begins.end()) - begins.begin();
    size_t link = next[piece]++;
    if (!visit(link, piece))
      return;
    begins[piece] =
        next[piece] < way.links ? begins[piece] + getLength(link) : 1e300;
  }
}

/// Returns the seconds that the pieces of a way take. Either stream runs its
/// own one after the other, each when the piece's link before is done. What
/// takes `limit` seconds or more ends where what is left of a stream says so,
/// and takes forever.
inline double
getSeconds(const std::vector<ChainLink> &chain, const ChainWay &way,
           double limit = std::numeric_limits<double>::infinity()) {
  constexpr double rounding = 1 - 1e-9; // of sums in another order
  std::vector<double> ready(way.pieces);
  double free[2] = {0, 0}, left[2] = {0, 0}; // by stream
  for (size_t link = 0; link < way.links; ++link)
    left[chain[link].exchanges] += way.pieces * chain[link].seconds;
  bool isSlow = false;
  forEachPiece(chain, way, [&](size_t link, size_t piece) {
    size_t own = chain[link].exchanges;
    free[own] = std::max(free[own], ready[piece]) + chain[link].seconds;
    ready[piece] = free[own];
    left[own] -= chain[link].seconds;
    isSlow = rounding * (free[own] + left[own]) >= limit;
    return !isSlow;
  });
  return isSlow ? std::numeric_limits<double>::infinity()
                : std::max(free[0], free[1]);
}

/// Calls `visit` with the ways to run a chain of some layers in so many pieces:
/// pieces are up to one layer apart. What comes behind its last exchange is
/// beside none: from the first matmul on that takes half as long again in
/// pieces, it may stay whole. The seconds are of what stays whole.
template <typename Visit>
void forEachWay(const std::vector<ChainLink> &chain, int pieces, int layers,
                Visit visit) {
  constexpr int lags = 16;
  size_t whole = chain.size(); // from there on
  for (size_t link = chain.size(); link > 0 && !chain[link - 1].exchanges;
       --link)
    if (pieces * chain[link - 1].seconds > 1.5 * chain[link - 1].whole)
      whole = link - 1;
  double rest = 0; // of what is whole
  for (size_t link = whole; link < chain.size(); ++link)
    rest += chain[link].whole;
  auto add = [&](size_t links, double behind) {
    for (int lag = 0; lag <= lags; ++lag)
      visit(ChainWay{pieces, links, double(lag) / (lags * layers), behind});
  };
  add(chain.size(), 0);
  if (whole < chain.size())
    add(whole, rest);
}

/// Lists the ways of forEachWay(), the fastest first.
inline std::vector<ChainWay> listWays(const std::vector<ChainLink> &chain,
                                      int pieces, int layers = 1) {
  std::vector<ChainWay> ways;
  forEachWay(chain, pieces, layers, [&](ChainWay way) {
    way.seconds += getSeconds(chain, way);
    ways.push_back(way);
  });
  std::stable_sort(ways.begin(), ways.end(),
                   [](const ChainWay &a, const ChainWay &b) {
                     return a.seconds < b.seconds;
                   });
  return ways;
}

/// Returns the first way of listWays() where that is faster than `best`, and
/// else `best`.
inline ChainWay findFastestWay(const std::vector<ChainLink> &chain, int pieces,
                               ChainWay best) {
  forEachWay(chain, pieces, /*layers=*/1, [&](ChainWay way) {
    way.seconds += getSeconds(chain, way, best.seconds - way.seconds);
    if (way.seconds < best.seconds)
      best = way;
  });
  return best;
}

} // namespace plait

#endif // PLAIT_SUPPORT_PIECEORDER_H
