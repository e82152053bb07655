//===- MinimumCut.h - Minimum cuts of flow networks -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Responsible for minimum cuts of small directed networks, by maximum flows
// along shortest paths (Dinitz 1970).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_ANALYSIS_MINIMUMCUT_H
#define PLAIT_ANALYSIS_MINIMUMCUT_H

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace plait {

/// Nodes 0 and 1 are the source and the sink.
class FlowNetwork {
public:
  static constexpr int kSource = 0, kSink = 1;
  /// The capacity of an edge that no cut may contain. Sums of all others are
  /// below it.
  static constexpr int64_t kUncuttable =
      std::numeric_limits<int64_t>::max() / 4;

  FlowNetwork() : nodes(2) {}

  /// Returns the number of the new node.
  int addNode();
  /// `capacity` is not negative. There may be several edges of two nodes.
  void addEdge(int from, int to, int64_t capacity);

  /// Tells for each node whether it is on the sink's side of a cut of least
  /// capacity: of all these, the one nearest to the sink. Has to be called
  /// once, on a network that has a cut.
  std::vector<bool> findSinkSide();

private:
  struct Edge {
    int to;
    int64_t capacity; // what is left of it
    int reverse;      // index among the edges of `to`
  };

  bool assignLevels();
  std::vector<int> findPath();
  bool augment();

  std::vector<std::vector<Edge>> nodes;
  std::vector<int> level;   // distance from the source, -1: out of reach
  std::vector<size_t> next; // of each node, the first edge that may have room
};

} // namespace plait

#endif // PLAIT_ANALYSIS_MINIMUMCUT_H
