//===- CommunicatorTest.cpp - Conformance of communicators ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs against every backend that can put all ranks into one process. A backend
// that this machine cannot run reports its tests as skipped. Under mpirun it
// runs over MPI instead: each process has some of the ranks, and all run the
// same tests side by side.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Communicator.h"

#include "ArenaMemory.h"
#include "OrderedCommunicator.h"
#include "TestPlan.h"
#include "TestedBackends.h"
#include "plait/Plan/Container.h"
#include "plait/Support/BFloat16.h"

#include <array>
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

class CommunicatorTest
    : public ::testing::TestWithParam<std::tuple<TestedBackend, uint32_t>> {
protected:
  uint32_t ranks = std::get<1>(GetParam());
  std::vector<uint8_t> plan =
      plan::packPlan(test::makeArenaPlan(ranks, arenaBytes));
  Backend backend;

  std::vector<uint32_t> everybody() {
    std::vector<uint32_t> members(ranks);
    std::iota(members.begin(), members.end(), 0);
    return members;
  }
  /// The ranks of the parity of `rank`.
  std::vector<uint32_t> parityOf(uint32_t rank) {
    std::vector<uint32_t> members;
    for (uint32_t other = rank % 2; other < ranks; other += 2)
      members.push_back(other);
    return members;
  }

  /// Message i goes from rank i to the next one.
  Topology makeTopology() {
    Topology topology;
    topology.ranks = ranks;
    topology.groups = {everybody()};
    if (ranks > 1)
      topology.groups.insert(topology.groups.end(), {parityOf(0), parityOf(1)});
    for (uint32_t rank = 0; ranks > 1 && rank < ranks; ++rank)
      topology.messages.push_back({rank, (rank + 1) % ranks, 0});
    topology.programRanks = ranks;
    // Rows are staged on their way out and on their way in.
    topology.packedBytes.assign(topology.groups.size(), 2 * arenaBytes);
    return topology;
  }

  void SetUp() override { start(patience); }
  void TearDown() override { stop(); }

  /// Processes end side by side: NCCL's communicators wait for each other.
  void stop() {
    std::vector<std::thread> threads;
    for (RankBackend &part : backend.parts)
      threads.emplace_back([&part] {
        part.graph.reset();
        part.communicator.reset();
      });
    for (std::thread &thread : threads)
      thread.join();
    backend = {};
  }

  /// Whether this machine has too few GPUs, or none, or there are more
  /// processes than ranks.
  static bool isMissing(const std::string &reason) {
    return reason.starts_with("this plan is for CUDA; ") ||
           reason.starts_with("NCCL needs a GPU for each ") ||
           reason.ends_with("; each needs one or more");
  }

  /// Makes the backend afresh, or skips the test.
  void start(std::chrono::milliseconds limit) {
    stop();
    if ((ranks - 1) % std::get<0>(GetParam()).stride)
      GTEST_SKIP() << "takes long and shows nothing new";
    ExecutorOptions options;
    options.timeLimit = limit;
    options.devices = std::get<0>(GetParam()).devices;
    auto made = std::get<0>(GetParam())
                    .create(*fb::GetPlan(plan.data()), makeTopology(), options);
    if (!made.ok() && isMissing(made.status().message()))
      GTEST_SKIP() << made.status().message();
    ASSERT_TRUE(made.ok()) << made.status().message();
    backend = std::move(*made);
  }

  RankBackend &partOf(uint32_t rank) {
    return backend.parts[rank - backend.ranks.front()];
  }
  OrderedCommunicator communicator(uint32_t rank) {
    return {*partOf(rank).communicator, *partOf(rank).device};
  }

  /// Runs `job` for every rank of this process at once.
  void forEachRank(const std::function<void(uint32_t, Memory &)> &job) {
    std::vector<std::thread> threads;
    for (uint32_t rank : backend.ranks)
      threads.emplace_back([&, rank] {
        Device &device = *partOf(rank).device;
        Status status = device.attachThread();
        ASSERT_TRUE(status.ok()) << status.message();
        Memory memory(device);
        job(rank, memory);
      });
    for (std::thread &thread : threads)
      thread.join();
  }

  /// Runs `job` for every rank with a group of all ranks.
  void
  forEachMember(const std::function<Status(uint32_t, Group &, Memory &)> &job) {
    forEachRank([&](uint32_t rank, Memory &) {
      auto group = communicator(rank).join(everybody());
      ASSERT_TRUE(group.ok()) << group.status().message();
      for (int repeat = 0; repeat < 3; ++repeat) {
        Memory memory(*partOf(rank).device);
        Status status = job(rank, **group, memory);
        EXPECT_TRUE(status.ok()) << status.message();
      }
    });
  }

  void expectSum(float found, float expected) {
    // Nearly all are equal, and EXPECT_NEAR takes its time.
    if (found == expected)
      return;
    // Each of `ranks` additions rounds a sum of values below 8000.
    if (std::get<0>(GetParam()).inRankOrder)
      EXPECT_EQ(found, expected);
    else
      EXPECT_NEAR(found, expected, ranks * ranks * 8000 * 0x1p-24);
  }

  void expectHalf(float found, float expected) {
    if (found == expected)
      return;
    // Likewise, to 8 bits.
    if (std::get<0>(GetParam()).inRankOrder)
      EXPECT_EQ(found, expected);
    else
      EXPECT_NEAR(found, expected, ranks * ranks * 8000 * 0x1p-8);
  }
};

