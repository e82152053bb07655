//===- FakeDriver.cpp - libcuda, on the CPU -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FakeContexts.h"
#include "FakeNccl.h"
#include "FakeStreams.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <map>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <thread>

using namespace plait::fake;

namespace {

std::map<uintptr_t, size_t> &allocations() {
  static std::map<uintptr_t, size_t> map;
  return map;
}

/// Of the host, page-locked.
std::map<uintptr_t, size_t> &locked() {
  static std::map<uintptr_t, size_t> map;
  return map;
}

bool isIn(const std::map<uintptr_t, size_t> &known, const void *address,
          size_t bytes) {
  auto begin = reinterpret_cast<uintptr_t>(address);
  auto next = known.upper_bound(begin);
  if (next == known.begin())
    return false;
  --next;
  return begin + bytes <= next->first + next->second;
}

std::vector<CUstream> &streams() {
  static std::vector<CUstream> all;
  return all;
}

int deviceCount() { return int(setting("PLAIT_FAKE_GPUS", 1)); }

char *pointer(CUdeviceptr address) { return reinterpret_cast<char *>(address); }

/// Does what can be done of the work of `stream`.
void advance(CUstream stream) {
  if (stream->advancing) // it waits for what waits for it
    return;
  stream->advancing = true;
  while (!stream->work.empty() && stream->work.front()())
    stream->work.pop_front();
  stream->advancing = false;
}

/// Adds work to a stream that is not being recorded.
void push(CUstream stream, Work work) {
  stream->work.push_back(std::move(work));
  if (stream->urgent && setting("PLAIT_FAKE_HASTY", 0))
    advance(stream);
}

bool reach(const std::shared_ptr<Mark> &mark) {
  // No further than the mark: what follows it is not asked for.
  CUstream stream = mark->stream;
  while (!mark->reached && !stream->advancing && !stream->work.empty()) {
    stream->advancing = true;
    bool done = stream->work.front()();
    stream->advancing = false;
    if (!done)
      break;
    stream->work.pop_front();
  }
  return mark->reached;
}

/// A use of an event: reached when all work of `stream` up to now is done.
std::shared_ptr<Mark> mark(CUstream stream) {
  auto made = std::make_shared<Mark>();
  made->stream = stream;
  push(stream, [made] {
    made->when = std::chrono::steady_clock::now();
    made->gemms = gemmTime();
    return made->reached = true;
  });
  return made;
}

void wait(CUstream stream, const std::shared_ptr<Mark> &mark) {
  push(stream, [mark] { return reach(mark); });
}

bool hasLost = false;

/// Work that does not wait for events may come after what it works on is freed:
/// from the first such run on, addresses stay, and pages are given back.
void release(void *memory) {
  if (!hasLost)
    return std::free(memory);
  constexpr uintptr_t page = 4096;
  uintptr_t first = uintptr_t(memory);
  uintptr_t last = (first + malloc_usable_size(memory)) / page * page;
  first = (first + page - 1) / page * page;
  if (first < last)
    madvise(reinterpret_cast<void *>(first), last - first, MADV_DONTNEED);
}

/// Whether `stream` ignores `event`.
bool loses(CUstream stream, CUevent event) {
  const char *which = std::getenv("PLAIT_FAKE_LOSE");
  hasLost |= which != nullptr;
  return which && event->stream && event->stream->urgent != stream->urgent &&
         stream->urgent == (std::string(which) == "urgent");
}

Work copyWork(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  return [=] {
    std::memmove(pointer(target), pointer(source), bytes);
    return true;
  };
}

} // namespace

long plait::fake::setting(const char *name, long otherwise) {
  const char *text = std::getenv(name);
  return text ? std::atol(text) : otherwise;
}

std::recursive_mutex &plait::fake::lock() {
  static std::recursive_mutex mutex;
  return mutex;
}

