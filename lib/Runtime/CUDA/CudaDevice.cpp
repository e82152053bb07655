//===- CudaDevice.cpp - Executes steps on a GPU ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaDevice.h"

#include "plait/Plan/Defaults.h"

#include <algorithm>
#include <cstring>

using namespace plait;
using namespace plait::runtime;

/// Enough for the inputs of most steps to be written without waiting.
static constexpr uint64_t stagingBytes = 8 << 20;

Result<std::unique_ptr<CudaDevice>>
CudaDevice::create(const fb::Plan &plan, const fb::Program &program,
                   const Options &options) {
  std::unique_ptr<CudaDevice> result(new CudaDevice(plan, program, options));
  auto stream = CudaStream::create(options.context, options.recording);
  if (!stream.ok())
    return stream.status();
  result->queue = std::move(*stream);
  const Driver &driver = options.context->driver;
  uint64_t bytes = std::max<uint64_t>(program.arena_bytes(), 1);
  auto memory =
      DeviceMemory::allocate(options.context, bytes, "an arena", options.nccl);
  if (!memory.ok())
    return memory.status();
  result->owned = *memory;
  result->memory = (*memory)->data();
  auto forked = CudaEvent::create(driver);
  if (!forked.ok())
    return forked.status();
  result->forked = std::move(*forked);
  void *staging = nullptr;
  PLAIT_RETURN_IF_ERROR(driver.check(
      driver.cuMemHostAlloc(&staging, stagingBytes, 0), "cuMemHostAlloc"));
  result->staging = static_cast<std::byte *>(staging);
  PLAIT_RETURN_IF_ERROR(result->queue->fillZero(result->memory, bytes));
  PLAIT_RETURN_IF_ERROR(result->queue->synchronize());
  return result;
}

CudaDevice::~CudaDevice() {
  if (!queue || !queue->context->use().ok())
    return;
  if (staging) // waits for the work that uses it
    queue->driver.cuMemFreeHost(staging);
}

Status CudaDevice::write(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // What has been staged is read when the stream gets there: its room is
    // used again only after that.
    if (staged == stagingBytes) {
      PLAIT_RETURN_IF_ERROR(queue->synchronize());
      staged = 0;
    }
    uint64_t size = std::min<uint64_t>(bytes.size(), stagingBytes - staged);
    std::memcpy(staging + staged, bytes.data(), size);
    PLAIT_RETURN_IF_ERROR(
        queue->driver.check(queue->driver.cuMemcpyHtoDAsync(
                                reinterpret_cast<CUdeviceptr>(memory + offset),
                                staging + staged, size, queue->handle()),
                            "cuMemcpyHtoDAsync"));
    staged += size;
    offset += size;
    bytes = bytes.subspan(size);
  }
  return Status::success();
}

Status CudaDevice::read(uint64_t offset, std::span<std::byte> bytes) {
  // Nothing staged is needed any more once the stream has caught up.
  PLAIT_RETURN_IF_ERROR(queue->synchronize());
  staged = 0;
  while (!bytes.empty()) {
    uint64_t size = std::min<uint64_t>(bytes.size(), stagingBytes);
    PLAIT_RETURN_IF_ERROR(queue->driver.check(
        queue->driver.cuMemcpyDtoHAsync(
            staging, reinterpret_cast<CUdeviceptr>(memory + offset), size,
            queue->handle()),
        "cuMemcpyDtoHAsync"));
    PLAIT_RETURN_IF_ERROR(queue->synchronize());
    std::memcpy(bytes.data(), staging, size);
    offset += size;
    bytes = bytes.subspan(size);
  }
  return Status::success();
}

Result<uint32_t> CudaDevice::prepareGemm(const fb::GemmStep &step) {
  if (!gemms) {
    auto made = CublasGemms::create(*queue, libraryWorkspace(), tf32);
    if (!made.ok())
      return made.status();
    gemms = std::move(*made);
  }
  return gemms->prepare(step);
}

Result<uint32_t> CudaDevice::prepareAttention(const fb::AttentionStep &step,
                                              AttentionBegin begin) {
  // cuDNN draws other masks than the ones that are meant.
  if (step.dropout())
    return fail("GPUs do not compute attention steps with dropout");
  if (step.starts())
    return fail("GPUs do not compute attention steps within documents");
  if (!attentions) {
    auto made = createCudaAttention(*queue, libraryWorkspace());
    if (!made.ok())
      return made.status();
    attentions = std::move(*made);
  }
  return attentions->prepare(step, begin.query);
}

