//===- LaunchTest.cpp - Processes that find each other --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FreePort.h"

#include "Core/Launch.h"
#include "Core/TcpRendezvous.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <sys/resource.h>
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
        auto joined = TcpRendezvous::join(launches[i], limit);
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

TEST_F(RendezvousTest, AgreesOnTheFirstFailure) {
  std::vector<Launch> launches;
  for (uint32_t rank = 0; rank < 4; ++rank)
    launches.push_back(launch(rank, 4));
  auto results =
      runAll(launches, std::chrono::seconds(20), [&](Rendezvous &all) {
        uint32_t index = all.place().index;
        Status good = all.agree(Status::success());
        Status bad =
            all.agree(index < 2 ? Status::success() : fail("trouble ", index));
        EXPECT_EQ(all.speaksOfFailure(), index == 0);
        return (good.ok() ? "good, " : good.message()) + bad.message();
      });
  EXPECT_EQ(results, std::vector<std::string>(4, "good, process 2: trouble 2"));
}

TEST_F(RendezvousTest, NamesWhoDiffers) {
  std::vector<Launch> launches;
  for (uint32_t rank = 0; rank < 3; ++rank)
    launches.push_back(launch(rank, 3));
  auto results =
      runAll(launches, std::chrono::seconds(20), [&](Rendezvous &all) {
        uint32_t index = all.place().index;
        Status same = all.agreeOn("plan", "a");
        EXPECT_TRUE(same.ok());
        return all.agreeOn("plan", index == 1 ? "b" : "a").message();
      });
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  std::string text = std::string("process 1 on ") + host +
                     " has plan b, process 0 on " + host + " has plan a";
  EXPECT_EQ(results, std::vector<std::string>(3, text));
}

/// What `rank` of `ranks` says and hears, without a thread of its own.
class SimulatedRank {
public:
  SimulatedRank(uint16_t port, uint32_t rank, uint32_t ranks) {
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_port = htons(port);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // Rank 0 may not be listening yet.
    while (connect(connection, reinterpret_cast<sockaddr *>(&place),
                   sizeof(place)) != 0)
      usleep(1000);
    const uint32_t greeting[] = {0x506c6169, rank, ranks};
    EXPECT_EQ(write(connection, greeting, sizeof(greeting)),
              ssize_t(sizeof(greeting)));
  }
  ~SimulatedRank() { close(connection); }

  void say(const std::string &text) {
    uint32_t length = text.size();
    EXPECT_EQ(write(connection, &length, sizeof(length)), 4);
    EXPECT_EQ(write(connection, text.data(), length), ssize_t(length));
  }
  std::string hear() {
    uint32_t length = 0;
    EXPECT_EQ(recv(connection, &length, sizeof(length), MSG_WAITALL), 4);
    std::string text(length, '\0');
    if (length > 0) // or it would wait for more
      EXPECT_EQ(recv(connection, text.data(), length, MSG_WAITALL),
                ssize_t(length));
    return text;
  }

private:
  int connection = socket(AF_INET, SOCK_STREAM, 0);
};

TEST_F(RendezvousTest, ThousandsMeetOverOneMessageEach) {
  // Both ends are in this process.
  uint32_t ranks = 4096;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < 2 * ranks + 100)
    GTEST_SKIP() << "only " << limit.rlim_max << " descriptors";
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  std::thread others([&] {
    std::vector<std::unique_ptr<SimulatedRank>> all;
    for (uint32_t rank = 1; rank < ranks; ++rank)
      all.push_back(std::make_unique<SimulatedRank>(port, rank, ranks));
    // join(), then agree().
    for (auto &one : all)
      EXPECT_EQ(one->hear(), "");
    for (uint32_t rank = 1; rank < ranks; ++rank)
      all[rank - 1]->say(rank == 4000 ? "trouble" : "");
    for (auto &one : all)
      EXPECT_EQ(one->hear(), "process 4000: trouble");
  });
  auto joined = TcpRendezvous::join(launch(0, ranks), std::chrono::seconds(60));
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  EXPECT_EQ((*joined)->agree(Status::success()).message(),
            "process 4000: trouble");
  others.join();
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
