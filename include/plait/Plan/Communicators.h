//===- Communicators.h - What a plan makes to exchange ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which groups and routes the ranks of a plan need, and how many of them one
// rank is in. Nothing here needs a GPU or its libraries.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_COMMUNICATORS_H
#define PLAIT_PLAN_COMMUNICATORS_H

#include "plait/Plan/Messages.h"
#include "plait/Plan/Ranks.h"
#include "plait/Support/CommunicatorMemory.h"

#include <cstdint>
#include <span>
#include <vector>

namespace plait::plan {

/// A gather or scatter of up to so many outer blocks is as many of one block,
/// which a library launches together; more are packed.
inline constexpr int64_t kMostGrouped = 16;

/// A rank gives no more bytes than that to gathers which are launched together:
/// above, latency is little of the time of one.
inline constexpr uint64_t kMostBatched = 1 << 20;

/// Returns, for each step of a function of `rank`, the last one that a library
/// may launch together with it: gathers of one group of ranks with the same
/// program, one behind the other. The step itself where it begins none.
std::vector<uint32_t> batchGathers(const RankGrid &mesh, uint32_t rank,
                                   const fb::Function &function);

/// Whether ranks exchange rows of experts in some step.
bool exchangesRows(const fb::Plan &plan);

/// The rows that a backend stages for each that even routing sends: what a pair
/// has beyond that it sends in further rounds.
inline constexpr double kStagedRows = 1.25;

/// How a backend stages rows of experts whose library wants to know how many
/// are sent.
struct RowStaging {
  int64_t rows;    // of each pair of members at a time
  uint64_t packed; // bytes of what is sent at a time, and of what is received
  uint64_t lists;  // bytes: the numbers of the rows of all pairs, both ways
  uint64_t counts; // bytes: how many each of the lists has

  uint64_t bytes() const { return 2 * packed + lists + counts; }
};

/// Stages what members send each other of blocks of `rows` rows.
RowStaging stageRows(int64_t rows, uint64_t rowBytes, int64_t members,
                     int64_t choices);

/// Returns the bytes that a backend packs for `step`, which has `members`
/// members: of one tensor of blocks, in an exchange of two; of rows of experts
/// what it stages. 0: blocks are contiguous.
uint64_t packedBytesOf(const fb::CollectiveStep &step, size_t members);

/// Returns the channel of each message. Messages of one channel, source and
/// target are received in the order in which they are sent. Even channels are
/// of forward messages, odd ones of backward messages.
std::vector<uint32_t> channelsOf(const fb::Plan &plan,
                                 std::span<const Message> messages);

/// Counts what NCCL makes for a rank of the program that has most of it, by
/// CommunicatorMemory::estimate(). Needs a plan without sites, with messages
/// that match.
CommunicatorMemory countCommunicators(const fb::Plan &plan,
                                      std::span<const Message> messages);

} // namespace plait::plan

#endif // PLAIT_PLAN_COMMUNICATORS_H
