//===- FilesTest.cpp - Where outputs go -----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Files.h"

#include "TestPlan.h"
#include "plait/Plan/Json.h"
#include "plait/Plan/Signals.h"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace plait;
using namespace plait::test;

namespace {

namespace fs = std::filesystem;

class FilesTest : public ::testing::Test {
protected:
  std::string directory = makeDirectory();

  void SetUp() override { fs::create_directories(directory); }
  std::string in(const std::string &name) { return directory + "/" + name; }
  std::string read(const std::string &path) {
    std::vector<uint8_t> bytes = readFile(path);
    return {bytes.begin(), bytes.end()};
  }
  std::vector<std::string> list() {
    std::vector<std::string> names;
    for (const auto &entry : fs::directory_iterator(directory))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  static std::string error(const Status &status) {
    return status.ok() ? "" : status.message();
  }
};

using Names = std::vector<std::string>;

TEST_F(FilesTest, ReplacesWithCommitAlone) {
  ASSERT_EQ(error(writeTextFile(in("a"), "old")), "");
  chmod(in("a").c_str(), 0640);
  {
    auto file = OutputFile::create(in("a"));
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(read(in("a")), "old");
    EXPECT_EQ(list().size(), 2u);
  }
  EXPECT_EQ(list(), Names{"a"});
  ASSERT_EQ(error(writeTextFile(in("a"), "new")), "");
  EXPECT_EQ(read(in("a")), "new");
  struct stat info;
  ASSERT_EQ(stat(in("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(FilesTest, ReplacesWhatALinkLeadsTo) {
  fs::create_directories(in("other"));
  ASSERT_EQ(error(writeTextFile(in("other/a"), "old")), "");
  fs::create_symlink("other/a", in("link"));
  fs::create_symlink("link", in("link2"));
  fs::create_symlink("other/b", in("dangling"));
  ASSERT_EQ(error(writeTextFile(in("link2"), "new")), "");
  ASSERT_EQ(error(writeTextFile(in("dangling"), "b")), "");
  EXPECT_EQ(read(in("other/a")), "new");
  EXPECT_EQ(read(in("other/b")), "b");
  for (const char *link : {"link", "link2", "dangling"})
    EXPECT_TRUE(fs::is_symlink(in(link))) << link;
  fs::create_symlink("circle", in("circle"));
  EXPECT_EQ(error(writeTextFile(in("circle"), "")),
            "cannot write '" + in("circle") +
                "': Too many levels of symbolic links");
}

TEST_F(FilesTest, WritesToDevicesAndPipes) {
  // Where the test may make one, a device that nobody else needs.
  std::string null = in("null");
  if (mknod(null.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0)
    null = "/dev/null";
  ASSERT_EQ(error(writeTextFile(null, "nothing")), "");
  EXPECT_TRUE(fs::is_character_file(null));
  fs::remove(in("null"));
  EXPECT_EQ(error(writeTextFile("/dev/full", "x")),
            "cannot write '/dev/full': No space left on device");
  ASSERT_EQ(mkfifo(in("pipe").c_str(), 0600), 0);
  std::string text(100000, 'x'); // more than a pipe holds
  std::string received;
  std::thread reader([&] {
    int descriptor = open(in("pipe").c_str(), O_RDONLY);
    char block[4096];
    for (ssize_t size; (size = ::read(descriptor, block, sizeof block)) > 0;)
      received.append(block, size);
    close(descriptor);
  });
  EXPECT_EQ(error(writeTextFile(in("pipe"), text)), "");
  reader.join();
  EXPECT_EQ(received, text);
  EXPECT_TRUE(fs::is_fifo(in("pipe")));
  EXPECT_EQ(list(), Names{"pipe"});
}

/// Runs `body` in a child; returns what waitpid() says of it. A shell that
/// starts the tests in the background has signals ignored, which is inherited.
template <typename Body> int runInChild(Body body) {
  pid_t child = fork();
  if (child == 0) {
    for (int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM})
      signal(number, SIG_DFL);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(FilesTest, WritesToStandardOutput) {
  ASSERT_EQ(error(writeTextFile(in("out"), "before ")), "");
  runInChild([&] {
    dup2(open(in("out").c_str(), O_WRONLY | O_APPEND), STDOUT_FILENO);
    // Its own file by another name is not replaced, either.
    for (const std::string &path :
         {std::string("-"), std::string("/dev/stdout"), in("out")})
      if (Status status = writeTextFile(path, "text "); !status.ok())
        _exit(1);
  });
  EXPECT_EQ(read(in("out")), "before text text text ");
  EXPECT_EQ(list(), Names{"out"});
}

TEST_F(FilesTest, RefusesBinaryOnTerminals) {
  int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  std::string name = ptsname(terminal);
  auto file = OutputFile::create(name, OutputFile::Content::Binary);
  EXPECT_EQ(error(file.status()),
            "cannot write '" + name +
                "': it is a terminal, and what is written is binary; redirect "
                "it or name a file");
  EXPECT_TRUE(OutputFile::create(name).ok());
  close(terminal);
}

/// With room for one more descriptor there is none for what is written.
TEST_F(FilesTest, ClosesAStreamThatItCannotBuffer) {
  int next = dup(STDIN_FILENO);
  close(next);
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = {rlim_t(next) + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  bool created = OutputFile::create("/dev/null").ok();
  int again = dup(STDIN_FILENO);
  close(again);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(created);
  EXPECT_EQ(again, next);
}

TEST_F(FilesTest, RefusesDirectoriesAndSharedStandardOutput) {
  EXPECT_EQ(error(writeTextFile(directory, "x")),
            "cannot write '" + directory + "': Is a directory");
  EXPECT_EQ(error(checkOutputs({{"-o", "-"}, {"--log", "a"}})), "");
  EXPECT_EQ(error(checkOutputs({{"-o", "-"}, {"-p", ""}, {"--log", "-"}})),
            "-o and --log are both standard output");
}

TEST_F(FilesTest, RefusesOneFileForTwo) {
  ASSERT_TRUE(writeTextFile(in("a"), "x").ok());
  std::filesystem::create_symlink("a", in("link"));
  EXPECT_EQ(error(checkOutputs({{"-o", in("link")}}, {{"plan", in("a")}})),
            "-o and plan are the same file, '" + in("link") + "'");
  EXPECT_EQ(error(checkOutputs({{"-o", in("new")}, {"-p", in("./new")}})),
            "-o and -p are the same file, '" + in("new") + "'");
  EXPECT_EQ(error(checkOutputs({{"-o", "none"}, {"-p", "./none"}})),
            "-o and -p are the same file, 'none'");
  EXPECT_EQ(error(checkOutputs({{"-o", in("new")}, {"-p", in("a")}},
                               {{"plan", in("b")}, {"data", in("")}})),
            "");
  // Nothing is replaced there.
  EXPECT_EQ(error(checkOutputs({{"-o", "/dev/null"}, {"-p", "/dev/null"}})),
            "");
}

TEST_F(FilesTest, RemovesTemporaryFilesWhenAsked) {
  auto kept = OutputFile::create(in("a"));
  auto moved = std::move(kept);
  ASSERT_TRUE(moved.ok());
  {
    auto gone = OutputFile::create(in("b"));
  }
  ASSERT_EQ(error(writeTextFile(in("c"), "c")), "");
  EXPECT_EQ(list().size(), 2u);
  removeTemporaryFiles();
  EXPECT_EQ(list(), Names{"c"});
}

TEST_F(FilesTest, SignalsRemoveTemporaryFiles) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGSEGV, SIGABRT}) {
    int status = runInChild([&] {
      removeTemporaryFilesOnSignals();
      auto file = OutputFile::create(in("a"));
      if (list().size() != 1)
        _exit(1);
      raise(signal);
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_EQ(list(), Names{});
  }
  int status = runInChild([] {
    signal(SIGHUP, SIG_IGN); // as nohup does
    removeTemporaryFilesOnSignals();
    raise(SIGHUP);
  });
  EXPECT_EQ(status, 0);
}

TEST_F(FilesTest, TheSecondInterruptEndsAtOnce) {
  int status = runInChild([&] {
    close(STDERR_FILENO);
    removeTemporaryFilesOnSignals();
    deferInterrupts("test");
    auto file = OutputFile::create(in("a"));
    raise(SIGTERM);
    if (receivedInterrupt() != SIGTERM || list().size() != 1)
      _exit(1);
    raise(SIGINT);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << status;
  EXPECT_EQ(list(), Names{});
}

TEST_F(FilesTest, WhatALauncherPassesOnIsNoSecondInterrupt) {
  for (auto [first, second] :
       {std::pair(SIGUSR1, SIGTERM), {SIGTERM, SIGUSR1}, {SIGUSR1, SIGUSR1}}) {
    int status = runInChild([&, first = first, second = second] {
      close(STDERR_FILENO);
      deferInterrupts("test");
      raise(first);
      raise(second);
      if (receivedInterrupt() != first)
        _exit(1);
      raise(SIGINT);
      _exit(2);
    });
    // After SIGUSR1 alone, SIGINT is the first of its kind.
    int expected = first == second ? 2 : 128 + SIGINT;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == expected)
        << first << " " << second << ": " << status;
  }
}

TEST(JsonTest, SaysWhereAnErrorIs) {
  auto error = [](std::string_view text) {
    auto bytes = reinterpret_cast<const uint8_t *>(text.data());
    auto parsed = parseJson<nlohmann::json>({bytes, text.size()}, 2);
    return parsed.ok() ? "" : parsed.status().message();
  };
  EXPECT_EQ(error("{\"a\": [1]}"), "");
  EXPECT_EQ(error("{\"a\":\n  1,}").substr(0, 17), "is not JSON: 2:5:");
  EXPECT_EQ(error("").substr(0, 17), "is not JSON: 1:1:");
  for (const char *deep : {"[[[[]]]]", "[[[["})
    EXPECT_EQ(error(deep), "nests deeper than 2 levels");
  for (const char *twice :
       {"{\"a\": 1, \"b\": 2, \"a\": 1}", "[{\"a\": 1, \"a\": 2}]"})
    EXPECT_EQ(error(twice), "has the key \"a\" twice in one object");
  EXPECT_EQ(error("[{\"a\": 1}, {\"a\": 1}]"), "");
  EXPECT_EQ(error("\"text\""), "");
  for (const char *none :
       {"[1e999]", "[NaN]", "// x\n[]", "[1,]", "[] []", "[\"\xff\"]", "[01]"})
    EXPECT_EQ(error(none).substr(0, 13), "is not JSON: ") << none;
}

} // namespace
