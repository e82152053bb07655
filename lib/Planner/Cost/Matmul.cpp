//===- Matmul.cpp - Time of matmuls ---------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A matrix library cuts the result into tiles, one per block of threads, and
// runs as many blocks at a time as there are multiprocessors: a wave. What a
// matmul loses against the peak follows from that:
//
//   tiles      a tile that hangs over the edge computes nothing there
//   waves      the last wave leaves multiprocessors idle
//   ramp       filling the pipeline and writing the result take the time of a
//              few trips of the main loop, much for a short contraction
//   memory     the traffic that no arithmetic hides
//   alignment  rows that start at odd addresses need narrower loads, or another
//              kind of kernel
//   power      the clock that the device holds while all of it multiplies
//
// The library picks its tile well: the best one counts. Splitting the
// contraction over blocks fills a wave that the tiles alone do not, and costs
// another pass over the result. (The picture is that of NVIDIA, "Matrix
// Multiplication Background User's Guide"; the figures are the device's.)
//
//===----------------------------------------------------------------------===//

#include "Cost/Parts.h"

#include <algorithm>
#include <bit>
#include <cmath>

using namespace plait;
using namespace plait::planner;

namespace {

/// Rounded up. Tiles are powers of two nearly everywhere, and a shift takes a
/// tenth of a division's time.
uint64_t divideUp(uint64_t a, uint64_t b) {
  uint64_t sum = a + b - 1;
  return std::has_single_bit(b) ? sum >> std::countr_zero(b) : sum / b;
}

/// `blocks` / `units` rounded up, with the reciprocal of `units`.
double countWaves(double blocks, double units, double perUnit) {
  // A product in place of a division, in the innermost loop of a search. The
  // reciprocal is rounded; what it misses the comparison sees.
  double waves = double(int64_t(blocks * perUnit));
  return waves * units < blocks ? waves + 1 : waves;
}

/// Returns what is left of the speed when the rows of all matrices begin at
/// multiples of some bytes.
double getAlignmentFactor(const Matmul &matmul, const MatrixUnit &unit) {
  const auto &table = matmul.batch > 1 ? unit.batchedAlignment : unit.alignment;
  if (table.empty())
    return 1;
  uint64_t bits =
      matmul.rowAlignment
          ? uint64_t(matmul.rowAlignment)
          : uint64_t(matmul.m) | uint64_t(matmul.n) | uint64_t(matmul.k);
  double bytes =
      double(uint64_t(1) << std::countr_zero(bits)) * matmul.inputBytes;
  double factor = table.front().second;
  for (auto [multiple, remaining] : table)
    if (bytes >= multiple)
      factor = remaining;
  return factor;
}

} // namespace

/// The least over all tiles and splits of the contraction: a library has tuned
/// its choice, so that no rule for it is needed here. Time grows with tiles
/// times splits, and nothing is allocated. `memory` and `launch` of the result
/// are of the choice that won.
Cost planner::matmulCost(const Matmul &matmul, const Device &device,
                         Precision precision) {
  auto [batch, m, n, k, inputBytes, outputBytes, rowAlignment] = matmul;
  if (batch <= 0 || m <= 0 || n <= 0 || k <= 0)
    return {};
  const MatrixUnit &unit = device.matrix;
  double units = device.multiprocessors, perUnit = 1 / units;
  double peak = device.peak(precision);
  double bandwidth = getMemoryRate(device);
  double result = double(batch) * m * n;
  double traffic =
      (double(batch) * k * (double(m) + n) * inputBytes + result * outputBytes);
  // Of one trip of one block, at the peak.
  double perElement = 2.0 * unit.tileK * units / peak;
  double trips = double(divideUp(k, unit.tileK));
  Cost best{1e300};
  for (const Tile &tile : unit.tiles) {
    double blocks = double(batch) * double(divideUp(m, tile.m)) *
                    double(divideUp(n, tile.n));
    double tripSeconds = perElement * tile.m * tile.n / tile.efficiency;
    // Splits help where there are fewer than two waves.
    int most = blocks >= 2 * units ? 1 : unit.maximumSplits;
    for (int splits = 1; splits <= most; ++splits) {
      double arithmetic = countWaves(blocks * splits, units, perUnit) *
                          (trips / splits + unit.rampTrips) * tripSeconds;
      // Partial results are written and read in fp32, one for each split.
      double bytes =
          traffic + (splits > 1 ? 2.0 * splits * sizeof(float) * result : 0);
      double memory = bytes / bandwidth;
      double launch = splits > 1 ? device.launchSeconds : 0;
      // Most of the shorter one hides behind the longer one; `serialFraction`
      // of it does not.
      double seconds = std::max(arithmetic, memory) +
                       unit.serialFraction * std::min(arithmetic, memory) +
                       launch;
      if (seconds < best.seconds)
        best = {seconds,
                memory > arithmetic ? memory : unit.serialFraction * memory,
                launch};
    }
  }
  // Units that idle leave power to the others: the limit is one of the sum.
  best.seconds =
      std::max(best.seconds, 2 * result * k / (peak * unit.sustainedFraction));
  double factor = getAlignmentFactor(matmul, unit);
  return {best.seconds / factor + device.launchSeconds, best.memory / factor,
          best.launch / factor + device.launchSeconds};
}

double planner::getGemmRate(const Device &device, Precision precision) {
  // Large enough for waves and ramps to be lost in it.
  constexpr int64_t large = 8192;
  return 2 * std::pow(double(large), 3) /
         matmulCost(1, large, large, large, device, precision).seconds;
}

Cost planner::matmulCost(int64_t batch, int64_t m, int64_t n, int64_t k,
                         const Device &device, Precision precision) {
  double bytes = elementBytes(precision);
  return matmulCost({batch, m, n, k, bytes, bytes}, device, precision);
}
