//===- NcclMemoryTest.cpp - The memory of communicators -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CUDA/NcclSplits.h"
#include "Core/Topology.h"
#include "TestPlan.h"
#include "plait/Plan/Container.h"
#include "plait/Support/Collectives.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

TEST(NcclMemory, IsThatOfTheGroupsAndRoutesOfARank) {
  Topology topology;
  topology.ranks = 4;
  topology.groups = {{0}, {0, 1}, {2, 3}, {0, 1, 2, 3}};
  topology.packedBytes = {7, 100, 1000, 20};
  topology.messages = {{0, 2, 0}, {0, 2, 0}, {2, 0, 0}, {1, 3, 0}};
  CommunicatorMemory memory;
  addMemory(memory, topology, 0);
  EXPECT_EQ(memory.groups, 2u);
  EXPECT_EQ(memory.routes, 2u); // two messages of one route
  EXPECT_EQ(memory.scratch, 120u);
  EXPECT_EQ(memory.estimate(), 700'000'120u);
  addMemory(memory, topology, 3);
  EXPECT_EQ(memory.groups, 4u);
  EXPECT_EQ(memory.routes, 3u);
  EXPECT_EQ(memory.scratch, 1140u);
}

/// What the rank that has most of it makes.
static CommunicatorMemory findMost(const Topology &topology) {
  CommunicatorMemory most;
  for (uint32_t rank = 0; rank < topology.ranks; ++rank) {
    CommunicatorMemory made;
    addMemory(made, topology, rank);
    if (made.estimate() > most.estimate())
      most = made;
  }
  return most;
}

/// A plan promises what a run makes, also where tensors are packed.
TEST(NcclMemory, IsCountedInPlans) {
  for (int64_t outer : {int64_t(1), kMostGrouped + 1}) {
    fb::PlanT source = makePlan();
    auto &step =
        *source.programs[0]->functions[0]->steps[1]->step.AsCollectiveStep();
    step.kind = uint8_t(CollectiveKind::AllGather);
    step.outer = outer;
    std::vector<uint8_t> packed = plan::packPlan(source);
    const fb::Plan &plan = *fb::GetPlan(packed.data());
    auto messages = plan::matchMessages(plan);
    ASSERT_TRUE(messages.ok()) << messages.status().message();
    CommunicatorMemory most = findMost(topologyOf(plan, *messages));
    CommunicatorMemory counted = plan::countCommunicators(plan, *messages);
    EXPECT_EQ(counted.groups, most.groups);
    EXPECT_EQ(counted.routes, most.routes);
    EXPECT_EQ(counted.scratch, most.scratch);
    EXPECT_GT(counted.groups, 0u);
    EXPECT_GT(counted.routes, 0u);
    EXPECT_EQ(counted.scratch > 0, outer > 1);
  }
}

/// No reserve where none is asked for.
TEST(NcclMemory, IsReservedWhereItIsMore) {
  EXPECT_EQ(getReserve(2'000'000'000, {5, 0, 0}), 2'000'000'000u);
  EXPECT_EQ(getReserve(2'000'000'000, {5, 4, 7}), 2'200'000'007u);
  EXPECT_EQ(getReserve(2'000'000'000, {}), 2'000'000'000u);
  EXPECT_EQ(getReserve(1, {}), 1u);
  EXPECT_EQ(getReserve(0, {5, 4, 7}), 0u);
}
