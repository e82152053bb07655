//===- MinimumCutTest.cpp - Cuts against all there are --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/MinimumCut.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <random>

using namespace plait;

namespace {

struct Edge {
  int from, to;
  int64_t capacity;
};

struct Network {
  int nodes; // source and sink included
  std::vector<Edge> edges;
};

/// Some nodes, some edges, loops and double edges among them.
Network draw(unsigned seed) {
  std::mt19937 random(seed);
  auto below = [&](int bound) { return int(random() % unsigned(bound)); };
  Network network{2 + below(9), {}};
  int count = below(3 * network.nodes);
  for (int i = 0; i < count; ++i)
    network.edges.push_back(
        {below(network.nodes), below(network.nodes), below(8)});
  return network;
}

/// The capacity from the side of the source to that of the sink.
int64_t getCapacity(const Network &network, uint32_t sinkSide) {
  int64_t sum = 0;
  for (const Edge &edge : network.edges)
    if (!(sinkSide >> edge.from & 1) && (sinkSide >> edge.to & 1))
      sum += edge.capacity;
  return sum;
}

} // namespace

TEST(MinimumCut, EqualsTheBestOfAllCuts) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    Network network = draw(seed);
    FlowNetwork flow;
    for (int node = 2; node < network.nodes; ++node)
      EXPECT_EQ(flow.addNode(), node);
    for (const Edge &edge : network.edges)
      flow.addEdge(edge.from, edge.to, edge.capacity);
    uint32_t found = 0;
    std::vector<bool> side = flow.findSinkSide();
    for (int node = 0; node < network.nodes; ++node)
      found |= uint32_t(side[node]) << node;
    EXPECT_TRUE(side[FlowNetwork::kSink]);
    EXPECT_FALSE(side[FlowNetwork::kSource]);
    int64_t capacity = getCapacity(network, found);
    for (uint32_t rest = 0; rest < 1u << (network.nodes - 2); ++rest) {
      uint32_t other = rest << 2 | 1u << FlowNetwork::kSink;
      EXPECT_LE(capacity, getCapacity(network, other)) << "seed " << seed;
      // The nearest to the sink lies in all others.
      if (capacity == getCapacity(network, other))
        EXPECT_EQ(found & other, found) << "seed " << seed;
    }
  }
}

TEST(MinimumCut, LongChains) {
  FlowNetwork flow;
  int last = FlowNetwork::kSource;
  constexpr int count = 200000;
  for (int i = 0; i < count; ++i) {
    int next = flow.addNode();
    flow.addEdge(last, next, i == count / 2 ? 1 : 2);
    last = next;
  }
  flow.addEdge(last, FlowNetwork::kSink, FlowNetwork::kUncuttable);
  std::vector<bool> side = flow.findSinkSide();
  EXPECT_EQ(std::count(side.begin(), side.end(), true), count / 2 + 1);
}
