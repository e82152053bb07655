//===- RendezvousTest.cpp - Processes that find each other ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FreePort.h"

#include "Rendezvous/Meeting.h"
#include "Rendezvous/TcpRendezvous.h"
#include "plait/Runtime/Communicator.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>

using namespace plait;
using namespace plait::runtime;

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Job = std::function<std::string(Rendezvous &)>;

/// What a message begins with where another process tells of the failure.
constexpr char released[] = "another rank has failed";

class RendezvousTest : public ::testing::Test {
protected:
  uint16_t port = freePort();

  Launch launch(uint32_t rank, uint32_t ranks) {
    return {"test", rank, ranks, rank, "127.0.0.1", port};
  }

  std::vector<Launch> launches(uint32_t ranks) {
    std::vector<Launch> all;
    for (uint32_t rank = 0; rank < ranks; ++rank)
      all.push_back(launch(rank, ranks));
    return all;
  }

  /// What `job` returns for each of `launches`, run at once.
  std::vector<std::string> runAll(const std::vector<Launch> &launches,
                                  milliseconds limit, const Job &job) {
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
  for (uint32_t ranks : {1u, 2u, 5u, 90u}) {
    std::vector<Launch> launches;
    // Rank 0 last: the others wait for it.
    for (uint32_t rank = ranks; rank-- > 0;)
      launches.push_back(launch(rank, ranks));
    auto results = runAll(launches, seconds(20), [&](Rendezvous &all) {
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

/// What they say together is several frames.
TEST_F(RendezvousTest, EverybodyHearsLongTexts) {
  constexpr size_t size = Frame::mostBytes + 1;
  auto results = runAll(launches(3), seconds(20), [&](Rendezvous &all) {
    char own = char('a' + all.place().index);
    auto texts = all.exchange(std::string(size, own));
    if (!texts.ok())
      return texts.status().message();
    std::string heard;
    for (const std::string &text : *texts)
      if (text == std::string(size, text[0]))
        heard += text[0];
    return heard;
  });
  EXPECT_EQ(results, std::vector<std::string>(3, "abc"));
}

TEST_F(RendezvousTest, AgreesOnTheFirstFailure) {
  auto results = runAll(launches(20), seconds(20), [&](Rendezvous &all) {
    uint32_t index = all.place().index;
    Status good = all.agree(Status::success());
    Status bad =
        all.agree(index < 12 ? Status::success() : fail("trouble ", index));
    EXPECT_EQ(all.speaksOfFailure(), index == 0);
    return (good.ok() ? "good, " : good.message()) + bad.message();
  });
  EXPECT_EQ(results,
            std::vector<std::string>(20, "good, process 12: trouble 12"));
}

TEST_F(RendezvousTest, NamesWhoDiffers) {
  auto results = runAll(launches(12), seconds(20), [&](Rendezvous &all) {
    uint32_t index = all.place().index;
    Status same = all.agreeOn("plan", "a");
    EXPECT_TRUE(same.ok());
    return all.agreeOn("plan", index == 11 ? "b" : "a").message();
  });
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  std::string text = std::string("process 11 on ") + host +
                     " has plan b, process 0 on " + host + " has plan a";
  EXPECT_EQ(results, std::vector<std::string>(12, text));
}

TEST_F(RendezvousTest, NamesTheOneValueThatDiffers) {
  auto results = runAll(launches(3), seconds(20), [&](Rendezvous &all) {
    bool isLast = all.place().index == 2;
    std::vector<SharedValue> values = {
        {"1", "seed 1"}, {"", "no shuffle"}, {isLast ? "2" : "1", "lr"}};
    values[2].text += " " + values[2].value;
    return all.agreeOn(values).message();
  });
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  std::string text = std::string("process 2 on ") + host +
                     " has lr 2, process 0 on " + host + " has lr 1";
  EXPECT_EQ(results, std::vector<std::string>(3, text));
}

//===----------------------------------------------------------------------===//
// Where process 0 is found
//===----------------------------------------------------------------------===//

/// A run whose launcher listens at the port itself.
class HeldPortTest : public RendezvousTest {
protected:
  Launch launch(uint32_t rank, uint32_t ranks, uint64_t run) {
    Launch one = RendezvousTest::launch(rank, ranks);
    one.run = run;
    return one;
  }

  Result<Socket> agent = listenOn(port, 1);
  // Differs between tests that may run at the same time.
  uint64_t run = uint64_t(port) << 16 | uint64_t(getpid());
};

TEST_F(HeldPortTest, MeetsAtAnotherPort) {
  ASSERT_TRUE(agent.ok());
  auto results =
      runAll({launch(2, 3, run), launch(1, 3, run), launch(0, 3, run)},
             seconds(20), [](Rendezvous &) { return std::string("met"); });
  EXPECT_EQ(results, std::vector<std::string>(3, "met"));
}

/// One of the ports is held by who says nothing, one by who repeats what he
/// hears, and one by process 0 of another run, which waits in vain.
TEST_F(HeldPortTest, PassesOverStrangers) {
  std::vector<uint16_t> ports = meetingPorts(launch(0, 3, run));
  auto silent = listenOn(ports[0], 8), echo = listenOn(ports[1], 8);
  auto other = Reception::open(ports[2], run + 1);
  ASSERT_TRUE(silent.ok() && echo.ok() && other.ok());
  std::atomic<bool> isOver = false;
  std::thread repeats([&] {
    while (!isOver) {
      pollfd event = {echo->get(), POLLIN, 0};
      if (poll(&event, 1, 20) != 1)
        continue;
      Socket guest(accept(echo->get(), nullptr, nullptr));
      char heard[sizeof(Greeting)];
      if (receiveAll(guest.get(), heard, sizeof(heard)))
        sendAll(guest.get(), heard, sizeof(heard));
    }
  });
  std::thread waits([&] {
    while (!isOver) {
      auto arrivals = other->serve(seconds(20));
      EXPECT_TRUE(arrivals.ok() && arrivals->empty());
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  auto results =
      runAll({launch(0, 3, run), launch(1, 3, run), launch(2, 3, run)},
             seconds(60), [](Rendezvous &) { return std::string("met"); });
  isOver = true;
  repeats.join();
  waits.join();
  EXPECT_EQ(results, std::vector<std::string>(3, "met"));
}

TEST_F(HeldPortTest, RefusesWhoIsLeftFromAnEarlierStart) {
  uint16_t first = meetingPorts(launch(0, 2, run))[0];
  auto left = Reception::open(first, run);
  ASSERT_TRUE(left.ok());
  std::atomic<bool> isOver = false;
  std::thread waits([&] {
    while (!isOver) {
      EXPECT_TRUE(left->serve(seconds(20)).ok());
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  auto results = runAll({launch(0, 2, run)}, seconds(20),
                        [](Rendezvous &) { return std::string(); });
  isOver = true;
  waits.join();
  EXPECT_EQ(results[0], "a process of an earlier start of this run waits as "
                        "rank 0 at port " +
                            std::to_string(first) + ": end it");
}

/// A program that has taken the port answers with all that it has heard.
TEST_F(HeldPortTest, WhoTakesThePortLearnsHalfOfTheSecret) {
  ASSERT_TRUE(agent.ok());
  std::atomic<bool> isOver = false;
  std::atomic<uint64_t> first = 0, second = 0;
  std::thread thief([&] {
    while (!isOver) {
      pollfd event = {agent->get(), POLLIN, 0};
      if (poll(&event, 1, 20) != 1)
        continue;
      Socket guest(accept(agent->get(), nullptr, nullptr));
      Greeting heard;
      if (!receiveAll(guest.get(), &heard, sizeof(heard)))
        continue;
      first = heard.secret[0];
      second = second | heard.secret[1];
      heard.purpose = Greeting::Purpose::CheckIn;
      sendAll(guest.get(), &heard, sizeof(heard));
    }
  });
  Launch one = launch(1, 2, /*run=*/0);
  one.secret = {7, 8};
  auto results = runAll({one}, milliseconds(500),
                        [](Rendezvous &) { return std::string(); });
  isOver = true;
  thief.join();
  EXPECT_TRUE(results[0].ends_with("no process of this run listens there, with "
                                   "this one's secret"))
      << results[0];
  EXPECT_EQ(first, 7u);
  EXPECT_EQ(second, 0u);
}

TEST_F(HeldPortTest, SaysWhereNobodyListens) {
  auto results = runAll({launch(1, 2, run)}, milliseconds(200),
                        [](Rendezvous &) { return std::string(); });
  EXPECT_TRUE(results[0].starts_with("cannot reach rank 0 at 127.0.0.1:") &&
              results[0].ends_with(": no process of this run listens there"))
      << results[0];
}

//===----------------------------------------------------------------------===//
// Who is missing, and who ends
//===----------------------------------------------------------------------===//

TEST_F(RendezvousTest, NamesAllWhoAreMissing) {
  // Of 20, 3 and 11 to 13; 3 is between 0 and others that are there.
  std::vector<Launch> present;
  for (const Launch &one : launches(20))
    if (one.rank != 3 && (one.rank < 11 || one.rank > 13))
      present.push_back(one);
  auto results = runAll(present, milliseconds(500),
                        [](Rendezvous &) { return std::string("joined"); });
  std::string text = "waited longer than 0.5 seconds for the processes of "
                     "ranks 3, 11, 12, 13, of 20";
  EXPECT_EQ(results[0], text);
  // One speaks for those that it can tell.
  for (size_t i = 1; i < present.size(); ++i)
    EXPECT_TRUE(results[i].starts_with(released)) << results[i];
  EXPECT_EQ(results[1], std::string(released) + ": " + text);

  auto alone = runAll({launch(1, 2)}, milliseconds(100),
                      [](Rendezvous &) { return std::string(); });
  EXPECT_TRUE(alone[0].starts_with("cannot reach rank 0 at 127.0.0.1:"))
      << alone[0];
}

TEST_F(RendezvousTest, RefusesRanksOfAnotherRun) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  std::string text = std::string("rank 1 on ") + host +
                     " is one of 4 ranks, this process of 3";
  auto results = runAll({launch(0, 3), launch(1, 4)}, seconds(20),
                        [](Rendezvous &) { return std::string(); });
  EXPECT_EQ(results[0], text);
  EXPECT_EQ(results[1], std::string(released) + ": " + text);
  port = freePort();
  results = runAll({launch(0, 3), launch(1, 3), launch(1, 3)}, seconds(20),
                   [](Rendezvous &) { return std::string(); });
  EXPECT_EQ(results[0], "a second process says that it is rank 1");
}

/// A process that does less than it should.
class PoorProcess {
public:
  /// Says that it is `rank`, reached where nobody listens, and hears who its
  /// neighbours are.
  PoorProcess(uint16_t port, uint32_t rank, uint32_t ranks) {
    auto made = connectTo("127.0.0.1", port, seconds(20));
    EXPECT_TRUE(made.ok());
    connection = std::move(*made);
    Greeting greeting = {.rank = rank, .ranks = ranks, .port = 1};
    strcpy(greeting.host, "poor");
    EXPECT_TRUE(sendAll(connection.get(), &greeting, sizeof(greeting)));
    Frame answer;
    EXPECT_TRUE(receiveFrame(connection.get(), answer));
  }
  void sayThatItIsDone() { EXPECT_TRUE(sendFrame(connection.get(), {})); }

private:
  Socket connection;
};

TEST_F(RendezvousTest, MissesWhoEndsWhileOthersStart) {
  // Before it has reached its neighbours.
  std::thread ends([&] { PoorProcess(port, 11, 12); });
  auto results = runAll({launch(0, 12), launch(4, 12)}, seconds(20),
                        [](Rendezvous &) { return std::string(); });
  ends.join();
  std::string text =
      "the process of rank 11 on poor has ended while others start";
  EXPECT_EQ(results[0], text);
  // A process that comes when all is over finds nobody.
  EXPECT_TRUE(results[1] == std::string(released) + ": " + text ||
              results[1].starts_with("cannot reach rank 0 at 127.0.0.1:"))
      << results[1];

  // After that, but before the one above it has come, which says so.
  port = freePort();
  std::atomic<bool> isThere = false;
  std::thread first([&] {
    PoorProcess poor(port, 11, 12);
    poor.sayThatItIsDone();
    isThere = true;
  });
  std::thread above([&] {
    while (!isThere)
      std::this_thread::sleep_for(milliseconds(1));
    auto joined = TcpRendezvous::join(launch(1, 12), seconds(20));
    ASSERT_FALSE(joined.ok());
    EXPECT_TRUE(joined.status().message().starts_with(
        "cannot reach rank 11 on poor at 127.0.0.1:1"))
        << joined.status().message();
  });
  results = runAll({launch(0, 12)}, seconds(20),
                   [](Rendezvous &) { return std::string(); });
  first.join();
  above.join();
  EXPECT_TRUE(results[0].starts_with(std::string(released) +
                                     ": cannot reach rank 11 on poor"))
      << results[0];
}

TEST_F(RendezvousTest, EndsWhereFirstHasEnded) {
  // Rank 20 is below 2, which never comes: only process 0 could tell it.
  std::thread first([&] {
    auto joined = TcpRendezvous::join(launch(0, 21), milliseconds(300));
    EXPECT_FALSE(joined.ok());
  });
  auto start = std::chrono::steady_clock::now();
  auto joined = TcpRendezvous::join(launch(20, 21), seconds(60));
  first.join();
  ASSERT_FALSE(joined.ok());
  EXPECT_TRUE(joined.status().message().starts_with(std::string(released) +
                                                    ": rank 0 has ended: "))
      << joined.status().message();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(20));
}

/// How many of the processes say why all fail, and what each says.
struct Failures {
  std::atomic<int> speakers = 0;

  std::string end(Rendezvous &all, const Status &status) {
    speakers += all.speaksOfFailure();
    return status.ok() ? "" : status.message();
  }
};

TEST_F(RendezvousTest, AgreementEndsWhenAProcessEnds) {
  // Without children, with some, and the one that speaks for all.
  for (uint32_t victim : {75u, 3u, 0u}) {
    SCOPED_TRACE(victim);
    port = freePort();
    Failures failures;
    auto results = runAll(launches(90), seconds(60), [&](Rendezvous &all) {
      if (all.place().index == victim)
        return std::string("ends");
      return failures.end(all, all.agree(Status::success()));
    });
    std::string name = "the connection to process " + std::to_string(victim);
    for (uint32_t rank = 0; rank < 90; ++rank)
      if (rank != victim)
        EXPECT_TRUE(results[rank].starts_with(name)) << results[rank];
    EXPECT_EQ(failures.speakers, 1);
  }
}

TEST_F(RendezvousTest, AgreementNamesWhoDoesNotAnswer) {
  for (uint32_t victim : {75u, 3u}) {
    SCOPED_TRACE(victim);
    port = freePort();
    Failures failures;
    std::atomic<uint32_t> ended = 0;
    auto results =
        runAll(launches(90), milliseconds(1000), [&](Rendezvous &all) {
          if (all.place().index == victim) {
            while (ended < 89)
              std::this_thread::sleep_for(milliseconds(1));
            return std::string();
          }
          std::string text = failures.end(all, all.agree(Status::success()));
          ++ended;
          return text;
        });
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    std::string text = "waited longer than 1 seconds for the process of rank " +
                       std::to_string(victim) + " on " + host + ", of 90";
    for (uint32_t rank = 0; rank < 90; ++rank)
      if (rank != victim)
        EXPECT_EQ(results[rank], text) << rank;
    EXPECT_EQ(failures.speakers, 1);
  }
}

TEST_F(RendezvousTest, GivingUpReachesAll) {
  Failures failures;
  auto results = runAll(launches(30), seconds(60), [&](Rendezvous &all) {
    if (all.place().index == 12) {
      EXPECT_TRUE(all.speaksOfFailure());
      return std::string();
    }
    return failures.end(all, all.agree(Status::success()));
  });
  for (uint32_t rank = 0; rank < 30; ++rank)
    if (rank != 12)
      EXPECT_TRUE(results[rank].starts_with("rank 12 on ")) << results[rank];
  EXPECT_EQ(failures.speakers, 0);
}

//===----------------------------------------------------------------------===//
// Bytes for process 0
//===----------------------------------------------------------------------===//

/// What rank sends as block `number`.
std::vector<std::byte> blockOf(uint32_t rank, uint32_t number) {
  return std::vector<std::byte>(1000 * (rank + 1) + number,
                                std::byte(rank * 16 + number));
}

TEST_F(RendezvousTest, BytesComeInOrderBesideAgreements) {
  constexpr uint32_t ranks = 12, blocks = 3, rounds = 2;
  auto results = runAll(launches(ranks), seconds(20), [&](Rendezvous &all) {
    uint32_t index = all.place().index;
    std::atomic<bool> done = false;
    std::string wrong;
    std::thread bytes([&] {
      for (uint32_t i = 0; i < rounds * blocks && index != 0; ++i)
        if (Status sent = all.sendToFirst(index, blockOf(index, i)); !sent.ok())
          wrong = sent.message();
      for (uint32_t round = 0; round < rounds && index == 0; ++round)
        for (uint32_t rank = 1; rank < ranks; ++rank)
          for (uint32_t i = 0; i < blocks; ++i) {
            auto expected = blockOf(rank, round * blocks + i);
            std::vector<std::byte> block(expected.size());
            if (Status got = all.receiveFrom(rank, block); !got.ok())
              wrong = got.message();
            if (block != expected)
              wrong = "another block of rank " + std::to_string(rank);
          }
      done = true;
    });
    for (bool allDone = false; !allDone;) {
      auto told = all.exchange(done ? "done" : "");
      if (!told.ok())
        wrong = told.status().message();
      allDone = !told.ok() || std::count(told->begin(), told->end(), "done") ==
                                  ptrdiff_t(ranks);
    }
    bytes.join();
    return wrong;
  });
  EXPECT_EQ(results, std::vector<std::string>(ranks));
}

TEST_F(RendezvousTest, WaitingForBytesEndsWithTheRun) {
  auto results = runAll(launches(3), seconds(60), [&](Rendezvous &all) {
    uint32_t index = all.place().index;
    std::vector<std::byte> block(8);
    if (index == 2)
      return std::string("ends");
    Status waited = Status::success();
    std::thread bytes([&] {
      waited =
          index == 0 ? all.receiveFrom(1, block) : all.sendToFirst(1, block);
      if (index == 0) // the other never wants this one
        waited = all.receiveFrom(1, block);
    });
    Status agreed = all.agree(Status::success());
    all.disconnect();
    bytes.join();
    EXPECT_FALSE(agreed.ok());
    return index == 0 && waited.ok() ? std::string("has got it") : "";
  });
  EXPECT_EQ(results, (std::vector<std::string>{"", "", "ends"}));
}

//===----------------------------------------------------------------------===//
// Thousands
//===----------------------------------------------------------------------===//

/// In a process of its own, in which `descriptors` may be open: what every
/// `step`th rank from `begin` to `end` does. Ends with 0 where all is as it
/// should be.
pid_t startRanks(uint16_t port, uint32_t ranks, uint32_t begin, uint32_t end,
                 uint32_t step, uint32_t descriptors) {
  pid_t child = fork();
  if (child != 0)
    return child;
  rlimit limit = {descriptors, descriptors};
  bool good = setrlimit(RLIMIT_NOFILE, &limit) == 0;
  std::atomic<uint32_t> wrong = 0;
  std::vector<std::thread> threads;
  for (uint32_t rank = begin; rank < end && good; rank += step)
    threads.emplace_back([&, rank] {
      auto joined = TcpRendezvous::join(
          {"test", rank, ranks, rank, "127.0.0.1", port}, seconds(60));
      Status status = joined.status();
      if (status.ok())
        status = (*joined)->agreeOn("plan", "xxh3");
      if (status.ok())
        status = (*joined)->agree(rank == 4000 ? Status::failure("trouble")
                                               : Status::success());
      if (status.ok() || status.message() != "process 4000: trouble") {
        ++wrong;
        std::fprintf(stderr, "rank %u: %s\n", rank,
                     status.ok() ? "no trouble" : status.message().c_str());
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  _exit(good && wrong == 0 ? 0 : 1);
}

TEST_F(RendezvousTest, ThousandsMeetWithFewDescriptors) {
  constexpr uint32_t ranks = 4096, alone = 9, processes = 8;
  // On the average of all a port, a connection upwards, one downwards, and one
  // to process 0 or of it, with what the system opens to find addresses.
  constexpr uint32_t each = 5, others = 16; // of a process: its output, ...
  static_assert(TcpTree::mostDescriptors < 64);
  auto start = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  // Process 0 and those below it, which have most.
  for (uint32_t rank = 0; rank < alone; ++rank)
    children.push_back(startRanks(port, ranks, rank, rank + 1, 1,
                                  TcpTree::mostDescriptors + others));
  for (uint32_t i = 0; i < processes; ++i)
    children.push_back(startRanks(port, ranks, alone + i, ranks, processes,
                                  each * ranks / processes + others));
  for (pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  auto taken = std::chrono::steady_clock::now() - start;
  std::printf("%u met in %.1f s\n", ranks,
              std::chrono::duration<double>(taken).count());
  EXPECT_LT(taken, seconds(60));
}

} // namespace
