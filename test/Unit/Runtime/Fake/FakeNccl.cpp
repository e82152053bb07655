//===- FakeNccl.cpp - libnccl, on the CPU: its operations ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks are threads of one process. The operations of a communicator happen in
// the order in which they were issued, whatever their streams, and only when
// all of its ranks have reached them.
//
//===----------------------------------------------------------------------===//

#include "FakeNccl.h"

#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <cstring>

using namespace plait::fake;

namespace {

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

/// An operation that has been issued and not been launched.
struct Issued {
  ncclComm_t comm;
  CUstream stream;
  Work work;
};

/// Of the group that this thread has open.
thread_local int depth = 0;
thread_local std::vector<Issued> groupWork;

/// What the next launch on a GPU waits for, in one recording or in none.
CUevent &lastLaunch(CUstream stream) {
  // Held for ever: another recording must not have the same address.
  static std::map<std::pair<int, std::shared_ptr<Graph>>, CUevent> events;
  CUevent &event =
      events[{stream->gpu, stream->records() ? stream->recording : nullptr}];
  bool isNew = !event || !lives(event->stream);
  if (isNew)
    cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  return event;
}

/// getImplicitOrder() of enqueue.cc.
bool launchesSerially(bool recorded) {
  int driver = int(setting("PLAIT_FAKE_CUDA_VERSION", 13000));
  int runtime = int(setting("PLAIT_FAKE_NCCL_CUDART", 13000));
  return (recorded && driver < 12090) || std::min(driver, runtime) < 12030;
}

/// Counts `work` as in flight until it is done.
Work counted(int gpu, Work work) {
  int &count = inFlight(gpu);
  ++count;
  return
      [&count, work = std::move(work), counts = std::make_shared<bool>(true)] {
        if (!work())
          return false;
        count -= *counts;
        *counts = false;
        return true;
      };
}

/// A graph runs branches in any order: work that may wait for other ranks, and
/// is recorded behind more of what computes than PLAIT_FAKE_RUN_AHEAD without
/// depending on it, may come before it.
void checkRunAhead(CUstream stream) {
  long most = setting("PLAIT_FAKE_RUN_AHEAD", 0);
  for (auto [other, time] : stream->recording->recorded)
    if (most && other != stream && !other->urgent &&
        time > stream->clock[other] + most)
      refuse("a recorded operation may run far before what computes");
}

uint64_t launches = 0;

void launch(CUstream stream, ncclComm_t comm, Work work) {
  ++launches;
  bool recorded = stream->records(), serial = launchesSerially(recorded);
  CUevent last = lastLaunch(stream);
  if (last->stream)
    cuStreamWaitEvent(stream, last, 0);
  if (!serial)
    cuEventRecord(last, stream);
  if (recorded)
    stream->recording->users.push_back(comm->recorded);
  if (recorded)
    checkRunAhead(stream);
  enqueue(stream, recorded ? work : counted(stream->gpu, work));
  if (serial)
    cuEventRecord(last, stream);
}

/// Launches what belongs together, when all ranks have come here once.
ncclResult_t launchWhenConnected(const std::vector<Issued> &parts) {
  ncclComm_t comm = parts.front().comm;
  for (const Issued &part : parts)
    if (part.comm != comm || part.stream != parts.front().stream)
      refuse("a group has operations of several communicators");
  std::unique_lock guard(lock());
  comm->shared->connecting.insert(comm->rank);
  changed().notify_all();
  auto works = std::make_shared<std::vector<Work>>();
  for (const Issued &part : parts)
    works->push_back(part.work);
  auto done = std::make_shared<std::vector<bool>>(parts.size());
  // All at once: the parts of a group do not wait for each other.
  Work all = [=] {
    for (size_t i = 0; i < works->size(); ++i)
      (*done)[i] = (*done)[i] || (*works)[i]();
    bool ended =
        std::all_of(done->begin(), done->end(), [](bool part) { return part; });
    if (ended)
      done->assign(works->size(), false);
    return ended;
  };
  CUstream stream = parts.front().stream;
  if (stream->gpu != currentGpu())
    return ncclUnhandledCudaError;
  return finishWhen(comm, guard, [=] {
    if (int(comm->shared->connecting.size()) < comm->shared->ranks)
      return false;
    launch(stream, comm, all);
    return true;
  });
}

ncclResult_t issue(ncclComm_t comm, cudaStream_t stream, Work work) {
  if (!isUsable(comm))
    return ncclInvalidArgument;
  if (depth == 0)
    return launchWhenConnected({{comm, stream, std::move(work)}});
  groupWork.push_back({comm, stream, std::move(work)});
  return ncclSuccess;
}

} // namespace

int plait::fake::groupDepth() { return depth; }

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
  {
    std::lock_guard guard(lock());
    bool isFirst =
        comm->connected
            .insert({operation.kind, operation.type, operation.count})
            .second;
    if (isFirst && setting("PLAIT_FAKE_IDLE_CONNECT", 0) &&
        (stream->records() || inFlight(comm->gpu) > 0))
      refuse("NCCL connects while the GPU has kernels that wait for others");
  }
  // The number is taken when the stream gets there: a graph is used again.
  auto number = std::make_shared<int64_t>(-1);
  return issue(comm, stream, [=] {
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
  if (setting("PLAIT_FAKE_BROKEN_SENDER", -1) == comm->gpu)
    return ncclSystemError;
  size_t bytes = count * bytesOf(type);
  bool isEager = long(bytes) <= setting("PLAIT_FAKE_EAGER_BYTES", 0);
  auto message = std::make_shared<std::shared_ptr<Message>>();
  return issue(comm, stream, [=] {
    if (comm->aborted)
      return true;
    if (!*message) {
      *message = std::make_shared<Message>();
      Message &made = **message;
      made.bytes = bytes;
      made.data = static_cast<const char *>(data);
      if (isEager)
        made.data = made.copy.assign(made.data, bytes).data();
      comm->shared->messages[{comm->rank, peer}].push_back(*message);
    }
    if (!isEager && !(*message)->taken)
      return false;
    message->reset(); // a graph sends again
    return true;
  });
}
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, [=, bytes = count * bytesOf(type)] {
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
/// For tests.
uint64_t plaitFakeNcclLaunches() {
  std::lock_guard guard(lock());
  return launches;
}
ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--depth > 0)
    return ncclSuccess;
  endAborts();
  std::vector<Issued> parts = std::move(groupWork);
  groupWork.clear();
  return parts.empty() ? ncclSuccess : launchWhenConnected(parts);
}

} // extern "C"
