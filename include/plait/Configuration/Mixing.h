//===- Mixing.h - Who averages with whom ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sites that gossip take weighted means of their own and their neighbours'
// weights. The weights of the means are a doubly stochastic matrix W: row i has
// what site i takes of each site, and columns add up to 1 as well, so that the
// mean over all sites stays what it is. What sites differ by shrinks from one
// agreement to the next by a factor: the largest singular value of W - J/n,
// which is the second largest absolute eigenvalue of a symmetric W, and of each
// W that has the same neighbours for all sites.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_MIXING_H
#define PLAIT_CONFIGURATION_MIXING_H

#include "plait/Support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

/// Matrices are dense, and all of them are looked at whenever a plan is read.
inline constexpr int64_t kMostGossipSites = 256;
/// Bounds the matrices of a period.
inline constexpr int64_t kMostMixings = 64;

/// How far sums of rows and columns may be from 1.
inline constexpr double kStochasticTolerance = 1e-5;

/// The matrix of one agreement, row by row.
using Matrix = std::vector<double>;

/// A graph by name. The matrices of a period follow each other, one an
/// agreement.
struct MixingGraph {
  std::string_view name; // as --outer has it
  std::vector<Matrix> (*make)(int64_t sites);
};

/// All of them, in the order in which help texts list them.
std::span<const MixingGraph> getMixingGraphs();

/// The matrices of `graph`: the name of one, or "[0.5 0.5/0.5 0.5]", rows
/// behind slashes and further matrices behind bars. Fails unless they are of
/// so many sites, doubly stochastic, and bring all sites together.
Result<std::vector<Matrix>> makeMixings(std::string_view name,
                                        std::string_view graph, int64_t sites);

/// Fails where `text` is no graph's name and not of the form of matrices. Of a
/// file returns its matrices in that form.
Result<std::string> readGraph(std::string_view name, std::string_view text);

/// The factor by which a period of agreements shrinks what sites differ by, at
/// least, to five digits. Cubic in the sites.
double getContraction(std::span<const Matrix> period, int64_t sites);

/// A message of each site to at most one other: site i sends to targets[i], or
/// to none (-1), and what site i receives it takes weights[i] of.
struct MixingExchange {
  std::vector<int32_t> targets;
  std::vector<double> weights;
};

/// Splits a matrix into as few exchanges as there can be: as many as the site
/// with most neighbours has of those that it sends to, or receives from.
std::vector<MixingExchange> makeExchanges(const Matrix &matrix, int64_t sites);

struct Outer;

/// The exchanges of an agreement by gossip, in the mean over those of a period;
/// of other schemes 0.
Result<double> countMessages(std::string_view name, const Outer &outer);

} // namespace plait

#endif // PLAIT_CONFIGURATION_MIXING_H
