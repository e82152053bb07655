//===- PieceOverlap.h - Matmuls beside what they exchange -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A matmul whose result is summed up over ranks, or that needs what is gathered
// from them, is cut into pieces of rows, so that one piece is computed while
// another is exchanged (Wang et al. 2023, "Overlap Communication with Dependent
// Computation via Decomposition in Large Deep Learning Models"). What that
// leaves to wait for, and what the pieces take longer than the whole, is asked
// by the pass that cuts and by the planner.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_PIECEOVERLAP_H
#define PLAIT_SUPPORT_PIECEOVERLAP_H

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace plait {

/// Returns the number of pieces where nothing else is asked for: on GPUs, more
/// than one. Of more, the one that nothing is beside exposes less, but each has
/// a latency of its own.
inline int getUsualPieces(bool isGPU) { return isGPU ? 4 : 1; }

/// The most that there may be where `asked` are asked for. A sum is cut
/// anywhere between rows; what is gathered or scattered between blocks, of
/// which there may be up to twice as many.
inline int getMostPieces(int asked, bool isSum) {
  return isSum ? asked : 2 * asked;
}

/// Seconds in which nothing is computed, of a matmul of `compute` seconds and a
/// collective before or behind it, both in `pieces`, of which one takes
/// `exchange` seconds: one of them has no matmul beside it, the others are
/// exposed as far as they take longer than a piece of the matmul.
inline double getExposedSeconds(int pieces, double compute, double exchange) {
  return exchange + (pieces - 1) * std::max(0.0, exchange - compute / pieces);
}

/// Returns the time that tiles of `count` matmuls of rows x columns results
/// take, to compare with that of others. A library computes a matmul in tiles,
/// as many at a time as there are `units`: a wave, whose last one leaves units
/// idle. Where the units are unknown, 0, results take equally long.
inline double getTilesTime(int64_t rows, int64_t columns, int64_t count,
                           int64_t units) {
  if (units <= 0)
    return double(rows * columns * count);
  auto divideUp = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  // Large tiles, and smaller ones, which load more for each product.
  constexpr std::tuple<int64_t, int64_t, double> tiles[] = {
      {256, 128, 1}, {128, 256, 1}, {128, 128, 0.94}};
  double best = 1e300;
  for (auto [tall, wide, speed] : tiles)
    best = std::min(best, double(divideUp(count * divideUp(rows, tall) *
                                              divideUp(columns, wide),
                                          units)) *
                              double(tall * wide) / speed);
  return best;
}

/// How many times as long as where all units compute all the time a matmul of
/// rows x columns results takes. 1 where the units are unknown, 0.
inline double getTilesFactor(int64_t rows, int64_t columns, int64_t units) {
  return units <= 0 ? 1
                    : getTilesTime(rows, columns, 1, units) * double(units) /
                          double(rows * columns);
}

/// How many times as long as a whole one a matmul of rows x columns results
/// takes in `pieces` of its rows. 1 where the units are unknown, 0.
inline double getPiecesFactor(int64_t rows, int64_t columns, int pieces,
                              int64_t units) {
  if (units <= 0 || pieces <= 1)
    return 1;
  int64_t own = (rows + pieces - 1) / pieces;
  return pieces * getTilesTime(own, columns, 1, units) /
         getTilesTime(rows, columns, 1, units);
}

/// Returns how many rows of `count` matmuls of rows x columns results, which
/// take `seconds`, are best computed beside an exchange of which `missing`
/// seconds have nothing beside them, where another exchange has use for what is
/// left of the matmuls: whole tiles, so many that what is hidden less what lies
/// beside neither and less what the parts take longer than the whole is most.
inline int64_t chooseRows(int64_t rows, int64_t columns, int64_t count,
                          int64_t units, double seconds, double missing) {
  constexpr int64_t tile = 128;
  double whole = getTilesTime(rows, columns, count, units);
  auto secondsOf = [&](int64_t own) {
    return own ? seconds * getTilesTime(own, columns, count, units) / whole : 0;
  };
  int64_t best = 0;
  double most = 0;
  // Ends in all of the rows, be they whole tiles or not.
  for (int64_t own = std::min(rows, tile);; own = std::min(rows, own + tile)) {
    double first = secondsOf(own),
           lost = first + secondsOf(rows - own) - seconds;
    double gain =
        std::min(first, missing) - std::max(0.0, first - missing) - lost;
    if (gain > most) {
      most = gain;
      best = own;
    }
    if (own == rows)
      return best;
  }
}

/// The seconds that pieces cost, of which the number is chosen: in which
/// nothing is computed, `exposed` less what `beside` hides, and `lost` by the
/// matmul against a whole one.
inline double getPiecesCost(double exposed, double beside, double lost) {
  return std::max(0.0, exposed - beside) + lost;
}

} // namespace plait

#endif // PLAIT_SUPPORT_PIECEOVERLAP_H
