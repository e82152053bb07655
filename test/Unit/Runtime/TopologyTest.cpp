//===- TopologyTest.cpp - Groups, channels and communicators --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Core/Topology.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"
#include "plait/Support/Collectives.h"
#if PLAIT_HAS_CUDA
#include "CUDA/NcclSplits.h"
#endif

#include <gtest/gtest.h>
#include <set>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

using Groups = std::vector<std::vector<uint32_t>>;

class TopologyTest : public ::testing::Test {
protected:
  fb::PlanT source = makePlan();
  std::vector<uint8_t> bytes;

  Topology topology() {
    bytes = plan::packPlan(source);
    const fb::Plan &plan = *fb::GetPlan(bytes.data());
    auto messages = plan::matchMessages(plan);
    EXPECT_TRUE(messages.ok());
    return topologyOf(plan, *messages);
  }
};

TEST_F(TopologyTest, HasAllGroupsAndMessages) {
  Topology found = topology();
  EXPECT_EQ(found.ranks, 4u);
  // Ranks 0 and 1 are the first stage. Collectives over tp, then over pp.
  EXPECT_EQ(found.groups, (Groups{{0, 1}, {2, 3}, {0, 2}, {1, 3}}));
  ASSERT_EQ(found.messages.size(), 4u); // two microbatches, two pairs
  for (uint32_t id = 0; id < 4; ++id) {
    EXPECT_EQ(found.messages[id].source, id % 2);
    EXPECT_EQ(found.messages[id].target, id % 2 + 2);
    EXPECT_EQ(found.messages[id].channel, 0u);
  }
  EXPECT_EQ(found.packedBytes, std::vector<uint64_t>(4, 0));
}

TEST_F(TopologyTest, GivesAChannelToMessagesThatOvertake) {
  // The second stage takes the second microbatch first.
  auto &actions = source.programs[1]->actions;
  std::swap(actions[0], actions[2]);
  Topology found = topology();
  EXPECT_EQ(found.messages[0].channel, 0u);
  EXPECT_EQ(found.messages[2].channel, 2u);
}

TEST_F(TopologyTest, KnowsWhatMustBePacked) {
  auto &step =
      *source.programs[0]->functions[0]->steps[1]->step.AsCollectiveStep();
  step.kind = uint8_t(CollectiveKind::AllGather);
  // A few rows are gathered one by one.
  EXPECT_EQ(topology().packedBytes, std::vector<uint64_t>(4, 0));
  // The groups over tp.
  step.outer = kMostGrouped + 1;
  uint64_t packed = (kMostGrouped + 1) * 6 * 2 * 4;
  EXPECT_EQ(topology().packedBytes,
            (std::vector<uint64_t>{packed, packed, 0, 0}));
  step.outer = 1;
  // An exchange packs both of its tensors.
  step.kind = uint8_t(CollectiveKind::AllToAll);
  EXPECT_EQ(topology().packedBytes, std::vector<uint64_t>(4, 0));
  step.middle = 3;
  step.outer = 3;
  EXPECT_EQ(topology().packedBytes,
            (std::vector<uint64_t>{2 * 3 * 3 * 6 * 2 * 4, 2 * 3 * 3 * 6 * 2 * 4,
                                   0, 0}));
}

/// Of 100 rows a quarter goes to each of four ranks, and 32 is a quarter more,
/// rounded up. Of few rows all are staged, of one the one, and what is behind
/// them begins at a multiple of 16 bytes.
TEST(RowStagingTest, StagesAQuarterMoreThanEven) {
  plan::RowStaging staging = plan::stageRows(100, 6, 4, 1);
  EXPECT_EQ(staging.rows, 32);
  EXPECT_EQ(staging.packed, 4u * 32 * 6);
  EXPECT_EQ(staging.lists, 2u * 4 * 100 * 4);
  EXPECT_EQ(staging.counts, 2u * 4 * 4);
  EXPECT_EQ(staging.bytes(), 2u * 768 + 3200 + 32);
  EXPECT_EQ(plan::stageRows(3, 2, 2, 9).rows, 3);
  EXPECT_EQ(plan::stageRows(1, 2, 64, 1).rows, 1);
  EXPECT_EQ(plan::stageRows(5, 10, 5, 9).packed, 256u);
}

