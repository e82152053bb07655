//===- Simplest.cpp - The simplest of what is as fast ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is faster by less than predictions are off by may well be slower. The
// families that a search keeps need not have the simplest within the band: a
// dozen schedules of one mesh may all be faster by some thousandths. So what
// has one stage, and no schedule to speak of, is asked for once more.
//
//===----------------------------------------------------------------------===//

#include "Search/Simplest.h"
#include "plait/Planner/Search.h"
#include "plait/Schedule/Generators.h"

#include <algorithm>
#include <tuple>

using namespace plait;
using namespace plait::planner;

static int64_t countAxes(const Configuration &c) {
  return std::ranges::count_if(
      kAxes, [&](const AxisFacts &facts) { return c.mesh[facts.axis] > 1; });
}

using Complexity = std::tuple<int, int64_t, int, int>; // less is simpler
/// The complexity of one axis, with one stage and nothing on hosts.
constexpr Complexity leastComplexity = {0, 1, 0, 1};

/// One stage has no schedule to speak of, unless that runs gradients of weights
/// apart: it counts as the simplest, with one chunk.
static Complexity getComplexity(const Configuration &c) {
  int onHosts = offloadsOptimizer(c.offload) + offloadsActivations(c.offload);
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(c.schedule);
  bool splits = generator.ok() && (*generator)->splitsBackward;
  if (c.mesh[Axis::PP] == 1 && !splits)
    return {onHosts, countAxes(c), 0, 1};
  int simplicity = generator.ok() ? (*generator)->simplicity : 0;
  return {onHosts, countAxes(c), simplicity, c.chunks};
}

/// Whether both are of one family.
static bool isOfFamily(const Leaf &a, const Leaf &b) {
  auto key = [](const Configuration &c) {
    return std::make_tuple(c.mesh, std::cref(c.schedule), c.chunks,
                           c.offload == Offload::None);
  };
  return key(a.configuration) == key(b.configuration);
}

/// Returns the seconds by which `leaf` may be slower and still be as fast.
/// Where ranks compute the same, predictions are off by the same there.
static double getBand(const Leaf &leaf, const Leaf &fastest) {
  auto key = [](const Configuration &c) {
    return std::make_tuple(withOneReplica(c.mesh), std::cref(c.schedule),
                           c.chunks, c.microBatch, std::cref(c.recompute),
                           c.sequenceParallel);
  };
  bool isAlike = key(leaf.configuration) == key(fastest.configuration);
  return robustBand *
         (isAlike ? std::max(leaf.update, fastest.update) : fastest.seconds);
}

/// Families beyond those that are kept may not be exact: a bound has only shown
/// that they are slower, which says nothing about whether they are in the band.
/// But the fastest with nothing on hosts is: it was found before anything on
/// hosts was tried.
void planner::preferSimple(std::vector<Leaf> &families,
                           const Explorer &explorer) {
  const Leaf fastest = families.front();
  Leaf pick = fastest;
  auto consider = [&](const Leaf &leaf) {
    // Only among those with as many ranks: a configuration that leaves devices
    // idle is an alternative, not a simpler form of the same.
    if (leaf.seconds <= fastest.seconds + getBand(leaf, fastest) &&
        leaf.configuration.ranks() == fastest.configuration.ranks() &&
        getComplexity(leaf.configuration) < getComplexity(pick.configuration))
      pick = leaf;
  };
  size_t kept = std::min(families.size(), Explorer::listed);
  std::for_each_n(families.begin(), kept, consider);
  auto plain = std::ranges::find_if(families, [](const Leaf &leaf) {
    return leaf.configuration.offload == Offload::None;
  });
  if (plain != families.end())
    consider(*plain);
  if (families.size() > kept &&
      getComplexity(pick.configuration) > leastComplexity)
    std::ranges::for_each(
        explorer.findOneStage(fastest.seconds * (1 + robustBand)), consider);
  std::erase_if(families,
                [&](const Leaf &leaf) { return isOfFamily(leaf, pick); });
  families.insert(families.begin(), pick);
}
