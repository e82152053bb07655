//===- FakeNccl.cpp - libnccl, on the CPU ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks are threads of one process. The operations of a communicator happen in
// the order in which they were issued, whatever their streams, and only when
// all of its ranks have reached them; a send ends when it has been received.
//
//===----------------------------------------------------------------------===//

#include "FakeStreams.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <nccl.h>
#include <string>

using namespace plait::fake;

namespace {

enum class Kind { AllReduce, ReduceScatter, AllGather };

struct Operation {
  Kind kind;
  const char *send;
  char *receive;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduction;
};

size_t bytesOf(ncclDataType_t type) {
  return type == ncclInt8 ? 1 : type == ncclBfloat16 ? 2 : 4;
}

/// A collective that some ranks have reached.
struct Round {
  std::map<int, Operation> entered;
  bool done = false;
};
struct Message {
  const char *data;
  size_t bytes;
  bool taken = false;
};

/// What the ranks of a communicator share.
struct Shared {
  explicit Shared(int ranks) : ranks(ranks) {}

  int ranks;
  std::atomic<bool> aborted = false; // by one of them
  std::map<uint64_t, Round> rounds;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> messages;
  int joined = 0;
  // Of splits: the colours of all ranks, by the number of the split.
  std::map<int, std::map<int, std::pair<int, int>>> colours;
  std::map<std::pair<int, int>, std::shared_ptr<Shared>> parts;
};

float reduced(const Round &round, int ranks, size_t index) {
  float value =
      reinterpret_cast<const float *>(round.entered.at(0).send)[index];
  for (int rank = 1; rank < ranks; ++rank) {
    const Operation &operation = round.entered.at(rank);
    float next = reinterpret_cast<const float *>(operation.send)[index];
    value =
        operation.reduction == ncclSum ? value + next : std::max(value, next);
  }
  return value;
}

void complete(const Round &round, int ranks) {
  const Operation &first = round.entered.at(0);
  if (first.kind == Kind::AllGather) {
    size_t bytes = first.count * bytesOf(first.type);
    for (const auto &[rank, target] : round.entered)
      for (int from = 0; from < ranks; ++from)
        std::memmove(target.receive + from * bytes, round.entered.at(from).send,
                     bytes);
    return;
  }
  bool scatters = first.kind == Kind::ReduceScatter;
  std::vector<float> result(first.count * (scatters ? ranks : 1));
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = reduced(round, ranks, i);
  for (const auto &[rank, target] : round.entered)
    std::memcpy(target.receive,
                result.data() + (scatters ? rank * first.count : 0),
                first.count * sizeof(float));
}

std::condition_variable_any &changed() {
  static std::condition_variable_any condition;
  return condition;
}

/// Work of the group that this thread has open.
thread_local int groupDepth = 0;
thread_local std::vector<std::pair<cudaStream_t, Work>> groupWork;

ncclResult_t issue(cudaStream_t stream, Work work) {
  if (groupDepth > 0)
    groupWork.emplace_back(stream, std::move(work));
  else
    enqueue(stream, std::move(work));
  return ncclSuccess;
}

} // namespace

struct ncclComm {
  std::shared_ptr<Shared> shared;
  int rank;
  uint64_t reached = 0; // collectives
  int splits = 0;
  std::atomic<bool> aborted = false;
};

