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

#include "FakeContexts.h"
#include "FakeStreams.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <nccl.h>
#include <set>
#include <string>

using namespace plait::fake;

namespace {

enum class Kind { AllReduce, ReduceScatter, AllGather };

/// Where an operand is in the memory that all ranks have a window to; -1: it
/// is elsewhere, or there is no window.
struct Places {
  int64_t send = -1, receive = -1;
  bool operator==(const Places &) const = default;
};

struct Operation {
  Kind kind;
  const char *send;
  char *receive;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduction;
  Places places = {};
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

template <typename Element>
float reduced(const Round &round, int ranks, size_t index) {
  float value =
      reinterpret_cast<const Element *>(round.entered.at(0).send)[index];
  for (int rank = 1; rank < ranks; ++rank) {
    const Operation &operation = round.entered.at(rank);
    float next = reinterpret_cast<const Element *>(operation.send)[index];
    value =
        operation.reduction == ncclSum ? value + next : std::max(value, next);
  }
  return value;
}

template <typename Element> void reduceAll(const Round &round, int ranks) {
  const Operation &first = round.entered.at(0);
  bool scatters = first.kind == Kind::ReduceScatter;
  std::vector<Element> result(first.count * (scatters ? ranks : 1));
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = Element(reduced<Element>(round, ranks, i));
  for (const auto &[rank, target] : round.entered)
    std::memcpy(target.receive,
                result.data() + (scatters ? rank * first.count : 0),
                first.count * sizeof(Element));
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
  if (first.type == ncclBfloat16)
    reduceAll<plait::BFloat16>(round, ranks);
  else
    reduceAll<float>(round, ranks);
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
  else if (enqueue(stream, std::move(work)) != CUDA_SUCCESS)
    return ncclUnhandledCudaError;
  return ncclSuccess;
}

} // namespace

/// Memory that a communicator knows.
struct Registered {
  char *begin;
  size_t bytes;
  bool window;
};

struct ncclComm {
  std::shared_ptr<Shared> shared;
  int rank;
  std::list<Registered> registered = {};
  uint64_t reached = 0; // collectives
  int splits = 0;
  std::atomic<bool> aborted = false;
  int gpu = currentGpu();
};

static std::set<ncclComm_t> &comms() {
  static std::set<ncclComm_t> all;
  return all;
}

/// What a test must not do without noticing.
static Places placesOf(ncclComm_t comm, const Operation &operation) {
  Places places;
  for (const Registered &memory : comm->registered) {
    auto find = [&](const char *pointer) -> int64_t {
      bool inside =
          pointer >= memory.begin && pointer < memory.begin + memory.bytes;
      return memory.window && inside ? pointer - memory.begin : -1;
    };
    places.send = std::max(places.send, find(operation.send));
    places.receive = std::max(places.receive, find(operation.receive));
  }
  return places;
}

static ncclResult_t collective(ncclComm_t comm, cudaStream_t stream,
                               Operation operation) {
  if (comm->registered.empty())
    refuse("a communicator knows no memory");
  // The number is taken when the stream gets there: a graph is used again.
  auto number = std::make_shared<int64_t>(-1);
  return issue(stream, [=] {
    if (comm->aborted)
      return true;
    if (*number < 0) {
      *number = int64_t(comm->reached++);
      Operation &mine = comm->shared->rounds[*number].entered[comm->rank];
      mine = operation;
      mine.places = placesOf(comm, operation);
    }
    Round &round = comm->shared->rounds[*number];
    if (int(round.entered.size()) < comm->shared->ranks)
      return false;
    for (const auto &[rank, other] : round.entered)
      if (other.kind != operation.kind || other.count != operation.count)
        return false; // for ever
    for (const auto &[rank, other] : round.entered)
      if (other.places != round.entered.begin()->second.places)
        refuse("a collective is at different places of the ranks' windows");
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
  comms().insert(*comm = new ncclComm{joined, rank});
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
  comms().insert(*part = new ncclComm{made, rank});
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  std::lock_guard guard(lock());
  if (!comm->registered.empty())
    refuse("a communicator is destroyed that still knows memory");
  comms().erase(comm);
  return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void **memory, size_t bytes) {
  return cuMemAlloc(reinterpret_cast<CUdeviceptr *>(memory), bytes) ==
                 CUDA_SUCCESS
             ? ncclSuccess
             : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void *memory) {
  std::lock_guard guard(lock());
  for (ncclComm_t comm : comms())
    for (const Registered &known : comm->registered)
      if (known.begin == memory)
        refuse("memory is freed that a communicator still knows");
  cuMemFree(reinterpret_cast<CUdeviceptr>(memory));
  return ncclSuccess;
}
static Registered *remember(ncclComm_t comm, void *memory, size_t bytes,
                            bool window) {
  std::lock_guard guard(lock());
  if (!allocated(memory, bytes))
    refuse("memory is registered that is not allocated");
  comm->registered.push_back({static_cast<char *>(memory), bytes, window});
  return &comm->registered.back();
}
static ncclResult_t forget(ncclComm_t comm, void *handle) {
  std::lock_guard guard(lock());
  size_t count = comm->registered.remove_if(
      [&](const Registered &known) { return &known == handle; });
  return count ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *memory, size_t bytes,
                              void **handle) {
  *handle = remember(comm, memory, bytes, false);
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
  return forget(comm, handle);
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes,
                                    ncclWindow_t *window, int flags) {
  if (flags != NCCL_WIN_COLL_SYMMETRIC)
    return ncclInvalidArgument;
  *window = nullptr;
  if (std::getenv("PLAIT_FAKE_NO_WINDOWS"))
    return ncclSuccess; // as between nodes
  *window = reinterpret_cast<ncclWindow_t>(remember(comm, memory, bytes, true));
  return ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return forget(comm, window);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::lock_guard guard(lock());
  // Aborting one waits for the GPU, where the others may wait for ever; in a
  // group all are told first (github.com/NVIDIA/nccl/issues/1013).
  for (ncclComm_t other : comms())
    if (groupDepth == 0 && other != comm && !other->aborted &&
        other->gpu == comm->gpu)
      refuse("the communicators of a GPU are aborted one after the other");
  comm->registered.clear();
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
