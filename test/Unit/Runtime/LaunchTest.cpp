//===- LaunchTest.cpp - Processes that find each other --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FreePort.h"

#include "Core/Launch.h"
#include "Core/Rendezvous.h"

#include <gtest/gtest.h>
#include <map>
#include <thread>

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
  EXPECT_EQ((*mpirun)->address, "127.0.0.1");

  auto srun = readWith({{"SLURM_PROCID", "1"},
                        {"SLURM_STEP_NUM_TASKS", "2"},
                        {"SLURM_LOCALID", "1"}});
  ASSERT_TRUE(srun.ok() && *srun);
  EXPECT_EQ((*srun)->launcher, "srun");
  auto batch = readWith({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  ASSERT_TRUE(batch.ok());
  EXPECT_FALSE(batch->has_value());
}

TEST(LaunchTest, NamesTheVariableThatIsWrong) {
  EXPECT_EQ(errorWith({{"RANK", "8"}, {"WORLD_SIZE", "8"}}),
            "environment variable RANK is '8', allowed are 0 to 7");
  EXPECT_EQ(errorWith({{"RANK", "x"}, {"WORLD_SIZE", "8"}}),
            "environment variable RANK is 'x', allowed are 0 to 7");
  EXPECT_EQ(errorWith({{"RANK", "0"}, {"WORLD_SIZE", "0"}}),
            "environment variable WORLD_SIZE is 0");
  EXPECT_EQ(
      errorWith({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "70000"}}),
      "environment variable MASTER_PORT is '70000', allowed are 0 to "
      "65535");
}

class RendezvousTest : public ::testing::Test {
protected:
  uint16_t port = freePort();

  Launch launch(uint32_t rank, uint32_t ranks) {
    return {"test", rank, ranks, rank, "127.0.0.1", port};
  }

  /// What `job` returns for each of `launches`, run at once.
  std::vector<std::string>
  runAll(const std::vector<Launch> &launches, std::chrono::milliseconds limit,
         const std::function<std::string(Rendezvous &)> &job) {
    std::vector<std::string> results(launches.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < launches.size(); ++i)
      threads.emplace_back([&, i] {
        auto joined = Rendezvous::join(launches[i], limit);
        results[i] = joined.ok() ? job(**joined) : joined.status().message();
      });
    for (std::thread &thread : threads)
      thread.join();
    return results;
  }
};

TEST_F(RendezvousTest, EverybodyHearsEverybody) {
  for (uint32_t ranks : {1u, 2u, 5u}) {
    std::vector<Launch> launches;
    // Rank 0 last: the others wait for it.
    for (uint32_t rank = ranks; rank-- > 0;)
      launches.push_back(launch(rank, ranks));
    auto results =
        runAll(launches, std::chrono::seconds(20), [&](Rendezvous &all) {
          std::string heard;
          for (int round = 0; round < 3; ++round) {
            auto texts = all.exchange(std::string(round * 1000, 'x') + "!");
            if (!texts.ok())
              return texts.status().message();
            for (const std::string &text : *texts)
              heard += std::to_string(text.size()) + " ";
          }
          return heard;
        });
    std::string expected;
    for (int size : {1, 1001, 2001})
      for (uint32_t rank = 0; rank < ranks; ++rank)
        expected += std::to_string(size) + " ";
    for (const std::string &result : results)
      EXPECT_EQ(result, expected);
  }
}

TEST_F(RendezvousTest, NamesWhoIsMissing) {
  auto results =
      runAll({launch(0, 3), launch(1, 3)}, std::chrono::milliseconds(300),
             [](Rendezvous &) { return std::string(); });
  EXPECT_EQ(results[0],
            "waited longer than 0.3 seconds for the process of rank 2");
  EXPECT_NE(results[1], "");
  auto alone = runAll({launch(1, 2)}, std::chrono::milliseconds(100),
                      [](Rendezvous &) { return std::string(); });
  EXPECT_TRUE(alone[0].starts_with("cannot reach rank 0 at 127.0.0.1:"))
      << alone[0];
}

TEST_F(RendezvousTest, RefusesRanksOfAnotherRun) {
  auto results = runAll({launch(0, 3), launch(1, 4)}, std::chrono::seconds(20),
                        [](Rendezvous &) { return std::string(); });
  EXPECT_EQ(results[0], "rank 1 is one of 4 ranks, this process of 3");
  port = freePort();
  results = runAll({launch(0, 3), launch(1, 3), launch(1, 3)},
                   std::chrono::seconds(20),
                   [](Rendezvous &) { return std::string(); });
  EXPECT_EQ(results[0], "a second process says that it is rank 1");
}

} // namespace