Status CudaDevice::attention(uint32_t prepared,
                             const AttentionOperands &operands) {
  return attentions->run(prepared, operands);
}

Status CudaDevice::kernel(const fb::KernelStep &step, std::byte *const *args,
                          const int64_t *scalars) {
  if (step.extent() == 0)
    return Status::success();
  // The largest kernel of the first step makes the room for all later ones.
  params.clear();
  for (size_t i = 0; i < plan::length(step.args()); ++i)
    params.push_back(const_cast<std::byte **>(&args[i]));
  for (size_t i = 0; i < plan::length(step.scalars()); ++i)
    params.push_back(const_cast<int64_t *>(&scalars[i]));
  const fb::Kernel &kernel = *plan.kernels()->Get(step.kernel());
  return queue->launch((*kernels)[step.kernel()],
                       blocksOf(kernel, step.extent()), kernel.block_threads(),
                       params.data());
}

Status CudaDevice::gemm(uint32_t prepared, const GemmOperands &operands,
                        bool add) {
  return gemms->run(prepared, operands, add);
}

Status CudaDevice::copy(std::byte *target, const std::byte *source,
                        uint64_t bytes) {
  return queue->copy(target, source, bytes);
}

Status CudaDevice::fillZero(std::byte *target, uint64_t bytes) {
  return queue->fillZero(target, bytes);
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

static Status makeCudaEvents(const Driver &driver, size_t count, bool timed,
                             std::vector<CudaEvent> &events) {
  while (events.size() < count) {
    auto event = CudaEvent::create(driver, timed);
    if (!event.ok())
      return event.status();
    events.push_back(std::move(*event));
  }
  return Status::success();
}

Result<uint32_t> CudaDevice::addStream() {
  auto stream = CudaStream::create(queue->context, queue->recording,
                                   CudaStream::Urgent::Yes);
  if (!stream.ok())
    return stream.status();
  auto joined = CudaEvent::create(queue->driver);
  if (!joined.ok())
    return joined.status();
  others.push_back({std::move(*stream), std::move(*joined)});
  return static_cast<uint32_t>(others.size());
}

Status CudaDevice::makeEvents(uint32_t count) {
  return makeCudaEvents(queue->driver, count, /*timed=*/false, events);
}

Status CudaDevice::record(uint32_t event, uint32_t number) {
  return stream(number).record(events[event]);
}

Status CudaDevice::wait(uint32_t event, uint32_t number) {
  return stream(number).wait(events[event].handle());
}

Status CudaDevice::fork() {
  if (!stamps.empty()) {
    PLAIT_RETURN_IF_ERROR(queue->synchronize());
    // The GPU's clock and the host's are tied together while nothing runs.
    PLAIT_RETURN_IF_ERROR(queue->record(began));
    beganAt = std::chrono::steady_clock::now();
  }
  if (others.empty())
    return Status::success();
  PLAIT_RETURN_IF_ERROR(queue->record(forked));
  for (Stream &other : others)
    PLAIT_RETURN_IF_ERROR(other.stream->wait(forked.handle()));
  return Status::success();
}

Status CudaDevice::join() {
  for (Stream &other : others) {
    PLAIT_RETURN_IF_ERROR(other.stream->record(other.joined));
    PLAIT_RETURN_IF_ERROR(queue->wait(other.joined.handle()));
  }
  return Status::success();
}

Status CudaDevice::makeStamps(uint32_t count) {
  auto first = CudaEvent::create(queue->driver, /*timed=*/true);
  if (!first.ok())
    return first.status();
  began = std::move(*first);
  return makeCudaEvents(queue->driver, count, /*timed=*/true, stamps);
}

Status CudaDevice::stamp(uint32_t index, uint32_t number) {
  return stream(number).record(stamps[index]);
}

Result<std::chrono::steady_clock::time_point>
CudaDevice::readStamp(uint32_t index) {
  float milliseconds = 0;
  PLAIT_RETURN_IF_ERROR(queue->driver.check(
      queue->driver.cuEventElapsedTime(&milliseconds, began.handle(),
                                       stamps[index].handle()),
      "cuEventElapsedTime"));
  std::chrono::duration<double, std::milli> passed(milliseconds);
  return beganAt +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             passed);
}
