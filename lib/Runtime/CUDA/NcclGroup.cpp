//===- NcclGroup.cpp - Collectives by NCCL --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives of the plan in terms of NCCL's. NCCL's work on contiguous
// buffers; the plan's go along any dimension of a tensor (see CollectiveShape),
// so that rows are packed before or unpacked after where chunks are not
// contiguous. The memory for that is given by the caller and belongs to this
// group alone: its collectives follow each other in one stream.
//
// A group of one rank has no communicator and copies.
//
// Who sends rows of experts is found where the ids are, and NCCL asks the host
// how many there are: it reads the counts in the middle of a step, which
// therefore is not recorded (CudaBackend.cpp).
//
//===----------------------------------------------------------------------===//

#include "NcclGroup.h"

#include "ExpertRows.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Communicators.h"

#include <algorithm>
#include <utility>
#include <vector>

using namespace plait;
using namespace plait::runtime;

namespace {

/// NCCL adds in the type of the tensor.
ncclDataType_t dataType(fb::DType type) {
  switch (type) {
  case fb::DType::F32:
    return ncclFloat32;
  case fb::DType::BF16:
    return ncclBfloat16;
  case fb::DType::I32:
    return ncclInt32;
  }
  __builtin_unreachable();
}

ncclRedOp_t operation(fb::Reduction reduction) {
  return reduction == fb::Reduction::Sum ? ncclSum : ncclMax;
}

class NcclGroup : public Group {
public:
  /// `comm` is null for a group of one rank.
  NcclGroup(std::shared_ptr<NcclRank> owner, ncclComm_t comm, int64_t members,
            int64_t index, CudaDevice &device, uint32_t number,
            std::shared_ptr<DeviceMemory> scratch)
      : owner(std::move(owner)), nccl(this->owner->library()), comm(comm),
        members(members), index(index), device(device), number(number),
        stream(device.stream(number)), scratch(std::move(scratch)) {}
  ~NcclGroup() override {
    if (counts && stream.context->use().ok())
      stream.driver.cuMemFreeHost(counts);
  }

  uint32_t streamNumber() const override { return number; }

  /// The one collective whose layout does not matter: it is elementwise.
  Status allReduce(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape,
                   fb::Reduction reduction) override {
    size_t count = shape.outer * shape.chunk;
    if (!comm)
      return copy(input, output, shape);
    return call("ncclAllReduce", [&] {
      return nccl.ncclAllReduce(input, output, count, dataType(shape.type),
                                operation(reduction), comm, stream.handle());
    });
  }

  Status reduceScatter(const std::byte *input, std::byte *output,
                       const CollectiveShape &shape,
                       fb::Reduction reduction) override {
    if (!comm)
      return copy(input, output, shape);
    uint64_t bytes = shape.chunk * plan::elementBytes(shape.type);
    // NCCL scatters blocks that lie one behind the other: many rows of several
    // blocks are packed first.
    if (shape.outer <= kMostGrouped)
      return callForEach("ncclReduceScatter", shape.outer, [&](int64_t row) {
        return nccl.ncclReduceScatter(
            input + row * members * bytes, output + row * bytes, shape.chunk,
            dataType(shape.type), operation(reduction), comm, stream.handle());
      });
    for (int64_t j = 0; j < members; ++j)
      PLAIT_RETURN_IF_ERROR(stream.copyRows(
          scratch->data() + j * shape.outer * bytes, bytes, input + j * bytes,
          members * bytes, bytes, shape.outer));
    return call("ncclReduceScatter", [&] {
      return nccl.ncclReduceScatter(
          scratch->data(), output, shape.outer * shape.chunk,
          dataType(shape.type), operation(reduction), comm, stream.handle());
    });
  }

