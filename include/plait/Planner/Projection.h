//===- Projection.h - A whole training, from one step -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How long, how much energy and how much money: a predicted step, as often as
// the tokens ask for it. Failures, restarts and evaluation are not in it, nor
// is what hosts, network and cooling draw.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_PROJECTION_H
#define PLAIT_PLANNER_PROJECTION_H

#include "plait/Planner/Search.h"

namespace plait::planner {

/// The whole training that is asked about.
struct Goal {
  double tokens = 0;
  /// The price of one device for an hour.
  std::optional<double> price;
  std::string currency = {}; // of the price, "$" or "EUR"; empty: not said
  /// How long it may take; nothing: any time.
  std::optional<double> days = {};
};

struct Projection {
  double tokens = 0;      // of the goal
  double steps = 0;       // whole ones: they see at least that many
  double seconds = 0;     // of all steps
  double deviceHours = 0; // of the devices that are used
  /// The energy that the devices draw at their power limit; nothing where the
  /// hardware file has none.
  std::optional<double> joules;
  std::optional<double> money;
  double modelFlops = 0; // of all steps

  // The rule of thumb beside it (getRuleSeconds): the FLOPs of a token and
  // parameter, and those of a device and second, which are the predicted
  // step's. The difference is what the rule leaves out: attention's scores, and
  // parameters that multiply nothing.
  double ruleFlops = 0, ruleRate = 0, ruleSeconds = 0;

  /// Tokens with which a model of this size makes the most of its FLOPs
  /// (getComputeOptimalTokens).
  double optimalTokens = 0;

  double days() const { return seconds / 86400; }
};

/// Seconds of training `parameters` on `tokens`, when each of `devices` does
/// `rate` FLOP/s: k T P / (n X) (Narayanan et al. 2021, section 5.1). `flops`
/// is k: 6 for a token and parameter, 2 forward and 4 backward, and with full
/// recomputation 8, of which `rate` then counts all.
double getRuleSeconds(double flops, double tokens, double parameters,
                      double devices, double rate);

/// About 20 a parameter (Hoffmann et al. 2022, "Chinchilla", table 3).
double getComputeOptimalTokens(double parameters);

/// `result` is a search's, on `cluster`.
Projection project(const Goal &goal, const SearchResult &result,
                   const Cluster &cluster, const Training &training);

} // namespace plait::planner

#endif // PLAIT_PLANNER_PROJECTION_H
