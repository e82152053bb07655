//===- HostNodeTest.cpp - Cores next to a GPU -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The fake driver says of its GPUs which node they are attached to
// (PLAIT_FAKE_HOST_NODE), and page-locks memory on one core alone
// (PLAIT_FAKE_HOST_CORE). What Linux says of the node is a folder of the
// test's.
//
//===----------------------------------------------------------------------===//

#include "CUDA/HostNode.h"
#include "TestPlan.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <thread>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

/// The cores that a list names, as a list of them; "-": it is none.
std::string read(const std::string &list) {
  std::optional<cpu_set_t> cores = parseCores(list);
  if (!cores)
    return "-";
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &*cores))
      text += (text.empty() ? "" : " ") + std::to_string(core);
  return text;
}

/// The cores that this thread may use.
cpu_set_t getOwn() {
  cpu_set_t own;
  CPU_ZERO(&own);
  sched_getaffinity(0, sizeof(own), &own);
  return own;
}

class HostNodeTest : public ::testing::Test {
protected:
  HostNodeTest() {
    setenv("PLAIT_FAKE_HOST_NODE", "3", 1);
    setenv("PLAIT_HOST_NODES", directory.c_str(), 1);
    for (last = CPU_SETSIZE - 1; last > 0 && !CPU_ISSET(last, &own);)
      --last;
    CPU_ZERO(&alone);
    CPU_SET(last, &alone);
  }
  ~HostNodeTest() override {
    for (const char *name :
         {"PLAIT_FAKE_HOST_NODE", "PLAIT_HOST_NODES", "PLAIT_FAKE_HOST_CORE"})
      unsetenv(name);
  }

  void write(const std::string &list) {
    std::filesystem::create_directory(directory + "/node3");
    writeFile(directory + "/node3/cpulist", {list.begin(), list.end()});
  }
  const Driver &driver() {
    auto loaded = Driver::load();
    EXPECT_TRUE(loaded.ok());
    return **loaded;
  }

  std::string directory = makeDirectory();
  cpu_set_t own = getOwn(), alone;
  int last; // core that this thread may use
};

} // namespace

TEST(HostNode, ReadsListsOfCores) {
  EXPECT_EQ(read("0-2,5\n"), "0 1 2 5");
  EXPECT_EQ(read("7"), "7");
  EXPECT_EQ(read("1,3-4,8"), "1 3 4 8");
  for (const char *list : {"", "\n", "a", "1-", "-1", "3-1", "1,", "1,,2",
                           "0-1x", "0-99999999999", "1024"})
    EXPECT_EQ(read(list), "-") << list;
}

TEST_F(HostNodeTest, KeepsAThreadNextToItsGpu) {
  write(std::to_string(last) + "\n");
  {
    OnHostNode node(driver(), 0);
    cpu_set_t now = getOwn();
    EXPECT_TRUE(CPU_EQUAL(&now, &alone));
  }
  cpu_set_t now = getOwn();
  EXPECT_TRUE(CPU_EQUAL(&now, &own));
  // With a thread that it starts.
  std::thread([&] {
    OnHostNode(driver(), 0).keep();
    std::thread([&] {
      cpu_set_t inherited = getOwn();
      EXPECT_TRUE(CPU_EQUAL(&inherited, &alone));
    }).join();
  }).join();
}

TEST_F(HostNodeTest, LeavesThreadsWhereNothingIsKnown) {
  auto expectOwn = [&] {
    OnHostNode node(driver(), 0);
    cpu_set_t now = getOwn();
    EXPECT_TRUE(CPU_EQUAL(&now, &own));
  };
  expectOwn(); // no such folder
  write("none");
  expectOwn();
  write("1023"); // a core that this thread may not use
  expectOwn();
  write(std::to_string(last));
  setenv("PLAIT_FAKE_HOST_NODE", "-1", 1);
  expectOwn();
}
