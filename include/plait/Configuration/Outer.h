//===- Outer.h - What flows between sites -----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A site is one copy of all that a mesh is: it trains on samples of its own,
// with weights and optimizer state of its own. Every so many steps all sites
// come to an agreement, by one of the schemes that are listed here. What a
// scheme does is written in Plan.fbs; this is what can be chosen of it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_OUTER_H
#define PLAIT_CONFIGURATION_OUTER_H

#include "plait/Support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace plait {

/// One scheme. The strings are literals and live for ever.
struct OuterScheme {
  std::string_view name; // as --outer has it
  /// Whether a second optimizer, SGD with Nesterov's momentum, moves what all
  /// sites have agreed on last by the mean of what they have moved by since
  /// (Douillard et al. 2023, "DiLoCo"). Else their weights are averaged (Stich
  /// 2018, "Local SGD"; McMahan et al. 2017, "FedAvg").
  bool hasOptimizer;
  double rate, momentum; // of that optimizer, where none are given
};

/// All of them, in the order in which help texts list them.
std::span<const OuterScheme> getOuterSchemes();

/// How sites agree: the value of --outer.
struct Outer {
  std::string scheme;            // the name of one; empty: there are no sites
  int64_t every = 0;             // steps from one agreement to the next
  double rate = 0, momentum = 0; // of the second optimizer; 0: there is none
  /// The sites; `--mesh` says how many. 0: it has not been asked yet.
  int64_t sites = 0;

  bool isOn() const { return !scheme.empty(); }
  /// The sites that a batch is split over: 1 where there are none.
  int64_t countSites() const { return sites ? sites : 1; }
  /// Whether it keeps an anchor of each weight, and momentum.
  bool keepsAnchor() const { return rate > 0; }
  bool keepsMomentum() const { return momentum > 0; }
  int getStateBytes() const {
    return int(sizeof(float)) * (keepsAnchor() + keepsMomentum());
  }
  bool operator==(const Outer &) const = default;
};

/// "none", "average:8", "diloco:30,rate=0.5", and the inverse: SCHEME:STEPS,
/// options of the scheme, and behind a plus sign `sites:N`. Options that are as
/// usual are left out, so that equal schemes have one text.
std::string print(const Outer &value);
Status parse(std::string_view name, std::string_view text, Outer &value);

/// Moves the size of axis "sites" from `mesh`, a text such as
/// "dp=2,tp=2,sites=4", to `outer`: all that follows is about one site. Fails
/// where one of both is given without the other, where the axis is named twice
/// or has no size, and where `outer` has another number of them.
Status takeSites(std::string &mesh, Outer &outer);

} // namespace plait

#endif // PLAIT_CONFIGURATION_OUTER_H
