//===- CudaStream.cpp - Work in order on a device -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaStream.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;

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

Status CudaContext::use() const {
  return driver.check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

Status CudaContext::accessPeer(const CudaContext &other) const {
  int can = 0;
  PLAIT_RETURN_IF_ERROR(
      driver.check(driver.cuDeviceCanAccessPeer(&can, device, other.device),
                   "cuDeviceCanAccessPeer"));
  if (!can)
    return fail(describe(), " cannot reach the memory of ", other.describe(),
                "; use --devices 1, or one process a rank");
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

/// As many blocks as fill the GPU some times over: kernels of the runtime loop
/// over what is left.
uint64_t CudaContext::blocksFor(int64_t count, int64_t threads) const {
  int64_t needed = (count + threads - 1) / threads;
  return std::clamp<int64_t>(needed, 1, 8 * std::max(1, multiprocessors));
}

std::string CudaContext::describe() const {
  return "GPU " + std::to_string(ordinal) + " (" + name + ")";
}

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

Result<std::unique_ptr<CudaStream>>
CudaStream::create(std::shared_ptr<CudaContext> context,
                   std::shared_ptr<std::mutex> recording, Urgent urgent) {
  PLAIT_RETURN_IF_ERROR(context->use());
  std::unique_ptr<CudaStream> result(
      new CudaStream(std::move(context), std::move(recording)));
  const Driver &driver = result->driver;
  // Small kernels of collectives go before the large ones that run beside
  // them.
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

static CUdeviceptr address(const std::byte *pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

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

Status CudaStream::wait(CUevent event) {
  std::lock_guard lock(*recording);
  return driver.check(driver.cuStreamWaitEvent(stream, event, 0),
                      "cuStreamWaitEvent");
}

Result<bool> CudaStream::idle() const {
  CUresult result = driver.cuStreamQuery(stream);
  // An error here is one of any kernel before: calls only enqueue.
  if (result == CUDA_ERROR_NOT_READY)
    return false;
  PLAIT_RETURN_IF_ERROR(driver.check(result, "the GPU failed"));
  return true;
}

Status CudaStream::synchronize() const {
  return driver.check(driver.cuStreamSynchronize(stream), "the GPU failed");
}
