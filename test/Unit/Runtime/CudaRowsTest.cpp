//===- CudaRowsTest.cpp - Rows of experts between GPUs --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaExecution.h"

using namespace plait;
using namespace plait::test;

#ifdef PLAIT_PLAITC
namespace {

uint64_t countGraphLaunches() {
  return findFake<uint64_t()>("plaitFakeGraphLaunches")();
}

/// A Mixtral of two layers.
class CudaRowsTest : public CudaExecutorTest {
protected:
  void SetUp() override {
    if (access(PLAIT_PLAITC, X_OK) != 0)
      GTEST_SKIP() << PLAIT_PLAITC << " has not been built";
  }
};

class CudaRowsModelTest : public CudaRowsTest,
                          public ::testing::WithParamInterface<const char *> {};

TEST_P(CudaRowsModelTest, EqualsTheCpu) {
  fb::PlanT cpu =
      compile(std::string("--expert-exchange rows --seq 8 ") + GetParam(),
              PLAIT_EXPERTS);
  ASSERT_TRUE(plan::exchangesRows(pack(cpu)));
  compare(cpu);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, CudaRowsModelTest,
    ::testing::Values("--mesh ep=2 --global-batch 4",
                      "--mesh pp=2,ep=4 --global-batch 8 --micro-batch 1 "
                      "--expert-chunks 2 --precision bf16",
                      "--mesh dp=2,ep=2 --zero 1 --global-batch 8 --recompute "
                      "full",
                      "--mesh ep=3 --global-batch 6 --precision bf16"));

/// Where NCCL asks for counts nothing is recorded, and the user is told so;
/// ranks that read each other's memory are recorded.
TEST_F(CudaRowsTest, AreWalkedOverNccl) {
  const fb::Plan &plan =
      pack(toCuda(compile("--expert-exchange rows --seq 8 --mesh ep=2 "
                          "--global-batch 4",
                          PLAIT_EXPERTS),
                  directory));
  for (unsigned devices : {1u, 0u})
    for (bool graph : {false, true}) {
      auto executor = Executor::create(plan, options(devices, graph));
      ASSERT_TRUE(executor.ok()) << executor.status().message();
      bool tells = (*executor)->libraries().find(
                       "\nsteps are not recorded: ") != std::string::npos;
      EXPECT_EQ(tells, devices == 0 && graph);
      uint64_t before = countGraphLaunches();
      ASSERT_TRUE(initializeWeights(**executor, 7).ok());
      ASSERT_TRUE(trainThreeSteps(**executor, plan).ok());
      EXPECT_EQ(countGraphLaunches() > before, devices == 1 && graph);
    }
}

/// The group has no room for what the plan would send.
TEST_F(CudaRowsTest, NeedRoom) {
  std::vector<uint8_t> arena = plan::packPlan(makeArenaPlan(2, 4096));
  Topology topology;
  topology.ranks = topology.programRanks = 2;
  topology.groups = {{0, 1}};
  topology.packedBytes = {95};
  auto backend = createNcclThreadBackend(*fb::GetPlan(arena.data()), topology,
                                         options(0, false));
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  auto group =
      backend->parts.front().communicator->join(std::vector<uint32_t>{0, 1});
  ASSERT_TRUE(group.ok()) << group.status().message();
  std::byte *memory = backend->parts.front().device->arena();
  Status status = (*group)->moveRows(
      memory, memory + 1024, {fb::DType::F32, 1, 4},
      {reinterpret_cast<const int32_t *>(memory), 4, 1, 1, false});
  EXPECT_EQ(status.message(), "rows of experts need 96 bytes to pack them "
                              "into, the group has 95");
}

} // namespace
#endif
