//===- CudaStream.cpp - Work in order on a device -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The thin layer over the driver's contexts, events and streams that the rest
// of the CUDA runtime is written in: every call is checked and every object has
// an owner. What steps do with a stream takes its lock `recording`, as
// streams that are recorded into one graph add to it from several threads,
// which CUDA does not allow at the same time.
//
//===----------------------------------------------------------------------===//

#include "CudaStream.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;

/// The primary context, which libraries that use CUDA's runtime use as well, so
/// that memory and streams are shared with them. It is counted: retained here,
/// released by the destructor.
Result<std::shared_ptr<CudaContext>> CudaContext::create(const Driver &driver,
                                                         int ordinal) {
  std::shared_ptr<CudaContext> result(new CudaContext(driver, ordinal));
  PLAIT_RETURN_IF_ERROR(driver.check(
      driver.cuDeviceGet(&result->device, ordinal), "cuDeviceGet"));
  char name[256] = {};
  PLAIT_RETURN_IF_ERROR(driver.check(
      driver.cuDeviceGetName(name, sizeof(name) - 1, result->device),
      "cuDeviceGetName"));
  result->name = name;
  const std::pair<CUdevice_attribute, int *> attributes[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &result->major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &result->minor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &result->multiprocessors}};
  for (auto [attribute, value] : attributes)
    PLAIT_RETURN_IF_ERROR(driver.check(
        driver.cuDeviceGetAttribute(value, attribute, result->device),
        "cuDeviceGetAttribute"));
  // The first call that takes memory of the GPU, hence the one that names it.
  if (Status status = driver.check(
          driver.cuDevicePrimaryCtxRetain(&result->context, result->device),
          "cuDevicePrimaryCtxRetain");
      !status.ok())
    return fail(result->describe(), ": ", status.message());
  return result;
}

CudaContext::~CudaContext() {
  if (context)
    driver.cuDevicePrimaryCtxRelease(device);
}