  /// Member j's chunk goes behind that of member j - 1. If there are many
  /// `outer` rows, NCCL gathers into the scratch memory, and each member's rows
  /// are then copied to where they belong.
  Status allGather(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape) override {
    if (!comm)
      return copy(input, output, shape);
    uint64_t bytes = shape.chunk * plan::elementBytes(shape.type);
    if (shape.outer <= kMostGrouped) {
      Gather gather = {input, output, bytes, shape};
      // What is launched together has no order.
      if (std::any_of(gathers.begin(), gathers.end(),
                      [&](const Gather &one) { return conflict(one, gather); }))
        PLAIT_RETURN_IF_ERROR(launchGathers());
      gathers.push_back(gather);
      return holds ? Status::success() : launchGathers();
    }
    PLAIT_RETURN_IF_ERROR(call("ncclAllGather", [&] {
      return nccl.ncclAllGather(input, scratch->data(),
                                shape.outer * shape.chunk, dataType(shape.type),
                                comm, stream.handle());
    }));
    for (int64_t j = 0; j < members; ++j)
      PLAIT_RETURN_IF_ERROR(
          stream.copyRows(output + j * bytes, members * bytes,
                          scratch->data() + j * shape.outer * bytes, bytes,
                          bytes, shape.outer));
    return Status::success();
  }

  bool hold() override { return holds = comm != nullptr; }
  Status release() override {
    holds = false;
    return launchGathers();
  }

  /// Half of the scratch memory is for what is sent, member by member, the
  /// other half for what is received:
  /// 1. pack the block for each member;
  /// 2. exchange them, all in one group of calls;
  /// 3. unpack.
  Status allToAll(const std::byte *input, std::byte *output,
                  const CollectiveShape &shape) override {
    if (!comm)
      return copy(input, output, shape);
    uint64_t bytes = shape.chunk * plan::elementBytes(shape.type);
    // What is sent and received is contiguous: one transfer each way a member.
    uint64_t block = shape.outer * shape.middle * bytes;
    bool packs = shape.outer > 1 || shape.middle > 1;
    std::byte *received = packs ? scratch->data() + members * block : output;
    auto from = shape.inputRows(members), to = shape.outputRows(members);
    for (int64_t j = 0; packs && j < members; ++j)
      PLAIT_RETURN_IF_ERROR(stream.copyRows(
          {scratch->data() + j * block, shape.middle, 1},
          {input + j * from.block * bytes, from.outer, from.middle}, bytes,
          shape.outer, shape.middle));
    PLAIT_RETURN_IF_ERROR(
        exchange(packs ? scratch->data() : input, received, block));
    for (int64_t j = 0; packs && j < members; ++j)
      PLAIT_RETURN_IF_ERROR(
          stream.copyRows({output + j * to.block * bytes, to.outer, to.middle},
                          {received + j * block, shape.middle, 1}, bytes,
                          shape.outer, shape.middle));
    return Status::success();
  }

  /// 1. What is this member's own, and zeros for what nobody sends.
  /// 2. Lists of what goes to others and comes from them. Both ends of a pair
  ///    count by the same ids.
  /// 3. Rounds of as many rows of each pair as are staged, until it has none
  ///    left. Pairs do not wait for each other.
  Status moveRows(const std::byte *input, std::byte *output,
                  const CollectiveShape &shape,
                  const RowChoice &choice) override {
    RowExtents extents(shape, choice, members, index);
    PLAIT_RETURN_IF_ERROR(prepareRows(extents));
    PLAIT_RETURN_IF_ERROR(rows->clear(stream, extents, output, choice.ids));
    PLAIT_RETURN_IF_ERROR(
        rows->take(stream, extents, index, output, input, choice.ids));
    if (!comm)
      return Status::success();
    plan::RowStaging staging = stage(extents);
    std::byte *sent = scratch->data(), *received = sent + staging.packed;
    auto *lists = reinterpret_cast<int32_t *>(received + staging.packed);
    int32_t *counted = lists + staging.lists / sizeof(int32_t);
    PLAIT_RETURN_IF_ERROR(
        rows->list(stream, extents, lists, counted, choice.ids));
    PLAIT_RETURN_IF_ERROR(readCounts(counted, staging.counts));
    for (RowRound round = {0, staging.rows}; hasRows(round.first);
         round.first += round.most) {
      PLAIT_RETURN_IF_ERROR(
          rows->pack(stream, extents, round, sent, input, lists, counted));
      PLAIT_RETURN_IF_ERROR(exchangeRows(round, sent, received, extents.bytes));
      PLAIT_RETURN_IF_ERROR(rows->unpack(stream, extents, round, output,
                                         received, lists, counted));
    }
    return Status::success();
  }

private:
  /// A gather that has not been launched, of blocks of `bytes`.
  struct Gather {
    const std::byte *input;
    std::byte *output;
    uint64_t bytes;
    CollectiveShape shape;
  };

