//===- Band.h - How far predictions are from runs ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A predicted step with a band that eight in ten runs like it are in. It comes
// from published runs: of each source of them a table keeps how long its steps
// took as a multiple of what is predicted, in the middle, and how far apart
// they are. docs/Accuracy.md has the rule, and how many held-out runs are in
// their bands.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_BAND_H
#define PLAIT_PLANNER_BAND_H

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait::planner {

/// The published runs of one program on one cluster.
struct BandFact {
  const char *source;
  const char *program; // Framework::name
  const char *target;  // Device::target
  int runs;
  int64_t fewest, most; // devices of a run
  /// The median over runs of the logarithm of measured over predicted seconds.
  double centre;
  /// How far below it a tenth of them begins, and how far above it the highest
  /// tenth: runs are late more often than early.
  double below, above;
};

/// The table, sorted as docs/Accuracy.md has the sources.
std::span<const BandFact> getBandFacts();

/// Makes a fact of logarithms of measured over predicted seconds, of which
/// there is at least one.
BandFact makeBandFact(BandFact about, const std::vector<double> &logarithms);

/// The prediction that a band is asked for.
struct BandQuestion {
  std::string_view program; // Framework::name
  std::string_view target;  // Device::target
  int64_t devices = 1;
  /// Parts of it that no published run has: each widens the band.
  std::vector<std::string> unmeasured = {};
};

struct Band {
  /// Factors of the predicted seconds.
  double low = 1, high = 1;
  /// Names its origin: "64 runs of 4 sources: megatron-core on sm_90".
  std::string basis;
  int sources = 0, runs = 0;
  /// The question's, and that it has more devices than any run.
  std::vector<std::string> unmeasured;

  double getHalfWidth() const { return (high - low) / 2; }
};

/// No band is wider than this to either side of its middle.
inline constexpr double widestBand = 0.3;

/// Expects facts of at least two sources.
Band getBand(const BandQuestion &question,
             std::span<const BandFact> facts = getBandFacts());

} // namespace plait::planner

#endif // PLAIT_PLANNER_BAND_H
