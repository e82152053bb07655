//===- LaunchTest.cpp - How a process was started -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Core/Launch.h"
#include "plait/Runtime/Rendezvous.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>

using namespace plait;
using namespace plait::runtime;

namespace {

std::map<std::string, std::string> environment;

Result<std::optional<Launch>>
readWith(std::map<std::string, std::string> variables) {
  environment = std::move(variables);
  return readLaunch([](const char *name) -> const char * {
    auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string errorWith(std::map<std::string, std::string> variables) {
  auto launch = readWith(std::move(variables));
  return launch.ok() ? "" : launch.status().message();
}

TEST(LaunchTest, ReadsWhatLaunchersSet) {
  auto none = readWith({{"SLURM_JOB_ID", "7"}});
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());

  auto torchrun = readWith({{"RANK", "3"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"MASTER_ADDR", "node7"},
                            {"MASTER_PORT", "1234"}});
  ASSERT_TRUE(torchrun.ok() && *torchrun);
  EXPECT_EQ((*torchrun)->rank, 3u);
  EXPECT_EQ((*torchrun)->ranks, 8u);
  EXPECT_EQ((*torchrun)->localRank, 1u);
  EXPECT_EQ((*torchrun)->address, "node7");
  EXPECT_EQ((*torchrun)->port, 1234);

  auto mpirun = readWith({{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  ASSERT_TRUE(mpirun.ok() && *mpirun);
  EXPECT_EQ((*mpirun)->launcher, "mpirun");
  EXPECT_EQ((*mpirun)->localRank, 0u);
  EXPECT_TRUE((*mpirun)->hasMpi);

  auto srun = readWith({{"SLURM_PROCID", "1"},
                        {"SLURM_STEP_NUM_TASKS", "2"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_STEP_NODELIST", "node3"}});
  ASSERT_TRUE(srun.ok() && *srun);
  EXPECT_EQ((*srun)->launcher, "srun");
  EXPECT_FALSE((*srun)->hasMpi);
  auto batch = readWith({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  ASSERT_TRUE(batch.ok());
  EXPECT_FALSE(batch->has_value());
}

TEST(LaunchTest, FindsTheFirstHostOfAList) {
  EXPECT_EQ(firstHostOf("node7"), "node7");
  EXPECT_EQ(firstHostOf("node7,node9"), "node7");
  EXPECT_EQ(firstHostOf("node[03-05,7],login"), "node03");
  EXPECT_EQ(firstHostOf("node[12]"), "node12");
  EXPECT_EQ(firstHostOf("r[1-2]n[8,9]-ib"), "r1n8-ib");
  EXPECT_EQ(firstHostOf("node[1"), "");
  EXPECT_EQ(firstHostOf(""), "");
}

TEST(LaunchTest, FindsRankZeroOnAnotherHostOrFails) {
  auto addressWith = [](std::map<std::string, std::string> variables) {
    auto launch = readWith(std::move(variables));
    return !launch.ok() ? launch.status().message() : (*launch)->address;
  };
  std::map<std::string, std::string> srun = {{"SLURM_PROCID", "1"},
                                             {"SLURM_STEP_NUM_TASKS", "2"},
                                             {"SLURM_LOCALID", "0"}};
  EXPECT_EQ(addressWith(srun),
            "environment variable MASTER_ADDR is not set, and srun has started "
            "processes on several hosts");
  srun["SLURM_STEP_NODELIST"] = "gpu[4-5]";
  EXPECT_EQ(addressWith(srun), "gpu4");
  srun["MASTER_ADDR"] = "10.0.0.1";
  EXPECT_EQ(addressWith(srun), "10.0.0.1");
  std::string several = "environment variable MASTER_ADDR is not set, and "
                        "torchrun has started processes on several hosts";
  EXPECT_EQ(
      addressWith({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}}),
      several);
  EXPECT_EQ(addressWith({{"RANK", "1"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "2"}}),
            several);
  EXPECT_EQ(addressWith({{"RANK", "1"},
                         {"WORLD_SIZE", "2"},
                         {"SLURM_STEP_NODELIST", "gpu[4-5]"}}),
            "gpu4");
  EXPECT_EQ(
      addressWith({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}),
      "127.0.0.1");
  // MPI needs no address.
  EXPECT_EQ(addressWith({{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}),
            "");
}

TEST(LaunchTest, SpreadsRanksEvenlyInOrder) {
  for (uint32_t ranks : {1u, 7u, 8u, 4096u})
    for (uint32_t processes = 1; processes <= std::min(ranks, 40u);
         ++processes) {
      RankSpread spread = {ranks, processes};
      EXPECT_EQ(spread.firstOf(0), 0u);
      EXPECT_EQ(spread.firstOf(processes), ranks);
      for (uint32_t process = 0; process < processes; ++process) {
        uint32_t first = spread.firstOf(process);
        uint32_t count = spread.firstOf(process + 1) - first;
        EXPECT_GE(count, ranks / processes);
        EXPECT_LE(count, spread.largest());
        EXPECT_LE(spread.largest(), ranks / processes + 1);
        EXPECT_EQ(spread.processOf(first), process);
        EXPECT_EQ(spread.processOf(first + count - 1), process);
      }
    }
}

TEST(LaunchTest, NamesTheVariableThatIsWrong) {
  EXPECT_EQ(errorWith({{"RANK", "8"}, {"WORLD_SIZE", "8"}}),
            "environment variable RANK is '8', allowed are 0 to 7");
  EXPECT_EQ(errorWith({{"RANK", "x"}, {"WORLD_SIZE", "8"}}),
            "environment variable RANK is 'x', allowed are 0 to 7");
  EXPECT_EQ(errorWith({{"RANK", "0"}, {"WORLD_SIZE", "0"}}),
            "environment variable WORLD_SIZE is 0");
  EXPECT_EQ(errorWith({{"RANK", "5"}, {"WORLD_SIZE", "00"}}),
            "environment variable WORLD_SIZE is 0");
  EXPECT_EQ(
      errorWith({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "70000"}}),
      "environment variable MASTER_PORT is '70000', allowed are 0 to "
      "65535");
}

} // namespace
