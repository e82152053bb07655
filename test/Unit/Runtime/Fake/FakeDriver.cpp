//===- FakeDriver.cpp - libcuda, on the CPU -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CUDA/CollectiveKernels.h"
#include "FakeStreams.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <sstream>
#include <string>
#include <thread>

using namespace plait::fake;
using plait::runtime::ReduceParams;

/// A kernel: compiled for the CPU, or one of the runtime's own reductions.
struct CUfunc_st {
  using Code = void (*)(char *const *, const int64_t *, int64_t, int64_t);
  Code code = nullptr;
  size_t args = 0, scalars = 0;
  int64_t extent = 0, each = 1;
  void (*reduction)(const ReduceParams &params) = nullptr;
};

struct CUmod_st {
  void *library = nullptr;
  std::map<std::string, CUfunc_st> functions;
};

namespace {

std::map<uintptr_t, size_t> &allocations() {
  static std::map<uintptr_t, size_t> map;
  return map;
}

std::vector<CUstream> &streams() {
  static std::vector<CUstream> all;
  return all;
}

long setting(const char *name, long otherwise) {
  const char *text = std::getenv(name);
  return text ? std::atol(text) : otherwise;
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
    return made->reached = true;
  });
  return made;
}

void wait(CUstream stream, const std::shared_ptr<Mark> &mark) {
  push(stream, [mark] { return reach(mark); });
}

/// Whether `stream` ignores `event`.
bool loses(CUstream stream, CUevent event) {
  const char *which = std::getenv("PLAIT_FAKE_LOSE");
  return which && event->stream && event->stream->urgent != stream->urgent &&
         stream->urgent == (std::string(which) == "urgent");
}

Work copyWork(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  return [=] {
    std::memmove(pointer(target), pointer(source), bytes);
    return true;
  };
}

template <typename Element, bool maximum>
void reduce(const ReduceParams &params) {
  for (int64_t i = 0; i < params.outer * params.chunk; ++i) {
    int64_t row = i / params.chunk, column = i % params.chunk;
    int64_t from = row * params.inputStride + column;
    auto input = [&](int member) -> float {
      return static_cast<const Element *>(params.inputs[member])[from];
    };
    float value = input(0);
    for (int j = 1; j < params.inputCount; ++j) {
      float next = input(j);
      value = !maximum ? value + next : value < next ? next : value;
    }
    for (int j = 0; j < params.outputCount; ++j)
      static_cast<Element *>(
          params.outputs[j])[row * params.outputStride + column] =
          Element(value);
  }
}

} // namespace

std::recursive_mutex &plait::fake::lock() {
  static std::recursive_mutex mutex;
  return mutex;
}

CUresult plait::fake::enqueue(CUstream stream, Work work) {
  std::lock_guard guard(lock());
  if (!stream->records()) {
    push(stream, std::move(work));
    return CUDA_SUCCESS;
  }
  stream->recording->items.push_back({stream, std::move(work)});
  stream->clock[stream] = ++stream->recording->recorded[stream];
  return CUDA_SUCCESS;
}

bool plait::fake::allocated(const void *address, size_t bytes) {
  std::lock_guard guard(lock());
  auto begin = reinterpret_cast<uintptr_t>(address);
  auto next = allocations().upper_bound(begin);
  if (next == allocations().begin())
    return false;
  --next;
  return begin + bytes <= next->first + next->second;
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
                                                                       : 4;
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int *can, CUdevice, CUdevice) {
  *can = 1;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  *context = reinterpret_cast<CUcontext>(intptr_t(device) + 1);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) { return CUDA_SUCCESS; }

