//===- FakeNcclLife.cpp - libnccl: how communicators come and go ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FakeNccl.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

using namespace plait::fake;

static std::set<ncclComm_t> &comms() {
  static std::set<ncclComm_t> all;
  return all;
}

/// Of this thread: what the open group aborts.
static thread_local std::vector<ncclComm_t> aborting;

std::condition_variable_any &plait::fake::changed() {
  static std::condition_variable_any condition;
  return condition;
}

bool plait::fake::isUsable(ncclComm_t comm) {
  std::lock_guard guard(lock());
  if (!comm || comm->freed)
    refuse("a communicator is used that has been aborted or destroyed");
  if (comm->failed)
    refuse("a communicator is used whose window has failed");
  return !comm->pending;
}

ncclResult_t
plait::fake::finishWhen(ncclComm_t comm,
                        std::unique_lock<std::recursive_mutex> &guard,
                        std::function<bool()> ready) {
  if (comm->blocks) {
    changed().wait(guard, [&] { return comm->aborted || ready(); });
    return comm->aborted ? ncclInternalError : ncclSuccess;
  }
  // A thread of NCCL's does it, some time later.
  comm->pending = [ready = std::move(ready), late = 2]() mutable {
    return late-- <= 0 && ready();
  };
  return ncclInProgress;
}

/// Returns when no recorded step has work of `comm`.
static void awaitRecordedSteps(ncclComm_t comm) {
  constexpr auto patience = std::chrono::seconds(2);
  auto since = std::chrono::steady_clock::now();
  while (true) {
    {
      std::lock_guard guard(lock());
      advanceAll();
      if (comm->recorded.use_count() == 1)
        return;
    }
    if (std::chrono::steady_clock::now() - since > patience)
      refuse("a communicator waits for ever for a recorded step with its work");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

static void release(ncclComm_t comm) {
  awaitRecordedSteps(comm);
  std::lock_guard guard(lock());
  comm->registered.clear();
  comm->freed = true;
  comms().erase(comm);
}

/// How many communicators were made with so many thread blocks.
static std::map<int, uint64_t> &commsWith() {
  static std::map<int, uint64_t> counts;
  return counts;
}

size_t plait::fake::countComms() {
  std::lock_guard guard(lock());
  return comms().size();
}

void plait::fake::endAborts() {
  for (ncclComm_t comm : aborting)
    release(comm);
  aborting.clear();
}

extern "C" {

/// For tests.
uint64_t plaitFakeCommsWith(int blocks) {
  std::lock_guard guard(lock());
  return commsWith()[blocks];
}

ncclResult_t ncclGetVersion(int *version) {
  // What the real one has among its texts.
  static char text[64] = "NCCL"; // not empty: in the part that is in the file
  long cuda = setting("PLAIT_FAKE_NCCL_CUDART", 13000);
  std::snprintf(text, sizeof(text), "%s%d.%d.%d+cuda%ld.%ld", "NCCL version ",
                NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, cuda / 1000,
                cuda % 1000 / 10);
  __asm__ volatile("" : : "r"(text) : "memory");
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
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  static std::map<std::string, std::shared_ptr<Shared>> worlds;
  std::unique_lock guard(lock());
  std::shared_ptr<Shared> &world = worlds[id.internal];
  if (!world)
    world = std::make_shared<Shared>(ranks);
  std::shared_ptr<Shared> joined = world;
  ++joined->joined;
  changed().notify_all();
  comms().insert(*comm = new ncclComm{joined, rank, config->blocking != 0});
  return finishWhen(*comm, guard, [=] { return joined->joined == ranks; });
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t *part, ncclConfig_t *config) {
  if (!isUsable(comm))
    return ncclInvalidArgument;
  std::unique_lock guard(lock());
  // Kernels of communicators that share wait for one another (deviceStream).
  if (config->splitShare == 1)
    refuse("communicators share resources, and so come one after the other");
  *part = nullptr; // until it is complete
  int split = comm->splits++;
  comm->shared->colours[split][comm->rank] = {color, key};
  changed().notify_all();
  bool blocks = config->blocking != 0;
  return finishWhen(comm, guard, [=, maxCTAs = config->maxCTAs] {
    Shared &shared = *comm->shared;
    if (int(shared.colours[split].size()) < shared.ranks)
      return false;
    if (color == NCCL_SPLIT_NOCOLOR)
      return true;
    int size = 0, rank = 0;
    for (const auto &[other, place] : shared.colours[split])
      if (place.first == color) {
        ++size;
        rank += place.second < key;
      }
    std::shared_ptr<Shared> &made = shared.parts[{split, color}];
    if (!made)
      made = std::make_shared<Shared>(size);
    comms().insert(*part = new ncclComm{made, rank, blocks, maxCTAs});
    ++commsWith()[maxCTAs];
    return true;
  });
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!isUsable(comm))
    refuse("a communicator is destroyed in the middle of a call");
  {
    std::lock_guard guard(lock());
    if (!comm->registered.empty())
      refuse("a communicator is destroyed that still knows memory");
  }
  release(comm);
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
  if (!isUsable(comm))
    refuse("memory is registered while a communicator is being made");
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
  bool fails = setting("PLAIT_FAKE_BROKEN_WINDOW", -1) == comm->gpu;
  std::unique_lock guard(lock());
  if (fails) {
    comm->failed = true;
    return std::getenv("PLAIT_FAKE_BROKEN_LATER") ? ncclInProgress
                                                  : ncclUnhandledCudaError;
  }
  auto known = remember(comm, memory, bytes, true);
  comm->shared->windows.insert(comm->rank);
  return finishWhen(comm, guard, [=] {
    if (int(comm->shared->windows.size()) < comm->shared->ranks)
      return false;
    *window = reinterpret_cast<ncclWindow_t>(known);
    return true;
  });
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return forget(comm, window);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm || comm->freed)
    refuse("a communicator is aborted twice");
  {
    std::lock_guard guard(lock());
    // Aborting one waits for the GPU, where the others may wait for ever; in a
    // group all are told first (github.com/NVIDIA/nccl/issues/1013).
    for (ncclComm_t other : comms())
      if (groupDepth() == 0 && other != comm && !other->aborted &&
          other->gpu == comm->gpu)
        refuse("the communicators of a GPU are aborted one after the other");
    comm->registered.clear();
    comm->pending = nullptr;
    comm->aborted = comm->shared->aborted = true;
    changed().notify_all();
  }
  if (groupDepth() > 0)
    aborting.push_back(comm);
  else
    release(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
  std::lock_guard guard(lock());
  if (comm->failed && !comm->freed) {
    *state = ncclUnhandledCudaError;
    return ncclSuccess;
  }
  isUsable(comm);
  if (comm->pending && !comm->shared->aborted) {
    // What it does may make other calls wait.
    auto pending = std::move(comm->pending);
    comm->pending = nullptr;
    bool done = pending();
    if (!done)
      comm->pending = std::move(pending);
    *state = done ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
  }
  *state = comm->shared->aborted ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

} // extern "C"
