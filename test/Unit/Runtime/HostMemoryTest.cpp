//===- HostMemoryTest.cpp - Whether arenas fit a host ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Core/HostMemory.h"

#include "FreePort.h"
#include "Rendezvous/TcpRendezvous.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>

using namespace plait;
using namespace plait::runtime;

namespace {

class HostMemoryTest : public ::testing::Test {
protected:
  std::string root;

  void SetUp() override {
    char name[] = "/tmp/plait-memory-XXXXXX";
    root = mkdtemp(name);
    write("/proc/sys/kernel/random/boot_id", "boot\n");
    write("/proc/meminfo", "MemTotal:       4000 kB\n"
                           "MemFree:         100 kB\n"
                           "MemAvailable:    3000 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root); }

  void write(const std::string &path, const std::string &text) {
    std::filesystem::create_directories(
        std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  /// "WHERE: BYTES; …", by pool.
  std::string read() {
    std::string text;
    for (const MemoryPool &pool : readMemoryPools(root))
      text += pool.where + ": " + std::to_string(pool.available) + ";";
    return text;
  }
};

TEST_F(HostMemoryTest, ReadsTheHost) { EXPECT_EQ(read(), ": 3072000;"); }

TEST_F(HostMemoryTest, ReadsEachLevelOfVersion2) {
  write("/proc/self/cgroup", "0::/jobs/7\n");
  write("/sys/fs/cgroup/jobs/7/memory.max", "max\n");
  write("/sys/fs/cgroup/jobs/7/memory.current", "500\n");
  write("/sys/fs/cgroup/jobs/memory.max", "1000\n");
  write("/sys/fs/cgroup/jobs/memory.current", "700\n");
  write("/sys/fs/cgroup/jobs/memory.stat",
        "anon 400\nactive_file 20\ninactive_file 30\n");
  EXPECT_EQ(read(), ": 3072000; in control group /jobs: 350;");
}

TEST_F(HostMemoryTest, ReadsVersion1) {
  write("/proc/self/cgroup", "5:cpu:/x\n4:memory:/jobs\n");
  write("/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "1000\n");
  write("/sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "1200\n");
  EXPECT_EQ(read(), ": 3072000; in control group /jobs: 0;");
}

TEST_F(HostMemoryTest, ReadsTheRootOfAContainer) {
  // The path is the host's.
  write("/proc/self/cgroup", "0::/docker/0123\n");
  write("/sys/fs/cgroup/memory.max", "1000\n");
  write("/sys/fs/cgroup/memory.current", "100\n");
  EXPECT_EQ(read(), ": 3072000; in control group /: 900;");
}

TEST_F(HostMemoryTest, AddsUpWhatTheProcessesOfAHostTake) {
  uint64_t available = readMemoryPools().front().available;
  uint16_t port = freePort();
  std::vector<std::string> results(3);
  std::vector<std::thread> processes;
  for (uint32_t rank = 0; rank < 3; ++rank)
    processes.emplace_back([&, rank] {
      auto joined = TcpRendezvous::join(
          {"test", rank, 3, rank, "127.0.0.1", port}, std::chrono::seconds(20));
      ASSERT_TRUE(joined.ok()) << joined.status().message();
      // Each alone fits, with room for what else goes on here.
      Status small = checkHostMemory(available / 8, 1, joined->get());
      EXPECT_TRUE(small.ok()) << small.message();
      results[rank] =
          checkHostMemory(available / 2, 2, joined->get()).message();
    });
  for (std::thread &process : processes)
    process.join();
  for (const std::string &result : results) {
    EXPECT_EQ(result, results[0]);
    EXPECT_TRUE(result.starts_with("6 ranks on ")) << result;
    EXPECT_NE(result.find(" need " + std::to_string(available / 2 * 3) +
                          " bytes of memory, "),
              std::string::npos)
        << result;
  }
  Status copies = checkHostMemory(UINT64_MAX / 2, 1, nullptr, 7);
  ASSERT_FALSE(copies.ok());
  EXPECT_NE(
      copies.message().find(" bytes of memory, 7 of them for `replica`, "),
      std::string::npos)
      << copies.message();
  Status alone = checkHostMemory(UINT64_MAX / 2, 1, nullptr);
  ASSERT_FALSE(alone.ok());
  EXPECT_TRUE(alone.message().starts_with(
      "1 rank on this host needs 9223372036854775807 bytes of memory, "))
      << alone.message();
}

} // namespace
