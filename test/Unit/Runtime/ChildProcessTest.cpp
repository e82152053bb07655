//===- ChildProcessTest.cpp - How programs that were started end ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Supervisor/ChildProcess.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>

using namespace plait;
using namespace plait::runtime;

namespace {

void awaitEnd(ChildProcess &child) {
  while (child.isRunning())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(ChildProcess, EndsWithACodeOrASignal) {
  for (auto [line, code] :
       {std::pair("exit 0", 0), {"exit 3", 3}, {"kill -9 $$", 128 + 9}}) {
    auto child = ChildProcess::start({"sh", "-c", line});
    ASSERT_TRUE(child.ok()) << child.status().message();
    awaitEnd(*child);
    EXPECT_EQ(child->exitCode(), code) << line;
  }
  auto none = ChildProcess::start({"no-such-program"});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(),
            "cannot start 'no-such-program': No such file or directory");
}

/// What somebody else has waited for has not succeeded.
TEST(ChildProcess, MayEndUnseen) {
  auto child = ChildProcess::start({"sh", "-c", "exit 3"});
  ASSERT_TRUE(child.ok()) << child.status().message();
  EXPECT_GT(waitpid(-1, nullptr, 0), 0);
  awaitEnd(*child);
  EXPECT_EQ(child->exitCode(), -1);
}

} // namespace