  /// Whether one of two writes what the other reads or writes.
  bool conflict(const Gather &a, const Gather &b) const {
    auto overlap = [](const std::byte *x, uint64_t xBytes, const std::byte *y,
                      uint64_t yBytes) {
      return x < y + yBytes && y < x + xBytes;
    };
    uint64_t aBytes = a.shape.outer * a.bytes, bBytes = b.shape.outer * b.bytes;
    return overlap(a.output, members * aBytes, b.output, members * bBytes) ||
           overlap(a.output, members * aBytes, b.input, bBytes) ||
           overlap(a.input, aBytes, b.output, members * bBytes);
  }

  /// Calls NCCL for each block of each gather, in one group of calls.
  Status launchGathers() {
    std::vector<std::pair<const Gather *, int64_t>> rows;
    for (const Gather &gather : gathers)
      for (int64_t row = 0; row < gather.shape.outer; ++row)
        rows.push_back({&gather, row});
    if (rows.empty())
      return Status::success();
    Status status =
        callForEach("ncclAllGather", int64_t(rows.size()), [&](int64_t i) {
          auto [gather, row] = rows[i];
          return nccl.ncclAllGather(
              gather->input + row * gather->bytes,
              gather->output + row * members * gather->bytes,
              gather->shape.chunk, dataType(gather->shape.type), comm,
              stream.handle());
        });
    gathers.clear();
    return status;
  }

  /// Sends the j-th `bytes` of `sent` to member j and receives its own from it.
  /// Issued one after another, each would wait for its peer, which may be
  /// waiting for this rank.
  Status exchange(const std::byte *sent, std::byte *received, uint64_t bytes) {
    return callForEach("an NCCL exchange", members, [&](int64_t j) {
      ncclResult_t result = nccl.ncclSend(sent + j * bytes, bytes, ncclInt8,
                                          int(j), comm, stream.handle());
      return isFine(result)
                 ? nccl.ncclRecv(received + j * bytes, bytes, ncclInt8, int(j),
                                 comm, stream.handle())
                 : result;
    });
  }

  plan::RowStaging stage(const RowExtents &extents) const {
    return plan::stageRows(extents.rows, uint64_t(extents.bytes), members,
                           extents.choices);
  }

  /// Does in the first call, before there is a step, what needs memory or an
  /// idle GPU: kernels are loaded, and each pair of members is connected, which
  /// has rows to exchange at some later time.
  Status prepareRows(const RowExtents &extents) {
    if (comm && scratch->bytes() < stage(extents).bytes())
      return fail("rows of experts need ", stage(extents).bytes(),
                  " bytes to pack them into, the group has ", scratch->bytes());
    if (rows)
      return Status::success();
    auto loaded = ExpertRows::load(stream.context);
    auto event = CudaEvent::create(stream.driver);
    if (!loaded.ok() || !event.ok())
      return loaded.ok() ? event.status() : loaded.status();
    void *made = nullptr;
    PLAIT_RETURN_IF_ERROR(stream.driver.check(
        stream.driver.cuMemHostAlloc(&made, 2 * members * sizeof(int32_t), 0),
        "cuMemHostAlloc"));
    counts = static_cast<int32_t *>(made);
    areCounted = std::move(*event);
    transfers.reserve(2 * members);
    rows = *loaded;
    return comm ? exchange(scratch->data(), scratch->data() + members, 1)
                : Status::success();
  }