/// Element `i` of rank `rank`: sums in another order give other bits.
float valueOf(uint32_t rank, int64_t i) {
  return (float(i % 1013) + 0.1f) * (rank % 2 ? -1.0f / 3 : 7.7f) + float(rank);
}

std::vector<float> valuesOf(uint32_t rank, int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = valueOf(rank, i);
  return values;
}

float reduced(uint32_t ranks, int64_t i, fb::Reduction reduction) {
  float result = valueOf(0, i);
  for (uint32_t rank = 1; rank < ranks; ++rank)
    result = reduction == fb::Reduction::Sum
                 ? result + valueOf(rank, i)
                 : std::max(result, valueOf(rank, i));
  return result;
}

constexpr int64_t sizes[] = {1, 3, 17, 2048, 5001};
// Rows of blocks; of the last, more than are moved one by one.
constexpr int64_t outers[] = {1, 2, kMostGrouped + 1};
constexpr fb::Reduction reductions[] = {fb::Reduction::Sum, fb::Reduction::Max};

TEST_P(CommunicatorTest, AllReduce) {
  for (int64_t size : sizes)
    for (fb::Reduction reduction : reductions)
      forEachMember([&](uint32_t rank, Group &group, Memory &memory) {
        auto input = memory.put(valuesOf(rank, 2 * size));
        auto output = memory.room(2 * size);
        CollectiveShape shape = {fb::DType::F32, 2, size};
        PLAIT_RETURN_IF_ERROR(
            group.allReduce(input.data(), output.data(), shape, reduction));
        std::vector<float> found = memory.get(output);
        for (int64_t i = 0; i < 2 * size; ++i)
          expectSum(found[i], reduced(ranks, i, reduction));
        PLAIT_RETURN_IF_ERROR(
            group.allReduce(input.data(), input.data(), shape, reduction));
        EXPECT_EQ(memory.get(input), found);
        return Status::success();
      });
}

TEST_P(CommunicatorTest, ReduceScatter) {
  for (int64_t outer : outers)
    for (int64_t size : sizes)
      for (fb::Reduction reduction : reductions)
        forEachMember([&](uint32_t rank, Group &group, Memory &memory) {
          auto input = memory.put(valuesOf(rank, outer * ranks * size));
          auto output = memory.room(outer * size);
          Status status =
              group.reduceScatter(input.data(), output.data(),
                                  {fb::DType::F32, outer, size}, reduction);
          std::vector<float> found = memory.get(output);
          for (int64_t i = 0; i < outer * size; ++i)
            expectSum(found[i],
                      reduced(ranks,
                              (i / size * ranks + rank) * size + i % size,
                              reduction));
          return status;
        });
}

std::vector<BFloat16> halvesOf(uint32_t rank, int64_t count) {
  std::vector<float> values = valuesOf(rank, count);
  return {values.begin(), values.end()};
}

/// Halves are added as floats, and the sum is rounded once.
BFloat16 reducedHalf(uint32_t ranks, int64_t i, fb::Reduction reduction) {
  float result = BFloat16(valueOf(0, i));
  for (uint32_t rank = 1; rank < ranks; ++rank) {
    float next = BFloat16(valueOf(rank, i));
    result = reduction == fb::Reduction::Sum ? result + next
                                             : std::max(result, next);
  }
  return BFloat16(result);
}