#if PLAIT_HAS_CUDA
/// A pipeline of `stages` with `peers` ranks each: forward, backward, and with
/// `wraps` from the last to the first.
Topology pipeline(uint32_t stages, uint32_t peers, bool wraps) {
  Topology result;
  result.ranks = stages * peers;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    std::vector<uint32_t> group;
    for (uint32_t peer = 0; peer < peers; ++peer)
      group.push_back(stage * peers + peer);
    result.groups.push_back(group);
  }
  for (uint32_t stage = 0; stage + !wraps < stages; ++stage)
    for (uint32_t peer = 0; peer < peers; ++peer) {
      uint32_t next = (stage + 1) % stages * peers + peer;
      uint32_t here = stage * peers + peer;
      result.messages.push_back({here, next, 0});
      result.messages.push_back({next, here, 1});
    }
  return result;
}

TEST(NcclSplitsTest, EveryPartOnceAndNoRankTwiceInADivision) {
  for (uint32_t stages : {2u, 4u, 7u})
    for (bool wraps : {false, true}) {
      Topology topology = pipeline(stages, 4, wraps);
      std::vector<NcclSplit> splits = splitWorld(topology);
      std::set<std::pair<bool, uint32_t>> seen;
      for (const NcclSplit &split : splits) {
        std::set<uint32_t> ranks;
        for (const NcclPart &part : split) {
          EXPECT_TRUE(seen.emplace(part.transfers, part.index).second);
          for (uint32_t rank : part.ranks)
            EXPECT_TRUE(ranks.insert(rank).second);
          if (!part.transfers) {
            EXPECT_EQ(part.ranks, topology.groups[part.index]);
          }
        }
      }
      std::vector<uint32_t> parts = partOfMessages(topology);
      EXPECT_EQ(seen.size(), topology.groups.size() + parts.size());
      for (uint32_t part : parts)
        EXPECT_TRUE(seen.count({true, part}));
      // One for the groups; even and odd boundaries in two directions, and one
      // more each where an odd ring closes.
      size_t boundaries = stages == 2           ? (wraps ? 4 : 2)
                          : stages % 2 && wraps ? 6
                                                : 4;
      EXPECT_LE(splits.size(), 1 + boundaries) << stages << wraps;
    }
}

TEST(NcclSplitsTest, OppositeDirectionsAndChannelsAreApart) {
  Topology topology;
  topology.ranks = 2;
  topology.groups = {{0}, {1}, {0, 1}};
  topology.messages = {{0, 1, 0}, {1, 0, 0}, {0, 1, 2}, {0, 1, 0}};
  std::vector<uint32_t> parts = partOfMessages(topology);
  EXPECT_EQ(parts[0], parts[3]);
  EXPECT_EQ((std::set<uint32_t>{parts.begin(), parts.end()}).size(), 3u);
  EXPECT_EQ(splitWorld(topology).size(), 4u); // groups of one need none
}
#endif

TEST(Topology, PeersAreThoseWhoTalk) {
  Topology topology;
  topology.ranks = 8; // a row of four stages of two ranks
  topology.groups = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  for (uint32_t rank = 0; rank + 2 < topology.ranks; ++rank)
    topology.messages.push_back({rank, rank + 2, 0});
  using Processes = std::vector<uint32_t>;
  auto peers = [&](uint32_t processes, uint32_t process) {
    return peersOf(topology, {topology.ranks, processes}, process);
  };
  EXPECT_EQ(peers(1, 0), Processes());
  EXPECT_EQ(peers(4, 1), Processes({0, 2}));
  EXPECT_EQ(peers(8, 0), Processes({1, 2}));
  EXPECT_EQ(peers(8, 5), Processes({3, 4, 7}));
  EXPECT_EQ(peers(3, 0), Processes({1})); // ranks 0, 1 of {2, 3, 4}, {5, 6, 7}
  EXPECT_EQ(peers(3, 1), Processes({0, 2}));
}

} // namespace