/// An image is a line with the path of a shared object, and a line for each
/// kernel: its name, the function behind it, the numbers of its arguments and
/// scalars, its extent and the indices of one block.
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned,
                            CUjit_option *, void **) {
  std::istringstream text(static_cast<const char *>(image));
  std::string word, path;
  auto made = std::make_unique<CUmod_st>();
  text >> word;
  if (word == "plait-fake") {
    text >> path;
    made->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!made->library)
      return CUDA_ERROR_INVALID_PTX;
    std::string name, code;
    CUfunc_st function;
    while (text >> name >> code >> function.args >> function.scalars >>
           function.extent >> function.each) {
      function.code =
          reinterpret_cast<CUfunc_st::Code>(dlsym(made->library, code.c_str()));
      if (function.code)
        made->functions[name] = function;
    }
  } else if (std::strstr(static_cast<const char *>(image), ".version")) {
    using plait::BFloat16;
    auto &functions = made->functions;
    functions[PLAIT_REDUCE_SUM].reduction = reduce<float, false>;
    functions[PLAIT_REDUCE_MAX].reduction = reduce<float, true>;
    functions[PLAIT_REDUCE_SUM_BF16].reduction = reduce<BFloat16, false>;
    functions[PLAIT_REDUCE_MAX_BF16].reduction = reduce<BFloat16, true>;
  } else {
    return CUDA_ERROR_INVALID_PTX;
  }
  *module = made.release();
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  delete module;
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name) {
  auto found = module->functions.find(name);
  if (found == module->functions.end())
    return CUDA_ERROR_NOT_FOUND;
  *function = &found->second;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *available, size_t *total) {
  std::lock_guard guard(lock());
  *available = *total = setting("PLAIT_FAKE_MEMORY", 1L << 33);
  for (auto [address, bytes] : allocations())
    *available -= std::min(*available, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
  std::lock_guard guard(lock());
  void *memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(memory, 0xff, bytes);
  allocations()[reinterpret_cast<uintptr_t>(memory)] = bytes;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
  std::lock_guard guard(lock());
  allocations().erase(uintptr_t(address));
  std::free(pointer(address));
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
  *memory = std::malloc(bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void *memory) {
  std::free(memory);
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
  if (!allocated(pointer(target), bytes) || !allocated(pointer(source), bytes))
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
  streams().push_back(*stream = new CUstream_st);
  (*stream)->urgent = priority < 0;
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  std::lock_guard guard(lock());
  stream->work.clear(); // the object stays: marks refer to it
  std::erase(streams(), stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
  std::lock_guard guard(lock());
  advance(stream);
  // What cannot go on waits for another rank, whose work then gets its turn.
  for (size_t i = 0; !stream->work.empty() && i < streams().size(); ++i) {
    advance(streams()[i]);
    advance(stream);
  }
  return stream->work.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamSynchronize(CUstream stream) {
  while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
    std::this_thread::yield();
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned) {
  *event = new CUevent_st;
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  delete event;
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  std::lock_guard guard(lock());
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
CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
  std::lock_guard guard(lock());
  if (!begin->mark || !end->mark || !begin->mark->reached ||
      !end->mark->reached)
    return CUDA_ERROR_NOT_READY;
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
  // The stream must have waited for all that was recorded.
  for (auto [other, time] : stream->recording->recorded)
    if (stream->clock[other] < time)
      return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = new CUgraph_st{stream->recording};
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiate(CUgraphExec *executable, CUgraph graph,
                            unsigned long long) {
  *executable = new CUgraphExec_st{graph->graph, {}};
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  delete graph;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  for (auto [recorded, runner] : executable->streams)
    cuStreamDestroy(runner);
  delete executable;
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  std::lock_guard guard(lock());
  const Graph &graph = *executable->graph;
  std::shared_ptr<Mark> begin = mark(stream);
  std::vector<std::shared_ptr<Mark>> marks(graph.marks);
  for (const Graph::Item &item : graph.items) {
    CUstream &runner = executable->streams[item.stream];
    if (!runner)
      cuStreamCreateWithPriority(&runner, 0, -int(item.stream->urgent));
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
CUresult cuLaunchKernel(CUfunction function, unsigned blocks, unsigned,
                        unsigned, unsigned threads, unsigned, unsigned,
                        unsigned, CUstream stream, void **params, void **) {
  if (blocks == 0 || threads == 0 || threads > 1024)
    return CUDA_ERROR_INVALID_VALUE;
  if (!function->code)
    return enqueue(stream, [params = *static_cast<ReduceParams *>(params[0]),
                            reduction = function->reduction] {
      reduction(params);
      return true;
    });
  std::vector<char *> args;
  std::vector<int64_t> scalars;
  for (size_t i = 0; i < function->args; ++i)
    args.push_back(*static_cast<char **>(params[i]));
  for (size_t i = 0; i < function->scalars; ++i)
    scalars.push_back(*static_cast<int64_t *>(params[function->args + i]));
  for (char *arg : args)
    if (!allocated(arg, 0))
      return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [=, function = *function] {
    for (int64_t block = 0; block < blocks; ++block)
      function.code(args.data(), scalars.data(), block * function.each,
                    std::min(function.extent, (block + 1) * function.each));
    return true;
  });
}

} // extern "C"