TEST_P(CommunicatorTest, AllReduceOfHalves) {
  for (int64_t size : sizes)
    for (fb::Reduction reduction : reductions)
      forEachMember([&](uint32_t rank, Group &group, Memory &memory) {
        auto values = memory.put(halvesOf(rank, 2 * size));
        Status status = group.allReduce(values.data(), values.data(),
                                        {fb::DType::BF16, 2, size}, reduction);
        std::vector<BFloat16> found = memory.get<BFloat16>(values);
        for (int64_t i = 0; i < 2 * size; ++i)
          expectHalf(found[i], reducedHalf(ranks, i, reduction));
        return status;
      });
}

TEST_P(CommunicatorTest, ReduceScatterOfHalves) {
  for (int64_t size : sizes)
    for (fb::Reduction reduction : reductions)
      forEachMember([&](uint32_t rank, Group &group, Memory &memory) {
        auto input = memory.put(halvesOf(rank, 2 * ranks * size));
        auto output = memory.put(std::vector<BFloat16>(2 * size));
        Status status = group.reduceScatter(
            input.data(), output.data(), {fb::DType::BF16, 2, size}, reduction);
        std::vector<BFloat16> found = memory.get<BFloat16>(output);
        for (int64_t i = 0; i < 2 * size; ++i)
          expectHalf(found[i],
                     reducedHalf(ranks,
                                 (i / size * ranks + rank) * size + i % size,
                                 reduction));
        return status;
      });
}

TEST_P(CommunicatorTest, AllGather) {
  for (int64_t outer : outers)
    for (int64_t size : sizes)
      forEachMember([&](uint32_t rank, Group &group, Memory &memory) {
        auto input = memory.put(valuesOf(rank, outer * size));
        auto output = memory.room(outer * ranks * size);
        Status status = group.allGather(input.data(), output.data(),
                                        {fb::DType::F32, outer, size});
        std::vector<float> found = memory.get(output);
        for (int64_t o = 0; o < outer; ++o)
          for (uint32_t j = 0; j < ranks; ++j)
            for (int64_t i = 0; i < size; ++i)
              EXPECT_EQ(found[(o * ranks + j) * size + i],
                        valueOf(j, o * size + i));
        return status;
      });
}

TEST_P(CommunicatorTest, AllToAll) {
  for (int64_t size : sizes)
    forEachMember([&](uint32_t rank, Group &group, Memory &memory) {
      auto input = memory.put(valuesOf(rank, 2 * ranks * size));
      auto output = memory.room(2 * ranks * size);
      Status status = group.allToAll(input.data(), output.data(),
                                     {fb::DType::F32, 2, size});
      std::vector<float> found = memory.get(output);
      for (int64_t o = 0; o < 2; ++o)
        for (uint32_t j = 0; j < ranks; ++j)
          for (int64_t i = 0; i < size; ++i)
            EXPECT_EQ(found[(o * ranks + j) * size + i],
                      valueOf(j, (o * ranks + rank) * size + i));
      return status;
    });
}

/// The split moves from one dimension to another, and back: blocks lie along
/// the outer one on one side and along the inner one on the other.
TEST_P(CommunicatorTest, AllToAllBetweenDimensions) {
  constexpr int64_t outer = 2, middle = 3;
  for (int64_t size : sizes)
    for (bool splitsInner : {false, true})
      forEachMember([&](uint32_t rank, Group &group, Memory &memory) {
        auto input = memory.put(valuesOf(rank, outer * ranks * middle * size));
        auto output = memory.room(outer * ranks * middle * size);
        Status status =
            group.allToAll(input.data(), output.data(),
                           {fb::DType::F32, outer, size, middle, splitsInner});
        std::vector<float> found = memory.get(output);
        auto rowOf = [&](int64_t o, int64_t j, int64_t m, bool blocksInside) {
          return blocksInside ? (o * middle + m) * ranks + j
                              : (o * ranks + j) * middle + m;
        };
        for (int64_t o = 0; o < outer; ++o)
          for (uint32_t j = 0; j < ranks; ++j)
            for (int64_t m = 0; m < middle; ++m)
              for (int64_t i = 0; i < size; ++i)
                EXPECT_EQ(
                    found[rowOf(o, j, m, !splitsInner) * size + i],
                    valueOf(j, rowOf(o, rank, m, splitsInner) * size + i));
        return status;
      });
}

/// How tokens choose among experts: `experts` a rank.
struct Routing {
  const char *name;
  int32_t (*expertOf)(int64_t token, int64_t choice, int64_t all);
};
constexpr Routing routings[] = {
    {"spread",
     [](int64_t token, int64_t choice, int64_t all) {
       return int32_t((token * 7 + choice * 3) % all);
     }},
    // Others have no tokens.
    {"to one", [](int64_t, int64_t, int64_t all) { return int32_t(all - 1); }},
    {"to none", [](int64_t, int64_t, int64_t) { return int32_t(-1); }},
};

