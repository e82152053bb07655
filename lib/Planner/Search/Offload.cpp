//===- Offload.cpp - Search over offloading to hosts ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Copies to and from hosts take time and give memory. A pass waits for those
// that its work does not hide, and so does the update; what replicas exchange
// hides behind work alone. So no configuration is faster with something on
// hosts than without: stages take no less, and a schedule's order of them ends
// no sooner when none of its actions is shorter. Two things follow.
//
// It only has to be tried of a configuration, with its recomputation and its
// ZeRO stage, that does not fit without. That excepts what chooses by itself
// with the memory that it has: layers' recomputation (Auto), and orders that
// are searched for, whose time is not monotone.
//
// And it comes last: only what has a bound below the best without is worth an
// estimate. A search in which the fastest fits anyway ends there. Cells that do
// not fit without, or are too slow without, are kept whole until then: most of
// them are ruled out by what their copies take, before they have any nodes.
//
//===----------------------------------------------------------------------===//

#include "Search/Explore.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

/// Whether less on the device may be faster though all of it fits.
bool Explorer::isFasterOffloaded(const Node &node) const {
  return node.recompute->isAuto || node.schedule->searches;
}

/// Whether it may be among the best with something on hosts.
bool Explorer::mayGain(const Node &node) const {
  return std::max(node.pipeline + node.leastStep, node.leastStreams) <
         threshold;
}

/// Whether exploreOffload wants to know that a node does not fit, and does not
/// yet. What no offload makes fast enough is left out: the threshold only
/// falls.
bool Explorer::mayBeShort(const Node &node) const {
  return !node.isShort && mayGain(node) && choices.offload.size() > 1 &&
         node.offload == choices.offload.front();
}

/// Keeps a node for exploreOffload.
void Explorer::noteShort(Node &node) {
  if (!mayBeShort(node))
    return;
  node.isShort = true;
  shortNodes.push_back(node);
}

/// Keeps a cell that has not been expanded for exploreOffload.
void Explorer::keepForOffload(const Cell &cell) {
  if (cell.hasStep && cell.leastSeconds < threshold &&
      choices.offload.size() > 1)
    shortCells.push_back(cell);
}

/// Whether a cell may have a member among the best with something on hosts.
bool Explorer::mayGainOffloaded(const Cell &cell) {
  if (cell.leastSeconds >= threshold)
    return false;
  Node node{cell, cell.like};
  return std::ranges::any_of(
      choices.offload.begin() + 1, choices.offload.end(), [&](Offload kind) {
        node.offload = kind;
        Configuration configuration = toConfiguration(node);
        const auto &probe =
            bounds.getProbe(*cell.work, configuration, cell.like->splits);
        if (!probe.ok())
          return false;
        node.probe = &*probe;
        StepBound bound = getStepBound(node, configuration, {&kind, 1});
        double pipeline = bounds.getSeconds(*cell.work, *probe, configuration,
                                            cell.like->splits);
        return bound.mayFit &&
               std::max(pipeline + bound.step, bound.streams) < threshold;
      });
}

/// Explores, of the nodes that do not fit without, those that may be faster
/// than all others that do.
void Explorer::exploreOffload() {
  if ((shortNodes.empty() && shortCells.empty()) ||
      (stopsAtFirst && getBestSeconds() < 1e300))
    return;
  ceiling = getPlainSeconds(/*usesAll=*/false);
  threshold = getThreshold();
  for (const Cell &cell : shortCells)
    if (mayGainOffloaded(cell))
      expand(cell);
  shortCells.clear();
  shareOut(shortNodes.size(), [&](size_t i) {
    if (mayGain(shortNodes[i]))
      raise(shortNodes[i]);
  });
  for (Offload offload : choices.offload)
    if (offload != choices.offload.front())
      addOffloaded(offload);
  shortNodes.clear();
  exploreOpen();
  ceiling = 1e300;
  threshold = getThreshold();
}

/// Adds the nodes that are kept, with `offload`. Those of a cell follow each
/// other, and what a step takes beside the pipeline is the same for all of
/// them.
void Explorer::addOffloaded(Offload offload) {
  const Node *former = nullptr; // of which these are
  const Probe *probe = nullptr;
  StepBound bound;
  for (const Node &node : shortNodes) {
    if (!mayGain(node))
      continue;
    Node other = node;
    other.offload = offload;
    if (!former || former->probe != node.probe || former->mesh != node.mesh) {
      Configuration configuration = toConfiguration(other);
      const auto &found =
          bounds.getProbe(*node.work, configuration, node.like->splits);
      other.probe = probe = found.ok() ? &*found : nullptr;
      if (probe)
        bound = getStepBound(other, configuration, {&other.offload, 1});
    }
    former = &node;
    other.probe = probe;
    other.step = bound.step;
    other.streams = bound.streams;
    // Copies make no pipeline faster.
    if (!probe ||
        std::max(node.pipeline + bound.step, bound.streams) >= threshold)
      continue;
    other.family = getFamily(other);
    addNode(other);
  }
}

/// The best with nothing on hosts, or with what is pinned.
double Explorer::getPlainSeconds(bool usesAll) const {
  double seconds = 1e300;
  for (int family : found) {
    const Leaf &leaf = *best[family];
    if (leaf.configuration.offload == choices.offload.front() &&
        (!usesAll || leaf.configuration.ranks() == choices.ranks))
      seconds = std::min(seconds, leaf.seconds);
  }
  return seconds;
}

/// Devices are left idle, and something lies on hosts, where that is faster.
std::vector<const Leaf *> Explorer::getListed() const {
  double plain = getPlainSeconds(false), plainOfAll = getPlainSeconds(true);
  std::vector<const Leaf *> listed;
  for (int family : found) {
    const Leaf *leaf = &*best[family];
    bool usesAll = leaf->configuration.ranks() == choices.ranks;
    bool isPlain = leaf->configuration.offload == choices.offload.front();
    double limit = isPlain ? 1e300 : usesAll ? plainOfAll : plain;
    if (leaf->seconds < limit && (usesAll || leaf->seconds < fullSeconds))
      listed.push_back(leaf);
  }
  return listed;
}
