//===- FakeNccl.h - Communicators of fake GPUs ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// As in NCCL 2.30 (enqueue.cc, group.cc, init.cc):
//
//  order     an operation begins after the one launched before it on its GPU
//            has begun. Before CUDA 12.9 in a recording, and before 12.3
//            anywhere, it begins after that has ended (PLAIT_FAKE_CUDA_VERSION,
//            PLAIT_FAKE_NCCL_CUDART);
//  sends     end with their receive, except those of at most
//            PLAIT_FAKE_EAGER_BYTES bytes (0 unless told), which fit NCCL's
//            buffers;
//  the host  waits in the first operation of a communicator for its other
//            ranks, and for ever where one is missing. With config.blocking 0
//            it does not: a call answers ncclInProgress, and until
//            ncclCommGetAsyncError says otherwise nothing is launched and no
//            other call is allowed;
//  connecting for a collective, in the first call of its kind and size, needs
//            an idle GPU where PLAIT_FAKE_IDLE_CONNECT is set: it does not come
//            beside an operation that may wait for another rank, nor in a
//            recording;
//  graphs    run branches in any order: an operation that is recorded far
//            behind what computes (PLAIT_FAKE_RUN_AHEAD steps), and does not
//            depend on it, is refused;
//  windows   are made by all ranks of a communicator together; where one fails
//            (PLAIT_FAKE_BROKEN_WINDOW: its GPU, PLAIT_FAKE_BROKEN_LATER: not
//            at once) the others wait, and nothing but an abort is allowed;
//  the end   a communicator that is aborted or destroyed waits until no
//            recorded step has work of it (commDestroySync); afterwards it may
//            not be used at all.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKENCCL_H
#define PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKENCCL_H

#include "FakeContexts.h"
#include "FakeStreams.h"

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <nccl.h>
#include <set>
#include <string>
#include <tuple>

namespace plait::fake {

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

inline size_t bytesOf(ncclDataType_t type) {
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
  std::string copy = {}; // where it does not wait for its receive
};

/// What the ranks of a communicator share.
struct Shared {
  explicit Shared(int ranks) : ranks(ranks) {}

  int ranks;
  std::atomic<bool> aborted = false; // by one of them
  std::map<uint64_t, Round> rounds;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> messages;
  int joined = 0;
  std::set<int> connecting; // ranks that have come to their first operation
  std::set<int> windows;    // ranks that have come to make one
  // Of splits: the colours of all ranks, by the number of the split.
  std::map<int, std::map<int, std::pair<int, int>>> colours;
  std::map<std::pair<int, int>, std::shared_ptr<Shared>> parts;
};

/// Memory that a communicator knows.
struct Registered {
  char *begin;
  size_t bytes;
  bool window;
};

/// Of all threads that wait on the host, with lock().
std::condition_variable_any &changed();

/// Ends the process where `comm` may not be used any more; else whether a call
/// is allowed now.
bool isUsable(ncclComm_t comm);

/// Waits for `ready`, on the host or, where `comm` does not block, in
/// ncclCommGetAsyncError. Needs `guard` of lock().
ncclResult_t finishWhen(ncclComm_t comm,
                        std::unique_lock<std::recursive_mutex> &guard,
                        std::function<bool()> ready);

/// Of this thread.
int groupDepth();

/// Aborts what ncclCommAbort was asked for in the group that has ended.
void endAborts();
/// Counts the communicators that there are.
size_t countComms();

} // namespace plait::fake

struct ncclComm {
  std::shared_ptr<plait::fake::Shared> shared;
  int rank;
  bool blocks = true; // config.blocking
  int maxCTAs = 0;    // config.maxCTAs
  std::list<plait::fake::Registered> registered = {};
  uint64_t reached = 0; // collectives
  // Collectives for which the members have connected.
  std::set<std::tuple<plait::fake::Kind, ncclDataType_t, size_t>> connected =
      {};
  int splits = 0;
  std::atomic<bool> aborted = false;
  bool freed = false;
  bool failed = false; // a window
  int gpu = plait::fake::currentGpu();
  std::function<bool()> pending = nullptr; // what the last call waits for
  // A copy in every recorded step that has work of this communicator.
  std::shared_ptr<int> recorded = std::make_shared<int>(0);
};

#endif // PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKENCCL_H