/// A context is current for a thread, not a process: every thread that calls
/// the driver for this GPU has to call this first.
Status CudaContext::use() const {
  return driver.check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

/// One direction. Asking again for the same pair is fine.
Status CudaContext::accessPeer(const CudaContext &other) const {
  int can = 0;
  PLAIT_RETURN_IF_ERROR(
      driver.check(driver.cuDeviceCanAccessPeer(&can, device, other.device),
                   "cuDeviceCanAccessPeer"));
  if (!can)
    return fail(describe(), " cannot reach the memory of ", other.describe(),
                "; use `devices` 1, or one process a rank");
  PLAIT_RETURN_IF_ERROR(use());
  CUresult result = driver.cuCtxEnablePeerAccess(other.context, 0);
  if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    return Status::success();
  return driver.check(result, "cuCtxEnablePeerAccess");
}

Result<CudaContext::Memory> CudaContext::memory() const {
  size_t available = 0, total = 0;
  PLAIT_RETURN_IF_ERROR(use());
  PLAIT_RETURN_IF_ERROR(
      driver.check(driver.cuMemGetInfo(&available, &total), "cuMemGetInfo"));
  return Memory{available, total};
}

/// Returns as many blocks as fill the GPU some times over: kernels of the
/// runtime loop over what is left.
uint64_t CudaContext::blocksFor(int64_t count, int64_t threads) const {
  int64_t needed = (count + threads - 1) / threads;
  return std::clamp<int64_t>(needed, 1, 8 * std::max(1, multiprocessors));
}

std::string CudaContext::describe() const {
  return "GPU " + std::to_string(ordinal) + " (" + name + ")";
}

/// Timing is off where nobody asks for it: an event with a time costs the GPU a
/// write, and those that order streams are recorded all the time.
Result<CudaEvent> CudaEvent::create(const Driver &driver, bool timed) {
  CudaEvent result;
  result.driver = &driver;
  PLAIT_RETURN_IF_ERROR(driver.check(
      driver.cuEventCreate(&result.event,
                           timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING),
      "cuEventCreate"));
  return result;
}

CudaEvent::~CudaEvent() {
  if (event)
    driver->cuEventDestroy(event);
}

/// Returns whether work is done, by what the driver answers. An error is one of
/// any kernel before: calls only enqueue.
static Result<bool> isDone(const Driver &driver, CUresult answer) {
  if (answer == CUDA_ERROR_NOT_READY)
    return false;
  PLAIT_RETURN_IF_ERROR(driver.check(answer, "the GPU failed"));
  return true;
}

Result<bool> CudaEvent::happened() const {
  return isDone(*driver, driver->cuEventQuery(event));
}

/// Non-blocking: a stream must not wait for the default stream of the process,
/// which libraries may use.
Result<std::unique_ptr<CudaStream>>
CudaStream::create(std::shared_ptr<CudaContext> context,
                   std::shared_ptr<std::mutex> recording, Urgent urgent) {
  PLAIT_RETURN_IF_ERROR(context->use());
  std::unique_ptr<CudaStream> result(
      new CudaStream(std::move(context), std::move(recording)));
  const Driver &driver = result->driver;
  // Small kernels of collectives go before the large ones that run beside
  // them.
  // Numerically, the most urgent priority is the least number, and CUDA calls
  // it the greatest.
  int least = 0, greatest = 0;
  PLAIT_RETURN_IF_ERROR(
      driver.check(driver.cuCtxGetStreamPriorityRange(&least, &greatest),
                   "cuCtxGetStreamPriorityRange"));
  PLAIT_RETURN_IF_ERROR(
      driver.check(driver.cuStreamCreateWithPriority(
                       &result->stream, CU_STREAM_NON_BLOCKING,
                       urgent == Urgent::Yes ? greatest : least),
                   "cuStreamCreateWithPriority"));
  return result;
}

CudaStream::~CudaStream() {
  if (stream)
    driver.cuStreamDestroy(stream);
}

/// `params` are the addresses of the kernel's arguments, which the driver
/// copies before it returns. A failure of the kernel itself shows later, see
/// idle().
Status CudaStream::launch(CUfunction function, uint64_t blocks,
                          unsigned threads, void **params) {
  constexpr uint64_t maxBlocks = 0x7fffffff; // along x
  if (blocks > maxBlocks)
    return fail("a launch of ", blocks, " blocks, allowed are ", maxBlocks);
  std::lock_guard lock(*recording);
  return driver.check(driver.cuLaunchKernel(function, unsigned(blocks), 1, 1,
                                            threads, 1, 1, 0, stream, params,
                                            nullptr),
                      "cuLaunchKernel");
}

/// The driver's handles of memory are integers.
static CUdeviceptr address(const std::byte *pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

/// Within a GPU, between GPUs, or from and to the host: addresses are unified,
/// so that the driver finds out which.
Status CudaStream::copy(std::byte *target, const std::byte *source,
                        uint64_t bytes) {
  if (bytes == 0)
    return Status::success();
  std::lock_guard lock(*recording);
  return driver.check(
      driver.cuMemcpyAsync(address(target), address(source), bytes, stream),
      "cuMemcpyAsync");
}

Status CudaStream::copyRows(std::byte *target, uint64_t targetPitch,
                            const std::byte *source, uint64_t sourcePitch,
                            uint64_t bytes, uint64_t rows) {
  // Without gaps on both sides it is one run.
  if (rows == 1 || (bytes == targetPitch && bytes == sourcePitch))
    return copy(target, source, bytes * rows);
  CUDA_MEMCPY2D shape = {};
  shape.srcMemoryType = shape.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  shape.srcDevice = address(source);
  shape.dstDevice = address(target);
  shape.srcPitch = sourcePitch;
  shape.dstPitch = targetPitch;
  shape.WidthInBytes = bytes;
  shape.Height = rows;
  std::lock_guard lock(*recording);
  return driver.check(driver.cuMemcpy2DAsync(&shape, stream),
                      "cuMemcpy2DAsync");
}

Status CudaStream::copyRows(const Rows<std::byte> &target,
                            const Rows<const std::byte> &source, uint64_t bytes,
                            int64_t outer, int64_t middle) {
  // Rows at one distance are one copy.
  if (middle == 1)
    return copyRows(target.data, target.outer * bytes, source.data,
                    source.outer * bytes, bytes, outer);
  for (int64_t o = 0; o < outer; ++o)
    PLAIT_RETURN_IF_ERROR(copyRows(target.data + o * target.outer * bytes,
                                   target.middle * bytes,
                                   source.data + o * source.outer * bytes,
                                   source.middle * bytes, bytes, middle));
  return Status::success();
}

Status CudaStream::fillZero(std::byte *target, uint64_t bytes) {
  if (bytes == 0)
    return Status::success();
  std::lock_guard lock(*recording);
  // Words where possible: bytes are written more slowly.
  bool words = (address(target) | bytes) % sizeof(uint32_t) == 0;
  return driver.check(
      words ? driver.cuMemsetD32Async(address(target), 0,
                                      bytes / sizeof(uint32_t), stream)
            : driver.cuMemsetD8Async(address(target), 0, bytes, stream),
      "cuMemsetAsync");
}

Status CudaStream::record(const CudaEvent &event) {
  std::lock_guard lock(*recording);
  return driver.check(driver.cuEventRecord(event.handle(), stream),
                      "cuEventRecord");
}

/// Waits for what the event's last record() covers at the time of this call;
/// one that has never been recorded counts as happened. So the host has to
/// order record() before wait(), also across threads.
Status CudaStream::wait(CUevent event) {
  std::lock_guard lock(*recording);
  return driver.check(driver.cuStreamWaitEvent(stream, event, 0),
                      "cuStreamWaitEvent");
}

Result<bool> CudaStream::idle() const {
  // Without the lock: a stream that is being recorded is never asked.
  return isDone(driver, driver.cuStreamQuery(stream));
}

Status CudaStream::synchronize() const {
  return driver.check(driver.cuStreamSynchronize(stream), "the GPU failed");
}
