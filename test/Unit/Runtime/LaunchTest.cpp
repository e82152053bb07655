//===- LaunchTest.cpp - How a process was started -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rendezvous/Launch.h"
#include "Core/Sockets.h"
#include "plait/Runtime/Rendezvous.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sys/resource.h>

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

/// PyTorch 2.4 and later set these variables, and 1.13 for runs of one host.
TEST(LaunchTest, TellsRunsApartWhoseLauncherListensItself) {
  std::map<std::string, std::string> one = {
      {"RANK", "0"},           {"WORLD_SIZE", "2"},
      {"LOCAL_RANK", "0"},     {"MASTER_ADDR", "localhost"},
      {"MASTER_PORT", "4000"}, {"TORCHELASTIC_RUN_ID", "none"}};
  auto runOf = [](std::map<std::string, std::string> variables) {
    auto launch = readWith(std::move(variables));
    return launch.ok() && *launch ? (*launch)->run : 0;
  };
  EXPECT_EQ(runOf(one), 0u);
  one["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_EQ(runOf(one), 0u);
  one["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  uint64_t run = runOf(one);
  EXPECT_NE(run, 0u);
  auto other = one;
  other["RANK"] = other["LOCAL_RANK"] = "1";
  // Agents count for themselves.
  other["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_EQ(runOf(other), run);
  other["TORCHELASTIC_RUN_ID"] = "another";
  EXPECT_NE(runOf(other), run);
  one["MASTER_PORT"] = "4001";
  EXPECT_NE(runOf(one), run);
}

TEST(LaunchTest, RefusesOtherLaunchers) {
  auto refusalWith = [](std::map<std::string, std::string> variables) {
    auto launch = readWith(std::move(variables));
    return !launch.ok() ? launch.status().message()
           : *launch    ? (*launch)->refusal
                        : "alone";
  };
  EXPECT_EQ(refusalWith({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}),
            "environment variable PMI_SIZE is 4, so this is one of several "
            "processes that mpiexec of MPICH or Intel MPI has started, which "
            "cannot be joined: start them with mpirun of Open MPI, srun or "
            "torchrun, or set RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR for "
            "each; for a run of this process alone unset PMI_SIZE");
  auto other = readWith({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}});
  EXPECT_EQ((*other)->rank, 1u); // is silent
  EXPECT_EQ((*other)->ranks, 4u);

  // Of a launcher that could be joined, what is missing is named.
  std::string rest = ": start them with mpirun of Open MPI, srun or torchrun, "
                     "or set RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR for "
                     "each; for a run of this process alone unset ";
  EXPECT_EQ(refusalWith({{"WORLD_SIZE", "2"}}),
            "environment variable WORLD_SIZE is 2, so this is one of several "
            "processes, but RANK is not set" +
                rest + "WORLD_SIZE");
  EXPECT_EQ(refusalWith({{"RANK", "1"}, {"MASTER_ADDR", "node3"}}),
            "environment variable RANK is 1, so this is one of several "
            "processes, but WORLD_SIZE is not set" +
                rest + "RANK");
  EXPECT_EQ(
      refusalWith({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4(x2)"}}),
      "environment variable SLURM_PROCID is 1, so this is one of several "
      "processes, but SLURM_STEP_NUM_TASKS is '4(x2)', which is no number" +
          rest + "SLURM_PROCID");

  // A count says it, or else a rank.
  std::vector<std::pair<std::map<std::string, std::string>, std::string>>
      cases = {
          {{{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "2"}},
           "MV2_COMM_WORLD_SIZE"},
          {{{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "2"}}, "FLUX_JOB_SIZE"},
          {{{"JSM_NAMESPACE_RANK", "0"}, {"JSM_NAMESPACE_SIZE", "2"}},
           "JSM_NAMESPACE_SIZE"},
          {{{"PALS_RANKID", "0"}}, "PALS_RANKID"},
          {{{"PMIX_RANK", "0"}}, "PMIX_RANK"},
          {{{"PMI_SIZE", "2"}}, "PMI_SIZE"},
          // Half of what plait-run reads.
          {{{"WORLD_SIZE", "2"}}, "WORLD_SIZE"},
          {{{"RANK", "1"}}, "RANK"},
          {{{"OMPI_COMM_WORLD_SIZE", "2"}}, "OMPI_COMM_WORLD_SIZE"},
          {{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}, "SLURM_PROCID"},
          {{{"SLURM_STEP_NUM_TASKS", "2"}}, "SLURM_STEP_NUM_TASKS"},
          // Within a job of SLURM, whose variables are inherited.
          {{{"SLURM_PROCID", "0"},
            {"SLURM_STEP_NUM_TASKS", "1"},
            {"PMI_RANK", "1"},
            {"PMI_SIZE", "4"}},
           "PMI_SIZE"}};
  for (const auto &[variables, name] : cases)
    EXPECT_TRUE(refusalWith(variables).starts_with("environment variable " +
                                                   name + " is "))
        << name << ": " << refusalWith(variables);

  // One process; the shell of a job; what a shell happens to have set; srun's
  // own process managers; and torchrun within a step of any launcher.
  EXPECT_EQ(refusalWith({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), "alone");
  EXPECT_EQ(refusalWith({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}),
            "alone");
  EXPECT_EQ(refusalWith({{"LSB_DJOB_NUMPROC", "4"}, {"PBS_VNODENUM", "0"}}),
            "alone");
  EXPECT_EQ(refusalWith({{"RANK", "captain"}}), "alone");
  std::map<std::string, std::string> srun = {{"SLURM_PROCID", "1"},
                                             {"SLURM_STEP_NUM_TASKS", "2"},
                                             {"SLURM_LOCALID", "1"},
                                             {"SLURM_STEP_NODELIST", "node3"}};
  srun["PMI_RANK"] = "1";
  srun["PMI_SIZE"] = "2";
  EXPECT_EQ(refusalWith(srun), "");
  EXPECT_EQ(refusalWith({{"SLURM_PROCID", "0"},
                         {"SLURM_STEP_NUM_TASKS", "1"},
                         {"PMIX_RANK", "0"}}),
            "alone");
  EXPECT_EQ(refusalWith({{"RANK", "1"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"MASTER_ADDR", "node3"},
                         {"PMI_SIZE", "2"}}),
            "");
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

/// No name has blanks, so that nobody is asked for it.
TEST(LaunchTest, NamesHostsThatAreNotThere) {
  const std::string host = "no such host", start = "cannot find '" + host;
  EXPECT_TRUE(checkHost(host).message().starts_with(start));
  EXPECT_TRUE(listenAt(host, 0).status().message().starts_with(start));
  EXPECT_TRUE(connectTo(host, 1, std::chrono::milliseconds(0))
                  .status()
                  .message()
                  .starts_with(start));
}

TEST(LaunchTest, AsksForDescriptors) {
  EXPECT_TRUE(allowDescriptors(1, "a process").ok());
  auto askForMore = [] {
    rlimit limit = {100, 100};
    setrlimit(RLIMIT_NOFILE, &limit);
    std::fputs(allowDescriptors(1000, "a process").message().c_str(), stderr);
    std::exit(3);
  };
  EXPECT_EXIT(askForMore(), testing::ExitedWithCode(3),
              "a process needs 1064 descriptors, one for each process that it "
              "talks to, allowed are 100");
}

TEST(LaunchTest, ReadsASecret) {
  std::map<std::string, std::string> launch = {{"RANK", "0"},
                                               {"WORLD_SIZE", "2"}};
  auto secretWith = [&](const char *name, const std::string &value) {
    auto variables = launch;
    variables[name] = value;
    auto read = readWith(variables);
    EXPECT_TRUE(read.ok() && *read);
    return read.ok() && *read ? (*read)->secret : Secret{};
  };
  std::string text = "sixteen letters.", path = testing::TempDir() + "secret";
  std::ofstream(path) << text << "\n";
  Secret secret = secretWith("PLAIT_SECRET", text);
  EXPECT_NE(secret[0], 0u);
  EXPECT_NE(secret[1], 0u);
  EXPECT_EQ(secretWith("PLAIT_SECRET_FILE", path), secret);
  EXPECT_NE(secretWith("PLAIT_SECRET", text + "!"), secret);
  EXPECT_EQ(secretWith("ANOTHER", text), Secret{});

  auto errorOf = [&](std::map<std::string, std::string> more) {
    more.insert(launch.begin(), launch.end());
    return errorWith(more);
  };
  EXPECT_EQ(errorOf({{"PLAIT_SECRET", text}, {"PLAIT_SECRET_FILE", path}}),
            "environment variables PLAIT_SECRET and PLAIT_SECRET_FILE are both "
            "set, one is enough");
  std::ofstream(path) << std::string(5000, 'x');
  EXPECT_EQ(errorOf({{"PLAIT_SECRET", ""}}),
            "the secret of PLAIT_SECRET has 0 bytes, allowed are 16 to 4096");
  EXPECT_EQ(errorOf({{"PLAIT_SECRET_FILE", path}}),
            "the secret of PLAIT_SECRET_FILE has more than 4096 bytes, allowed "
            "are 16 to 4096");
  // A folder opens, and cannot be read.
  for (const std::string &wrong : {path + "/nothing", testing::TempDir()})
    EXPECT_EQ(errorOf({{"PLAIT_SECRET_FILE", wrong}}),
              "cannot read '" + wrong + "', which PLAIT_SECRET_FILE names");
}

} // namespace