/// Rows that are larger than what a pair of processes stages at once, as many
/// small ones, and one token.
TEST_P(CommunicatorTest, RowsOfExperts) {
  constexpr int64_t experts = 3;
  for (const Routing &routing : routings)
    for (auto [rows, width, choices] : {std::array<int64_t, 3>{1, 1, 1},
                                        {5, 3, 2},
                                        {6, 20'000, 2},
                                        {1, 150'000, 1}})
      for (bool scatters : {false, true})
        forEachMember([&](uint32_t rank, Group &group, Memory &memory) {
          int64_t all = rows * ranks, own = scatters ? 1 : choices;
          std::vector<int32_t> ids;
          for (int64_t i = 0; i < all * own; ++i)
            ids.push_back(routing.expertOf(i / own, i % own, experts * ranks));
          auto place = memory.put(ids);
          auto input =
              memory.put(valuesOf(rank, (scatters ? all : rows) * width));
          auto output = memory.room((scatters ? rows : all) * width);
          RowChoice choice = {reinterpret_cast<const int32_t *>(place.data()),
                              width, own, experts, scatters};
          CollectiveShape shape = {fb::DType::F32, 1, rows * width};
          Status status =
              group.moveRows(input.data(), output.data(), shape, choice);
          std::vector<float> found = memory.get(output);
          for (size_t i = 0; i < found.size(); ++i) {
            int64_t row = int64_t(i) / width, place = int64_t(i) % width;
            float expected = 0;
            if (scatters) {
              int64_t token = rank * rows + row;
              if (ids[token] >= 0)
                expected = valueOf(ids[token] / experts, token * width + place);
            } else {
              bool isThere = false;
              for (int64_t c = 0; c < own; ++c)
                isThere |= ids[row * own + c] >= 0 &&
                           ids[row * own + c] / experts == int64_t(rank);
              if (isThere)
                expected = valueOf(row / rows, row % rows * width + place);
            }
            EXPECT_EQ(found[i], expected) << routing.name;
            if (found[i] != expected)
              break;
          }
          return status;
        });
}

TEST_P(CommunicatorTest, HalfWordsAreMovedWhole) {
  forEachMember([&](uint32_t rank, Group &group, Memory &memory) {
    auto input = memory.put(std::vector<uint16_t>(3, uint16_t(rank + 1)));
    auto output = memory.put(std::vector<uint16_t>(3 * ranks));
    Status status =
        group.allGather(input.data(), output.data(), {fb::DType::BF16, 1, 3});
    std::vector<uint16_t> found = memory.get<uint16_t>(output);
    for (uint32_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(found[i], i / 3 + 1);
    return status;
  });
}

TEST_P(CommunicatorTest, GroupsAreIndependent) {
  forEachRank([&](uint32_t rank, Memory &memory) {
    // Each parity reduces a different number of times.
    std::vector<uint32_t> members = parityOf(rank);
    auto group = communicator(rank).join(members);
    ASSERT_TRUE(group.ok());
    for (uint32_t i = 0; i < 10 + rank % 2 * 10; ++i) {
      auto one = memory.put(std::vector<float>{1});
      ASSERT_TRUE((*group)
                      ->allReduce(one.data(), one.data(),
                                  {fb::DType::F32, 1, 1}, fb::Reduction::Sum)
                      .ok());
      EXPECT_EQ(memory.get(one)[0], float(members.size()));
    }
  });
}

TEST_P(CommunicatorTest, RingOfMessages) {
  if (ranks == 1)
    GTEST_SKIP() << "nobody to talk to";
  forEachRank([&](uint32_t rank, Memory &memory) {
    uint32_t next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    // The ids are used again.
    for (int step = 0; step < 20; ++step) {
      auto out = memory.put(std::vector<float>(1001, float(rank * 100 + step)));
      auto in = memory.room(1001);
      OrderedCommunicator self = communicator(rank);
      ASSERT_TRUE(self.post(rank, next, out).ok());
      ASSERT_TRUE(self.receive(previous, previous, in).ok());
      EXPECT_EQ(memory.get(in),
                std::vector<float>(1001, float(previous * 100 + step)));
      ASSERT_TRUE(self.awaitReceipt(rank, next).ok());
    }
    Status status = communicator(rank).finish();
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

TEST_P(CommunicatorTest, ASentBufferMayBeUsedAgain) {
  if (ranks == 1)
    GTEST_SKIP() << "nobody to talk to";
  forEachRank([&](uint32_t rank, Memory &memory) {
    uint32_t next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    auto out = memory.room(100);
    std::vector<std::span<std::byte>> in;
    OrderedCommunicator self = communicator(rank);
    // Nothing is read before the end: what is late is overwritten.
    for (int step = 0; step < 5; ++step) {
      memory.set(out, std::vector<float>(100, float(rank * 100 + step)));
      in.push_back(memory.room(100));
      ASSERT_TRUE(self.post(rank, next, out).ok());
      ASSERT_TRUE(self.receive(previous, previous, in.back()).ok());
      ASSERT_TRUE(self.awaitReceipt(rank, next).ok());
    }
    memory.set(out, std::vector<float>(100, -1));
    Status status = self.finish();
    EXPECT_TRUE(status.ok()) << status.message();
    for (int step = 0; step < 5; ++step)
      EXPECT_EQ(memory.get(in[step]),
                std::vector<float>(100, float(previous * 100 + step)));
  });
}

TEST_P(CommunicatorTest, AbortReleasesEverybody) {
  if (ranks == 1)
    GTEST_SKIP() << "nobody to wait for";
  std::atomic<uint32_t> failures = 0;
  forEachRank([&](uint32_t rank, Memory &memory) {
    auto value = memory.put(std::vector<float>{1});
    auto group = communicator(rank).join(everybody());
    auto meet = [&] {
      return (*group)->allReduce(value.data(), value.data(),
                                 {fb::DType::F32, 1, 1}, fb::Reduction::Sum);
    };
    // A process that is still being made when another fails is not made.
    Status status = meet();
    if (rank == 0)
      communicator(rank).abort();
    else if (rank == 1 && status.ok())
      status = communicator(rank).receive(0, 0, value);
    else if (status.ok())
      status = meet();
    if (status.ok() && rank != 0)
      status = communicator(rank).finish();
    if (!status.ok())
      communicator(rank).abort(); // as every failure is followed by
    failures += !status.ok();
  });
  EXPECT_EQ(failures, backend.ranks.size() - (backend.ranks.front() == 0));
}

TEST_P(CommunicatorTest, WaitingEnds) {
  if (ranks == 1)
    GTEST_SKIP() << "nobody to wait for";
  start(std::chrono::milliseconds(300));
  forEachRank([&](uint32_t rank, Memory &memory) {
    if (rank != 1)
      return;
    Status status =
        communicator(rank).receive(0, 0, memory.put(std::vector<float>{1}));
    if (status.ok())
      status = communicator(rank).finish();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.message(),
              "waited longer than 0.3 seconds for another rank");
    communicator(rank).abort(); // as every failure is followed by
  });
}

/// A member does not come to a collective in front of rows, whose number others
/// then wait for, on whichever side.
TEST_P(CommunicatorTest, WaitingForRowsEnds) {
  if (ranks != 3)
    GTEST_SKIP() << "takes long and shows nothing new";
  start(std::chrono::seconds(2));
  forEachRank([&](uint32_t rank, Memory &memory) {
    auto group = communicator(rank).join(everybody());
    ASSERT_TRUE(group.ok()) << group.status().message();
    auto ids = memory.put(std::vector<int32_t>(ranks, 2));
    auto input = memory.put(valuesOf(rank, 4)), output = memory.room(4 * ranks);
    auto move = [&] {
      return (*group)->moveRows(
          input.data(), output.data(), {fb::DType::F32, 1, 4},
          {reinterpret_cast<const int32_t *>(ids.data()), 4, 1, 1, false});
    };
    // Everybody is connected.
    Status status = move();
    ASSERT_TRUE(status.ok()) << status.message();
    if (rank == 0)
      return;
    status = (*group)->allReduce(input.data(), input.data(),
                                 {fb::DType::F32, 1, 4}, fb::Reduction::Sum);
    if (status.ok())
      status = move();
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(followsAnother(status) ||
                status.message() ==
                    "waited longer than 2 seconds for another rank")
        << status.message();
    communicator(rank).abort(); // as every failure is followed by
  });
}

INSTANTIATE_TEST_SUITE_P(
    Backends, CommunicatorTest,
    ::testing::Combine(::testing::ValuesIn(testedBackends()),
                       ::testing::Range(1u, 9u)),
    [](const auto &info) {
      return std::get<0>(info.param).name +
             std::to_string(std::get<1>(info.param));
    });

} // namespace