static ncclResult_t collective(ncclComm_t comm, cudaStream_t stream,
                               Operation operation) {
  // The number is taken when the stream gets there: a graph is used again.
  auto number = std::make_shared<int64_t>(-1);
  return issue(stream, [=] {
    if (comm->aborted)
      return true;
    if (*number < 0) {
      *number = int64_t(comm->reached++);
      comm->shared->rounds[*number].entered[comm->rank] = operation;
    }
    Round &round = comm->shared->rounds[*number];
    if (int(round.entered.size()) < comm->shared->ranks)
      return false;
    for (const auto &[rank, other] : round.entered)
      if (other.kind != operation.kind || other.count != operation.count)
        return false; // for ever
    if (!round.done)
      complete(round, comm->shared->ranks);
    round.done = true;
    *number = -1;
    return true;
  });
}

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t) { return "the fake NCCL objects"; }
const char *ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static std::atomic<int> next = 0;
  std::memset(id, 0, sizeof(*id));
  std::snprintf(id->internal, sizeof(id->internal), "fake %d", next++);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks,
                                    ncclUniqueId id, int rank, ncclConfig_t *) {
  static std::map<std::string, std::shared_ptr<Shared>> worlds;
  std::unique_lock guard(lock());
  std::shared_ptr<Shared> &world = worlds[id.internal];
  if (!world)
    world = std::make_shared<Shared>(ranks);
  std::shared_ptr<Shared> joined = world;
  ++joined->joined;
  changed().notify_all();
  changed().wait(guard, [&] { return joined->joined == ranks; });
  *comm = new ncclComm{joined, rank};
  return ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t *part, ncclConfig_t *) {
  std::unique_lock guard(lock());
  Shared &shared = *comm->shared;
  int split = comm->splits++;
  shared.colours[split][comm->rank] = {color, key};
  changed().notify_all();
  changed().wait(
      guard, [&] { return int(shared.colours[split].size()) == shared.ranks; });
  if (color == NCCL_SPLIT_NOCOLOR)
    return ncclSuccess;
  int size = 0, rank = 0;
  for (const auto &[other, place] : shared.colours[split])
    if (place.first == color) {
      ++size;
      rank += place.second < key;
    }
  std::shared_ptr<Shared> &made = shared.parts[{split, color}];
  if (!made)
    made = std::make_shared<Shared>(size);
  *part = new ncclComm{made, rank};
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = comm->shared->aborted = true;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
  *state = comm->shared->aborted ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count,
                           ncclDataType_t type, ncclRedOp_t reduction,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream,
                    {Kind::AllReduce, static_cast<const char *>(send),
                     static_cast<char *>(receive), count, type, reduction});
}
ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count,
                               ncclDataType_t type, ncclRedOp_t reduction,
                               ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream,
                    {Kind::ReduceScatter, static_cast<const char *>(send),
                     static_cast<char *>(receive), count, type, reduction});
}
ncclResult_t ncclAllGather(const void *send, void *receive, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective(comm, stream,
                    {Kind::AllGather, static_cast<const char *>(send),
                     static_cast<char *>(receive), count, type, ncclSum});
}
ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  auto message = std::make_shared<std::shared_ptr<Message>>();
  return issue(stream, [=, bytes = count * bytesOf(type)] {
    if (comm->aborted)
      return true;
    if (!*message) {
      *message = std::make_shared<Message>(
          Message{static_cast<const char *>(data), bytes});
      comm->shared->messages[{comm->rank, peer}].push_back(*message);
    }
    if (!(*message)->taken)
      return false;
    message->reset(); // a graph sends again
    return true;
  });
}
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return issue(stream, [=, bytes = count * bytesOf(type)] {
    if (comm->aborted)
      return true;
    auto &queue = comm->shared->messages[{peer, comm->rank}];
    if (queue.empty() || queue.front()->bytes != bytes)
      return false;
    std::memcpy(data, queue.front()->data, bytes);
    queue.front()->taken = true;
    queue.pop_front();
    return true;
  });
}
ncclResult_t ncclGroupStart() {
  ++groupDepth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--groupDepth > 0)
    return ncclSuccess;
  // All at once: the parts of a group do not wait for each other.
  auto parts = std::make_shared<std::vector<Work>>();
  cudaStream_t stream = groupWork.empty() ? nullptr : groupWork.front().first;
  for (auto &[its, work] : groupWork)
    parts->push_back(std::move(work));
  groupWork.clear();
  if (!stream)
    return ncclSuccess;
  auto done = std::make_shared<std::vector<bool>>(parts->size());
  enqueue(stream, [=] {
    for (size_t i = 0; i < parts->size(); ++i)
      (*done)[i] = (*done)[i] || (*parts)[i]();
    bool all =
        std::all_of(done->begin(), done->end(), [](bool part) { return part; });
    if (all)
      done->assign(parts->size(), false);
    return all;
  });
  return ncclSuccess;
}

} // extern "C"
