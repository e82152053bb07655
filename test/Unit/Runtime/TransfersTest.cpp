//===- TransfersTest.cpp - Messages without MPI ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FreePort.h"

#include "MPI/Engine.h"
#include "Rendezvous/TcpRendezvous.h"

#include <algorithm>
#include <array>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>

using namespace plait;
using namespace plait::runtime;

namespace {

using Kind = MpiTransfer::Kind;
constexpr std::chrono::seconds patience(30);

MpiTransfer transfer(Kind kind, uint32_t tag, Region region) {
  // Of two processes each has one peer, which is set below.
  return {kind, MpiChannel::Messages, 0, tag, region, nullptr};
}

Region rowOf(std::vector<std::byte> &bytes) {
  return {bytes.data(), int64_t(bytes.size())};
}

/// What `job` returns in each of two processes, which are threads here. It gets
/// the index of its process and a function that does transfers.
using Transfers = std::function<Status(std::vector<MpiTransfer>)>;
std::vector<Status>
inTwo(const std::function<Status(uint32_t, const Transfers &)> &job) {
  uint16_t port = freePort();
  std::vector<Status> results(2, Status::success());
  std::vector<std::thread> processes;
  for (uint32_t index : {0u, 1u})
    processes.emplace_back([&, index] {
      uint32_t peers[] = {1 - index};
      auto joined = TcpRendezvous::join(
          {"test", index, 2, index, "127.0.0.1", port}, patience);
      results[index] =
          joined.ok() ? (*joined)->openEngine(peers) : joined.status();
      if (!results[index].ok())
        return;
      results[index] = job(index, [&](std::vector<MpiTransfer> transfers) {
        for (MpiTransfer &one : transfers)
          one.peer = 1 - index;
        return (*joined)->engine()->run(std::move(transfers), patience);
      });
    });
  for (std::thread &process : processes)
    process.join();
  return results;
}

/// Bytes that differ from their neighbours.
std::vector<std::byte> numbered(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i)
    bytes[i] = std::byte(i * 7 + i / 251);
  return bytes;
}

/// The bytes of `region` in their order.
std::vector<std::byte> read(const Region &region) {
  std::vector<std::byte> bytes;
  for (int64_t plane = 0; plane < region.planes; ++plane)
    for (int64_t row = 0; row < region.rows; ++row) {
      const std::byte *begin =
          region.begin + plane * region.planeStride + row * region.rowStride;
      bytes.insert(bytes.end(), begin, begin + region.bytes);
    }
  return bytes;
}

TEST(TransfersTest, FormsOfBothEndsDiffer) {
  // Bytes of a row, rows, planes of who sends; likewise of who receives.
  using Form = std::array<int64_t, 3>;
  for (auto [sent, taken] : {std::pair<Form, Form>{{1, 1, 1}, {1, 1, 1}},
                             {{12, 5, 3}, {180, 1, 1}},
                             {{7, 3000, 50}, {50, 21000, 1}},
                             {{3, 100001, 2}, {2, 3, 100001}},
                             {{1 << 20, 3, 3}, {3, 3 << 10, 1 << 10}}}) {
    auto place = [](const Form &form, std::vector<std::byte> &memory) {
      auto [bytes, rows, planes] = form;
      int64_t stride = bytes + 5, planeStride = rows * stride + 9;
      memory = numbered(size_t(planes * planeStride));
      return Region{memory.data(), bytes, rows, stride, planes, planeStride};
    };
    std::vector<std::byte> from, to;
    Region source = place(sent, from), target = place(taken, to);
    std::fill(to.begin(), to.end(), std::byte(0));
    auto results = inTwo([&](uint32_t index, const Transfers &run) {
      return run({index == 0 ? transfer(Kind::Send, 1, source)
                             : transfer(Kind::Receive, 1, target)});
    });
    for (const Status &result : results)
      EXPECT_TRUE(result.ok()) << result.message();
    EXPECT_EQ(read(source), read(target));
    auto count = [](const std::vector<std::byte> &all) {
      return std::accumulate(
          all.begin(), all.end(), uint64_t(0),
          [](uint64_t sum, std::byte one) { return sum + uint64_t(one); });
    };
    EXPECT_EQ(count(to), count(read(target))) << "bytes beside the region";
  }
}

/// Messages of a tag come in order; those of others, and early ones, wait.
TEST(TransfersTest, TagsAreTakenInAnyOrder) {
  constexpr uint32_t tags = 20, each = 5;
  auto sizeOf = [](uint32_t tag, uint32_t number) {
    return size_t(1) << (tag % 18) << (number % 3);
  };
  auto results = inTwo([&](uint32_t index, const Transfers &run) {
    std::vector<std::vector<std::byte>> messages;
    std::vector<MpiTransfer> transfers;
    messages.reserve(tags * each);
    for (uint32_t i = 0; i < tags; ++i)
      for (uint32_t number = 0; number < each; ++number) {
        uint32_t which = index == 0 ? i : tags - 1 - i;
        messages.emplace_back(
            sizeOf(which, number),
            std::byte(index == 0 ? which * each + number : 255));
        transfers.push_back(transfer(index == 0 ? Kind::Send : Kind::Receive,
                                     UINT32_MAX - which,
                                     rowOf(messages.back())));
      }
    if (index == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    PLAIT_RETURN_IF_ERROR(run(transfers));
    for (uint32_t i = 0; i < tags; ++i)
      for (uint32_t number = 0; number < each; ++number) {
        uint32_t which = index == 0 ? i : tags - 1 - i;
        if (messages[i * each + number] !=
            std::vector<std::byte>(sizeOf(which, number),
                                   std::byte(which * each + number)))
          return fail("another message ", number, " of ", which);
      }
    return Status::success();
  });
  for (const Status &result : results)
    EXPECT_TRUE(result.ok()) << result.message();
}

TEST(TransfersTest, SizesHaveToAgree) {
  for (auto [sent, taken] : {std::pair(8, 4), {4, 8}, {1 << 20, 1 << 19}}) {
    auto results = inTwo([&](uint32_t index, const Transfers &run) {
      std::vector<std::byte> memory(index == 0 ? sent : taken);
      Status done = run({transfer(index == 0 ? Kind::Send : Kind::Receive, 3,
                                  rowOf(memory))});
      return index == 0 ? Status::success() : done;
    });
    ASSERT_FALSE(results[1].ok());
    const std::string &said = results[1].message();
    EXPECT_TRUE(said.starts_with("process 0 on ") &&
                said.ends_with(" bytes where " + std::to_string(taken) +
                               " are awaited"))
        << said;
  }
}

} // namespace
