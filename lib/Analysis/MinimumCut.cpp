//===- MinimumCut.cpp - Minimum cuts of flow networks ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds a maximum flow and reads the cut off what is left of the capacities
// (Ford and Fulkerson 1956: the two are equal). Edges are kept in both
// directions, by index, so that a path can be undone in part by a later one.
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/MinimumCut.h"

#include <algorithm>

using namespace plait;

int FlowNetwork::addNode() {
  nodes.emplace_back();
  return static_cast<int>(nodes.size()) - 1;
}

void FlowNetwork::addEdge(int from, int to, int64_t capacity) {
  int forth = static_cast<int>(nodes[from].size());
  // Each edge has one back, without room: what is sent along the one may be
  // taken back along the other.
  int back = static_cast<int>(nodes[to].size()) + (from == to);
  nodes[from].push_back({to, capacity, back});
  nodes[to].push_back({from, 0, forth});
}

/// Whether the sink can be reached.
bool FlowNetwork::assignLevels() {
  level.assign(nodes.size(), -1);
  level[kSource] = 0;
  // Breadth first: a level is the length of the shortest path from the source
  // along edges with room.
  std::vector<int> queue = {kSource};
  for (size_t index = 0; index < queue.size(); ++index)
    for (const Edge &edge : nodes[queue[index]])
      if (edge.capacity > 0 && level[edge.to] < 0) {
        level[edge.to] = level[queue[index]] + 1;
        queue.push_back(edge.to);
      }
  return level[kSink] >= 0;
}

/// The next path from source to sink of increasing levels, by its nodes, each
/// of which goes on by the edge of `next`. Empty: there is none.
std::vector<int> FlowNetwork::findPath() {
  std::vector<int> path = {kSource};
  while (!path.empty() && path.back() != kSink) {
    int node = path.back();
    // Nobody goes to the node again in this round: the edge that led there is
    // passed over.
    if (next[node] == nodes[node].size()) { // leads nowhere
      path.pop_back();
      if (!path.empty())
        ++next[path.back()];
      continue;
    }
    const Edge &edge = nodes[node][next[node]];
    if (edge.capacity > 0 && level[edge.to] == level[node] + 1)
      path.push_back(edge.to);
    else
      ++next[node];
  }
  return path;
}

/// Sends as much as one path has room for. False: there is no path.
bool FlowNetwork::augment() {
  std::vector<int> path = findPath();
  if (path.empty())
    return false;
  path.pop_back(); // the sink
  int64_t room = kUncuttable;
  for (int node : path)
    room = std::min(room, nodes[node][next[node]].capacity);
  for (int node : path) {
    Edge &edge = nodes[node][next[node]];
    edge.capacity -= room;
    nodes[edge.to][edge.reverse].capacity += room;
  }
  return true;
}

/// Dinic's algorithm (1970): between two rounds of levels all shortest paths
/// are filled, and those of the next round are longer, so that there are no
/// more rounds than nodes. Of all minimum cuts the one next to the sink.
std::vector<bool> FlowNetwork::findSinkSide() {
  while (assignLevels()) {
    next.assign(nodes.size(), 0);
    while (augment())
      ;
  }
  // What still reaches the sink, backwards along edges that have room.
  std::vector<bool> found(nodes.size());
  found[kSink] = true;
  std::vector<int> queue = {kSink};
  for (size_t index = 0; index < queue.size(); ++index)
    for (const Edge &edge : nodes[queue[index]])
      if (!found[edge.to] && nodes[edge.to][edge.reverse].capacity > 0) {
        found[edge.to] = true;
        queue.push_back(edge.to);
      }
  return found;
}
