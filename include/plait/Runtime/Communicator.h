//===- Communicator.h - Communicator of a rank ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One rank's view of the others. Every backend passes the same conformance
// suite (test/Unit/Runtime/CommunicatorTest.cpp).
//
// Rules for all calls below. Addresses are in the memory of the rank's device,
// and calls take their place in a stream of the device (see Device.h): they
// happen after what was enqueued there before them, and what is enqueued there
// later sees their results and may overwrite what they have read. Who uses
// several streams makes them wait for each other. On a CPU a stream is a
// thread, and calls block it, without spinning, until they are done. On a GPU
// they return as soon as the work is enqueued; they may block the thread until
// other ranks have enqueued their part.
//
// All members of a group enter the same collectives in the same order.
// Reductions add in the order of the members, starting with the first, bf16 in
// f32 with one rounding at the end, so that results depend on the inputs alone
// and are the same bits on every member; only NCCL's own algorithms, between
// GPUs, have an order of theirs (fixed for one machine and one number of ranks)
// and may round bf16 after every addition.
//
// A call fails when it has waited longer than the time limit of the backend,
// or when abort() was called on any rank, then with Code::Released;
// after that every call on every rank fails.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_COMMUNICATOR_H
#define PLAIT_RUNTIME_COMMUNICATOR_H

#include "plait/Plan/Communicators.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Collectives.h"
#include "plait/Support/Status.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace plait::runtime {

namespace fb = plan::fb;
using plan::kMostGrouped;

/// Returns the failure of a rank that is released by one elsewhere, with `more`
/// at the end of its message.
inline Status failReleased(const std::string &more = "") {
  return fail(Code::Released, "another rank has failed", more);
}

/// Returns the failure of a rank that has waited too long for `whom`.
inline Status failTimedOut(std::chrono::milliseconds limit,
                           const std::string &whom = "another rank") {
  return fail(Code::TimedOut, "waited longer than ", limit.count() / 1000.0,
              " seconds for ", whom);
}

/// Whether `failure` only follows that of another rank, or of another thread of
/// this one: it has been released.
inline bool followsAnother(const Status &failure) {
  return failure.code() == Code::Released;
}

/// The shape of a collective: [outer, members, chunk] elements of `type`, of an
/// exchange [outer, members, middle, chunk]. See CollectiveStep in Plan.fbs for
/// which side has which of the dimensions, and in which order.
struct CollectiveShape {
  fb::DType type;
  int64_t outer;
  int64_t chunk;
  int64_t middle = 1;
  bool splitsInner = false;

  /// One side of an exchange: row m of block j of outer index o begins at
  /// element chunk · (o · outerRows + j · blockRows + m · middleRows).
  struct Rows {
    int64_t outer, block, middle;
  };
  Rows inputRows(int64_t members) const { return rows(members, !splitsInner); }
  Rows outputRows(int64_t members) const { return rows(members, splitsInner); }

private:
  Rows rows(int64_t members, bool blocksOutside) const {
    return blocksOutside ? Rows{members * middle, middle, 1}
                         : Rows{members * middle, 1, members};
  }
};

/// Which rows of a gather or scatter move, see RowSelection in Plan.fbs.
struct RowChoice {
  const int32_t *ids; // in the rank's memory
  int64_t width, choices, experts;
  bool scatters; // else it gathers

  /// Whether `member` has some expert of row `row` of all blocks.
  bool has(int64_t row, int64_t member) const {
    for (int64_t choice = 0; choice < choices; ++choice) {
      int64_t expert = ids[row * choices + choice] - member * experts;
      if (expert >= 0 && expert < experts)
        return true;
    }
    return false;
  }
};

/// Everything that the ranks of a run will say to each other, known before it
/// begins.
struct Topology {
  /// Messages of one channel, source and target are received in the order in
  /// which they are sent.
  struct Route {
    uint32_t source;
    uint32_t target;
    uint32_t channel;
  };

  uint32_t ranks = 1;
  /// So many ranks in a row, from 0 on, run the same program: what they tell
  /// each other is at the same places of their arenas. 0: nothing is known.
  uint32_t programRanks = 0;
  /// Every group that is joined, each once; members increase.
  std::vector<std::vector<uint32_t>> groups;
  /// The stream of each group's collectives on a CPU; empty: 0 for all.
  std::vector<uint32_t> streams;
  std::vector<Route> messages; // by message id
  /// The bytes, for each group, of the largest tensor of a collective whose
  /// blocks are not contiguous (outer or middle above 1), all blocks together,
  /// and of an exchange both. Some backends pack such tensors.
  std::vector<uint64_t> packedBytes;