CUresult plait::fake::enqueue(CUstream stream, Work work) {
  std::lock_guard guard(lock());
  if (currentGpu() != stream->gpu)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (!stream->records()) {
    push(stream, std::move(work));
    return CUDA_SUCCESS;
  }
  stream->recording->items.push_back({stream, std::move(work)});
  stream->clock[stream] = ++stream->recording->recorded[stream];
  return CUDA_SUCCESS;
}

bool plait::fake::lives(CUstream stream) {
  std::lock_guard guard(lock());
  return !stream || std::find(streams().begin(), streams().end(), stream) !=
                        streams().end();
}

void plait::fake::advanceAll() {
  std::lock_guard guard(lock());
  for (size_t i = 0; i < streams().size(); ++i)
    advance(streams()[i]);
}

int &plait::fake::inFlight(int gpu) {
  static std::map<std::pair<int, int>, int> counts;
  return counts[{gpu, contextOf(gpu)}];
}

bool plait::fake::allocated(const void *address, size_t bytes) {
  std::lock_guard guard(lock());
  return isIn(allocations(), address, bytes);
}

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) {
  *version = int(setting("PLAIT_FAKE_CUDA_VERSION", 13000));
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char **text) {
  *text = "the fake driver objects";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
  *count = deviceCount();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int, CUdevice) {
  std::strcpy(name, "Fake");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                              CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
           : attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
               ? int(setting("PLAIT_FAKE_HOST_NODE", -1))
           : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
               ? int(setting("PLAIT_FAKE_MULTIPROCESSORS", 4))
               : 4;
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(size_t *available, size_t *total) {
  if (currentGpu() < 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard guard(lock());
  *available = *total = setting("PLAIT_FAKE_MEMORY", 1L << 33);
  for (auto [address, bytes] : allocations())
    *available -= std::min(*available, bytes);
  // All GPUs are one to it, and communicators have buffers.
  *available -= std::min(
      *available, countComms() * size_t(setting("PLAIT_FAKE_NCCL_MEMORY", 0)));
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
  if (currentGpu() < 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard guard(lock());
  void *memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(memory, 0xff, bytes);
  allocations()[reinterpret_cast<uintptr_t>(memory)] = bytes;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
  if (currentGpu() < 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard guard(lock());
  allocations().erase(uintptr_t(address));
  release(pointer(address));
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
  if (currentGpu() < 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes > size_t(setting("PLAIT_FAKE_HOST_MEMORY", LONG_MAX)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  // Memory lies next to the core that locks it.
  cpu_set_t cores;
  long core = setting("PLAIT_FAKE_HOST_CORE", -1);
  if (core >= 0 && (sched_getaffinity(0, sizeof(cores), &cores) ||
                    CPU_COUNT(&cores) != 1 || !CPU_ISSET(core, &cores)))
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(lock());
  *memory = std::malloc(bytes);
  locked()[reinterpret_cast<uintptr_t>(*memory)] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void *memory) {
  std::lock_guard guard(lock());
  locked().erase(reinterpret_cast<uintptr_t>(memory));
  release(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void *source, size_t bytes,
                           CUstream stream) {
  if (!allocated(pointer(target), bytes) || stream->records())
    return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, copyWork(target, CUdeviceptr(source), bytes));
}
CUresult cuMemcpyDtoHAsync(void *target, CUdeviceptr source, size_t bytes,
                           CUstream stream) {
  if (!allocated(pointer(source), bytes) || stream->records())
    return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, copyWork(CUdeviceptr(target), source, bytes));
}
CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes,
                       CUstream stream) {
  // Of other memory of the host the call would not return before the copy ends.
  auto isKnown = [&](CUdeviceptr address) {
    std::lock_guard guard(lock());
    return allocated(pointer(address), bytes) ||
           isIn(locked(), pointer(address), bytes);
  };
  if (!isKnown(target) || !isKnown(source))
    return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, copyWork(target, source, bytes));
}
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *given, CUstream stream) {
  CUDA_MEMCPY2D shape = *given;
  for (size_t row : {size_t(0), shape.Height - 1})
    if (!allocated(pointer(shape.srcDevice + row * shape.srcPitch),
                   shape.WidthInBytes) ||
        !allocated(pointer(shape.dstDevice + row * shape.dstPitch),
                   shape.WidthInBytes))
      return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [shape] {
    for (size_t row = 0; row < shape.Height; ++row)
      std::memcpy(pointer(shape.dstDevice + row * shape.dstPitch),
                  pointer(shape.srcDevice + row * shape.srcPitch),
                  shape.WidthInBytes);
    return true;
  });
}
CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t bytes,
                         CUstream stream) {
  if (!allocated(pointer(target), bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [=] {
    std::memset(pointer(target), value, bytes);
    return true;
  });
}
CUresult cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t words,
                          CUstream stream) {
  return value ? CUDA_ERROR_NOT_SUPPORTED
               : cuMemsetD8Async(target, 0, words * 4, stream);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned, int priority) {
  std::lock_guard guard(lock());
  if (currentGpu() < 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  streams().push_back(*stream = new CUstream_st);
  (*stream)->gpu = currentGpu();
  (*stream)->urgent = priority < 0;
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  std::lock_guard guard(lock());
  if (!isHeld(stream->gpu))
    refuse("a stream is destroyed after its context");
  stream->work.clear(); // the object stays: marks refer to it
  std::erase(streams(), stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
  std::lock_guard guard(lock());
  if (stream->records())
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  advance(stream);
  // What cannot go on waits for another rank, whose work then gets its turn.
  for (size_t i = 0; !stream->work.empty() && i < streams().size(); ++i) {
    advance(streams()[i]);
    advance(stream);
  }
  return stream->work.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamSynchronize(CUstream stream) {
  // Who only yields takes the processors from the ranks that it waits for, and
  // from the tests beside.
  constexpr int soon = 8;
  CUresult result = cuStreamQuery(stream);
  for (int asked = 1; result == CUDA_ERROR_NOT_READY; ++asked) {
    if (asked < soon)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    result = cuStreamQuery(stream);
  }
  return result;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  if (currentGpu() < 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  *event = new CUevent_st;
  (*event)->gpu = currentGpu();
  (*event)->timed = !(flags & CU_EVENT_DISABLE_TIMING);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  if (!isHeld(event->gpu))
    refuse("an event is destroyed after its context");
  delete event;
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  std::lock_guard guard(lock());
  if (event->gpu != stream->gpu)
    return CUDA_ERROR_INVALID_HANDLE;
  event->recording = stream->records() ? stream->recording : nullptr;
  event->mark = nullptr;
  event->stream = stream;
  event->clock = stream->clock;
  if (event->recording) {
    event->recorded = event->recording->marks++;
    event->recording->items.push_back({stream, nullptr, event->recorded});
    return CUDA_SUCCESS;
  }
  event->mark = mark(stream);
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  std::lock_guard guard(lock());
  if (event->recording)
    return CUDA_ERROR_CAPTURED_EVENT;
  if (!event->mark || reach(event->mark))
    return CUDA_SUCCESS;
  // As in cuStreamQuery(), but no further than the event on its own stream.
  for (size_t i = 0; !event->mark->reached && i < streams().size(); ++i) {
    if (streams()[i] != event->mark->stream)
      advance(streams()[i]);
    reach(event->mark);
  }
  return event->mark->reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
#undef cuEventElapsedTime // as drivers before CUDA 12.8 export it
CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
  std::lock_guard guard(lock());
  if (!begin->timed || !end->timed || begin->gpu != end->gpu)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!begin->mark || !end->mark || !begin->mark->reached ||
      !end->mark->reached)
    return CUDA_ERROR_NOT_READY;
  if (std::getenv(gemmsVariable) || std::getenv(attentionVariable)) {
    *milliseconds = float(end->mark->gemms - begin->mark->gemms);
    return CUDA_SUCCESS;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->mark->when -
                                                           begin->mark->when)
                      .count();
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  std::lock_guard guard(lock());
  if (loses(stream, event))
    return CUDA_SUCCESS;
  if (event->recording) {
    if (event->recording->ended)
      return CUDA_ERROR_CAPTURED_EVENT;
    if (stream->records() && stream->recording != event->recording)
      return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    if (!stream->records())
      stream->clock.clear();
    stream->recording = event->recording;
    for (auto [other, time] : event->clock)
      stream->clock[other] = std::max(stream->clock[other], time);
    stream->recording->items.push_back({stream, nullptr, -1, event->recorded});
    return CUDA_SUCCESS;
  }
  if (stream->records() && event->mark)
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  if (!event->mark)
    return CUDA_SUCCESS;
  wait(stream, event->mark);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
  std::lock_guard guard(lock());
  stream->recording = std::make_shared<Graph>();
  stream->clock.clear();
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  std::lock_guard guard(lock());
  stream->recording->ended = true;
  auto users = std::move(stream->recording->users);
  // The stream must have waited for all that was recorded.
  for (auto [other, time] : stream->recording->recorded)
    if (stream->clock[other] < time)
      return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = new CUgraph_st{stream->recording, std::move(users)};
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiate(CUgraphExec *executable, CUgraph graph,
                            unsigned long long flags) {
  // Without the flag a graph forgets which of its streams were urgent.
  for (const Graph::Item &item : graph->graph->items)
    if (item.stream->urgent &&
        !(flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY))
      return CUDA_ERROR_INVALID_VALUE;
  *executable = new CUgraphExec_st{graph->graph, graph->users, {}};
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  delete graph;
  return CUDA_SUCCESS;
}
/// Waits for what has been launched, as the driver does (seen with 580).
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  constexpr auto patience = std::chrono::seconds(2);
  auto since = std::chrono::steady_clock::now();
  auto isDone = [&] {
    std::lock_guard guard(lock());
    advanceAll();
    return std::all_of(
        executable->streams.begin(), executable->streams.end(),
        [](const auto &entry) { return entry.second->work.empty(); });
  };
  while (!isDone()) {
    if (std::chrono::steady_clock::now() - since > patience)
      refuse("a recorded step is dropped that runs for ever");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::lock_guard guard(lock());
  delete executable;
  return CUDA_SUCCESS;
}
/// A stream for what a graph has recorded from `recorded`.
static CUstream runnerOf(CUstream recorded) {
  streams().push_back(new CUstream_st);
  streams().back()->urgent = recorded->urgent;
  streams().back()->gpu = recorded->gpu;
  return streams().back();
}
static uint64_t graphLaunches = 0;
/// For tests.
uint64_t plaitFakeGraphLaunches() {
  std::lock_guard guard(lock());
  return graphLaunches;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  std::lock_guard guard(lock());
  ++graphLaunches;
  const Graph &graph = *executable->graph;
  std::shared_ptr<Mark> begin = mark(stream);
  std::vector<std::shared_ptr<Mark>> marks(graph.marks);
  for (const Graph::Item &item : graph.items) {
    CUstream &runner = executable->streams[item.stream];
    if (!runner)
      runner = runnerOf(item.stream);
  }
  for (auto [recorded, runner] : executable->streams)
    wait(runner, begin);
  for (const Graph::Item &item : graph.items) {
    CUstream runner = executable->streams[item.stream];
    if (item.work)
      push(runner, item.work);
    else if (item.mark >= 0)
      marks[item.mark] = mark(runner);
    else
      wait(runner, marks[item.waits]);
  }
  for (auto [recorded, runner] : executable->streams)
    wait(stream, mark(runner));
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
  return enqueue(stream, [=] {
    function(data);
    return true;
  });
}
} // extern "C"
