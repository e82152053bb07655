//===- CommunicatorTest.cpp - Conformance of communicators ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs against every backend that can put all ranks into one process.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Communicator.h"

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>

using namespace plait;
using namespace plait::runtime;

namespace {

using Factory = std::vector<std::unique_ptr<Communicator>> (*)(
    uint32_t ranks, uint32_t messages, std::chrono::milliseconds timeLimit);
using Communicators = std::vector<std::unique_ptr<Communicator>>;

struct Backend {
  const char *name;
  Factory create;
};

constexpr std::chrono::milliseconds patience = std::chrono::seconds(60);

class CommunicatorTest
    : public ::testing::TestWithParam<std::tuple<Backend, uint32_t>> {
protected:
  uint32_t ranks = std::get<1>(GetParam());

  Communicators create(uint32_t messages = 0,
                       std::chrono::milliseconds limit = patience) {
    return std::get<0>(GetParam()).create(ranks, messages, limit);
  }

  /// Runs `job` for every rank at once.
  void forEachRank(const std::function<void(uint32_t)> &job) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back(job, rank);
    for (std::thread &thread : threads)
      thread.join();
  }

  /// Runs `job` for every rank with a group of all ranks.
  void forEachMember(const std::function<Status(uint32_t, Group &)> &job) {
    Communicators all = create();
    std::vector<uint32_t> members(ranks);
    std::iota(members.begin(), members.end(), 0);
    forEachRank([&](uint32_t rank) {
      auto group = all[rank]->join(members);
      ASSERT_TRUE(group.ok()) << group.status().message();
      for (int repeat = 0; repeat < 3; ++repeat) {
        Status status = job(rank, **group);
        EXPECT_TRUE(status.ok()) << status.message();
      }
    });
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

std::byte *bytes(std::vector<float> &values) {
  return reinterpret_cast<std::byte *>(values.data());
}

constexpr int64_t sizes[] = {1, 3, 17, 2048, 5001};
constexpr fb::Reduction reductions[] = {fb::Reduction::Sum, fb::Reduction::Max};

TEST_P(CommunicatorTest, AllReduce) {
  for (int64_t size : sizes)
    for (fb::Reduction reduction : reductions)
      forEachMember([&](uint32_t rank, Group &group) {
        std::vector<float> input = valuesOf(rank, 2 * size);
        std::vector<float> output(2 * size);
        CollectiveShape shape = {fb::DType::F32, 2, size};
        Status status =
            group.allReduce(bytes(input), bytes(output), shape, reduction);
        for (int64_t i = 0; i < 2 * size; ++i)
          EXPECT_EQ(output[i], reduced(ranks, i, reduction));
        PLAIT_RETURN_IF_ERROR(
            group.allReduce(bytes(input), bytes(input), shape, reduction));
        EXPECT_EQ(input, output);
        return status;
      });
}

TEST_P(CommunicatorTest, ReduceScatter) {
  for (int64_t size : sizes)
    for (fb::Reduction reduction : reductions)
      forEachMember([&](uint32_t rank, Group &group) {
        std::vector<float> input = valuesOf(rank, 2 * ranks * size);
        std::vector<float> output(2 * size);
        Status status = group.reduceScatter(
            bytes(input), bytes(output), {fb::DType::F32, 2, size}, reduction);
        for (int64_t i = 0; i < 2 * size; ++i)
          EXPECT_EQ(output[i],
                    reduced(ranks, (i / size * ranks + rank) * size + i % size,
                            reduction));
        return status;
      });
}

TEST_P(CommunicatorTest, AllGather) {
  for (int64_t size : sizes)
    forEachMember([&](uint32_t rank, Group &group) {
      std::vector<float> input = valuesOf(rank, 2 * size);
      std::vector<float> output(2 * ranks * size);
      Status status = group.allGather(bytes(input), bytes(output),
                                      {fb::DType::F32, 2, size});
      for (int64_t o = 0; o < 2; ++o)
        for (uint32_t j = 0; j < ranks; ++j)
          for (int64_t i = 0; i < size; ++i)
            EXPECT_EQ(output[(o * ranks + j) * size + i],
                      valueOf(j, o * size + i));
      return status;
    });
}

TEST_P(CommunicatorTest, AllToAll) {
  for (int64_t size : sizes)
    forEachMember([&](uint32_t rank, Group &group) {
      std::vector<float> input = valuesOf(rank, 2 * ranks * size);
      std::vector<float> output(2 * ranks * size);
      Status status = group.allToAll(bytes(input), bytes(output),
                                     {fb::DType::F32, 2, size});
      for (int64_t o = 0; o < 2; ++o)
        for (uint32_t j = 0; j < ranks; ++j)
          for (int64_t i = 0; i < size; ++i)
            EXPECT_EQ(output[(o * ranks + j) * size + i],
                      valueOf(j, (o * ranks + rank) * size + i));
      return status;
    });
}

TEST_P(CommunicatorTest, HalfWordsAreMovedWhole) {
  forEachMember([&](uint32_t rank, Group &group) {
    std::vector<uint16_t> input(3, uint16_t(rank + 1)), output(3 * ranks);
    Status status = group.allGather(
        reinterpret_cast<std::byte *>(input.data()),
        reinterpret_cast<std::byte *>(output.data()), {fb::DType::BF16, 1, 3});
    for (uint32_t i = 0; i < output.size(); ++i)
      EXPECT_EQ(output[i], i / 3 + 1);
    return status;
  });
}

TEST_P(CommunicatorTest, GroupsAreIndependent) {
  Communicators all = create();
  forEachRank([&](uint32_t rank) {
    // Ranks of equal parity; each parity reduces a different number of times.
    std::vector<uint32_t> members;
    for (uint32_t other = rank % 2; other < ranks; other += 2)
      members.push_back(other);
    auto group = all[rank]->join(members);
    ASSERT_TRUE(group.ok());
    for (uint32_t i = 0; i < 10 + rank % 2 * 10; ++i) {
      std::vector<float> one = {1};
      ASSERT_TRUE((*group)
                      ->allReduce(bytes(one), bytes(one),
                                  {fb::DType::F32, 1, 1}, fb::Reduction::Sum)
                      .ok());
      EXPECT_EQ(one[0], float(members.size()));
    }
  });
}

TEST_P(CommunicatorTest, RingOfMessages) {
  if (ranks == 1)
    GTEST_SKIP() << "nobody to talk to";
  Communicators all = create(ranks);
  forEachRank([&](uint32_t rank) {
    uint32_t next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    // Message i goes from rank i to the next one; the ids are used again.
    for (int step = 0; step < 20; ++step) {
      std::vector<float> out(1001, float(rank * 100 + step)), in(1001);
      ASSERT_TRUE(
          all[rank]->post(rank, next, std::as_bytes(std::span(out))).ok());
      ASSERT_TRUE(all[rank]
                      ->receive(previous, previous,
                                std::as_writable_bytes(std::span(in)))
                      .ok());
      EXPECT_EQ(in, std::vector<float>(1001, float(previous * 100 + step)));
      ASSERT_TRUE(all[rank]->awaitReceipt(rank, next).ok());
    }
  });
}

TEST_P(CommunicatorTest, AbortReleasesEverybody) {
  if (ranks == 1)
    GTEST_SKIP() << "nobody to wait for";
  Communicators all = create(1);
  std::atomic<uint32_t> failures = 0;
  forEachRank([&](uint32_t rank) {
    std::vector<uint32_t> members(ranks);
    std::iota(members.begin(), members.end(), 0);
    auto group = all[rank]->join(members);
    std::vector<float> value = {1};
    Status status = Status::success();
    if (rank == 0)
      all[rank]->abort();
    else if (rank == 1)
      status =
          all[rank]->receive(0, 0, std::as_writable_bytes(std::span(value)));
    else
      status = (*group)->allReduce(bytes(value), bytes(value),
                                   {fb::DType::F32, 1, 1}, fb::Reduction::Sum);
    failures += !status.ok();
  });
  EXPECT_EQ(failures, ranks - 1);
}

TEST_P(CommunicatorTest, WaitingEnds) {
  if (ranks == 1)
    GTEST_SKIP() << "nobody to wait for";
  Communicators all = create(1, std::chrono::milliseconds(100));
  std::vector<float> value = {1};
  Status status =
      all[1]->receive(0, 0, std::as_writable_bytes(std::span(value)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(),
            "waited longer than 0.1 seconds for another rank");
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorTest,
                         ::testing::Combine(::testing::Values(Backend{
                                                "Threads",
                                                &createThreadCommunicators}),
                                            ::testing::Range(1u, 9u)),
                         [](const auto &info) {
                           return std::get<0>(info.param).name +
                                  std::to_string(std::get<1>(info.param));
                         });

} // namespace