  /// The entry of `streams` of the group of `members`.
  uint32_t streamOf(std::span<const uint32_t> members) const;
};

/// A fixed list of ranks that perform collectives together. Used by one thread
/// of its rank at a time.
class Group {
public:
  virtual ~Group() = default;

  /// Returns the stream where its collectives happen.
  virtual uint32_t streamNumber() const { return 0; }

  /// `output` may equal `input`. Reduced are f32 and bf16.
  virtual Status allReduce(const std::byte *input, std::byte *output,
                           const CollectiveShape &shape,
                           fb::Reduction reduction) = 0;
  virtual Status reduceScatter(const std::byte *input, std::byte *output,
                               const CollectiveShape &shape,
                               fb::Reduction reduction) = 0;
  virtual Status allGather(const std::byte *input, std::byte *output,
                           const CollectiveShape &shape) = 0;
  virtual Status allToAll(const std::byte *input, std::byte *output,
                          const CollectiveShape &shape) = 0;

  /// Gathers from hold() on may begin with release(), all together: they are
  /// those of plan::batchGathers(). False: this group does not hold any.
  virtual bool hold() { return false; }
  virtual Status release() { return Status::success(); }

  /// A gather that leaves zeros for rows of which this member has no expert,
  /// and a scatter that takes each row from the member that has its expert.
  /// All members have the same ids.
  virtual Status moveRows(const std::byte *input, std::byte *output,
                          const CollectiveShape &shape,
                          const RowChoice &choice) = 0;

  /// The one of `kind`; those that only move data have no `reduction`.
  Status run(CollectiveKind kind, const std::byte *input, std::byte *output,
             const CollectiveShape &shape, fb::Reduction reduction) {
    switch (kind) {
    case CollectiveKind::AllReduce:
      return allReduce(input, output, shape, reduction);
    case CollectiveKind::AllGather:
      return allGather(input, output, shape);
    case CollectiveKind::ReduceScatter:
      return reduceScatter(input, output, shape, reduction);
    case CollectiveKind::AllToAll:
      return allToAll(input, output, shape);
    }
    __builtin_unreachable();
  }
};

/// The end point of one rank. Used by the thread of its rank only, except for
/// abort(), and for the collectives of groups.
class Communicator {
public:
  virtual ~Communicator() = default;

  /// The group of `ranks`, one of Topology::groups that contains this rank.
  /// Called at load time; every member calls it, the order among groups does
  /// not matter.
  virtual Result<std::unique_ptr<Group>>
  join(std::span<const uint32_t> ranks) = 0;

  /// Returns the stream where this rank sends or receives message `id`.
  virtual uint32_t streamOf(uint32_t id) const { return 0; }
  /// Whether post() lasts, in its stream, until the bytes have been taken. If
  /// not, awaitReceipt() makes its stream wait for that.
  virtual bool sendsInStream() const { return false; }

  /// Offers `bytes` to rank `target` as message `id` and returns at once. The
  /// bytes must stay until awaitReceipt(id). Each id is used at most once at a
  /// time.
  virtual Status post(uint32_t id, uint32_t target,
                      std::span<const std::byte> bytes) = 0;
  /// Waits for message `id` of rank `source` and copies it to `bytes`.
  virtual Status receive(uint32_t id, uint32_t source,
                         std::span<std::byte> bytes) = 0;
  /// Waits until rank `target` has received message `id`.
  virtual Status awaitReceipt(uint32_t id, uint32_t target) = 0;

  /// Blocks until the oldest step that the rank's device has ended and not
  /// collected is done, or where there is none, all that it was given.
  virtual Status finish() = 0;

  /// Makes every waiting and every later call on all ranks fail. May be called
  /// from any thread.
  virtual void abort() = 0;
};

/// The end points of all ranks as threads of one process, on the CPU. They
/// share state that lives as long as any of them.
std::vector<std::unique_ptr<Communicator>>
createThreadCommunicators(const Topology &topology,
                          std::chrono::milliseconds timeLimit);

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_COMMUNICATOR_H