  /// Copies the counts to the host, which waits for them: for what the stream
  /// was given before, and for nothing that other ranks do later.
  Status readCounts(const int32_t *counted, uint64_t bytes) {
    PLAIT_RETURN_IF_ERROR(stream.add([&] {
      return stream.driver.check(stream.driver.cuMemcpyDtoHAsync(
                                     counts,
                                     reinterpret_cast<CUdeviceptr>(counted),
                                     bytes, stream.handle()),
                                 "cuMemcpyDtoHAsync");
    }));
    PLAIT_RETURN_IF_ERROR(stream.record(areCounted));
    // The GPU does little before it is told more.
    return owner->await([this] { return areCounted.happened(); },
                        std::chrono::microseconds(0));
  }

  /// Whether this member sends or receives more than `first` rows of a pair.
  bool hasRows(int64_t first) const {
    for (int64_t j = 0; j < 2 * members; ++j)
      if (j % members != index && counts[j] > first)
        return true;
    return false;
  }

  /// Sends and receives what the round has of each pair, all in one group of
  /// calls.
  Status exchangeRows(RowRound round, std::byte *sent, std::byte *received,
                      int64_t rowBytes) {
    transfers.clear();
    for (int64_t j = 0; j < 2 * members; ++j) {
      int64_t left = std::min(counts[j] - round.first, round.most);
      bool sends = j < members;
      std::byte *packed =
          (sends ? sent : received) + j % members * round.most * rowBytes;
      if (j % members != index && left > 0)
        transfers.push_back(
            {packed, uint64_t(left * rowBytes), int(j % members), sends});
    }
    return callForEach(
        "an NCCL exchange", int64_t(transfers.size()), [&](int64_t i) {
          auto [packed, bytes, peer, sends] = transfers[i];
          return sends ? nccl.ncclSend(packed, bytes, ncclInt8, peer, comm,
                                       stream.handle())
                       : nccl.ncclRecv(packed, bytes, ncclInt8, peer, comm,
                                       stream.handle());
        });
  }

  /// Issues `count` parts, launched together. The group has to be ended also
  /// after a failure, or the thread stays in it.
  template <typename Issue>
  Status callForEach(const char *what, int64_t count, Issue issue) {
    return call(what, [&] {
      if (count == 1)
        return issue(0);
      ncclResult_t result = nccl.ncclGroupStart();
      for (int64_t i = 0; i < count && isFine(result); ++i)
        result = issue(i);
      ncclResult_t ended = nccl.ncclGroupEnd();
      return isFine(result) ? ended : result;
    });
  }
  static bool isFine(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
  }

  /// All collectives of one member.
  Status copy(const std::byte *input, std::byte *output,
              const CollectiveShape &shape) {
    return stream.copy(output, input,
                       input == output
                           ? 0
                           : shape.outer * shape.middle * shape.chunk *
                                 plan::elementBytes(shape.type));
  }

  /// Through the owner, which holds the lock and may have been stopped.
  template <typename Enqueue> Status call(const char *what, Enqueue enqueue) {
    PLAIT_RETURN_IF_ERROR(device.holdBack(number));
    return owner->call(comm, what, enqueue);
  }

  std::shared_ptr<NcclRank> owner;
  const Nccl &nccl;
  ncclComm_t comm;
  int64_t members, index;
  CudaDevice &device;
  uint32_t number;
  CudaStream &stream;
  std::shared_ptr<DeviceMemory> scratch;
  bool holds = false;
  std::vector<Gather> gathers; // not launched yet

  /// A message of a round.
  struct Transfer {
    std::byte *packed;
    uint64_t bytes;
    int peer;
    bool sends;
  };
  // Of rows of experts; null before the first.
  std::shared_ptr<const ExpertRows> rows;
  int32_t *counts = nullptr; // page-locked: to each member, then from each
  CudaEvent areCounted;
  std::vector<Transfer> transfers;
};

} // namespace

std::unique_ptr<Group>
runtime::createNcclGroup(std::shared_ptr<NcclRank> owner, ncclComm_t comm,
                         int64_t members, int64_t index, CudaDevice &device,
                         uint32_t number,
                         std::shared_ptr<DeviceMemory> scratch) {
  return std::make_unique<NcclGroup>(std::move(owner), comm, members, index,
                                     device, number, std::move(scratch));
}
