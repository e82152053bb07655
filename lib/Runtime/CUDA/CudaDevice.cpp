//===- CudaDevice.cpp - Executes steps on a GPU ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaDevice.h"

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
  CUdeviceptr memory = 0;
  if (Status status =
          driver.check(driver.cuMemAlloc(&memory, bytes), "cuMemAlloc");
      !status.ok())
    return fail(options.context->describe(), ": cannot allocate an arena of ",
                bytes, " bytes: ", status.message());
  result->memory = reinterpret_cast<std::byte *>(memory);
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
  const Driver &driver = queue->driver;
  if (memory) // waits for the work that uses it
    driver.cuMemFree(reinterpret_cast<CUdeviceptr>(memory));
  if (staging)
    driver.cuMemFreeHost(staging);
}

Status CudaDevice::write(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
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
  if (!products) {
    auto made = CublasProducts::create(*queue,
                                       {memory + program.library_workspace(),
                                        program.library_workspace_bytes()},
                                       tf32);
    if (!made.ok())
      return made.status();
    products = std::move(*made);
  }
  return products->prepare(step);
}

Status CudaDevice::kernel(const fb::KernelStep &step, std::byte *const *args,
                          const int64_t *scalars) {
  if (step.extent() == 0)
    return Status::success();
  size_t argCount = step.args() ? step.args()->size() : 0;
  size_t scalarCount = step.scalars() ? step.scalars()->size() : 0;
  // The largest kernel of the first step makes the room for all later ones.
  params.clear();
  for (size_t i = 0; i < argCount; ++i)
    params.push_back(const_cast<std::byte **>(&args[i]));
  for (size_t i = 0; i < scalarCount; ++i)
    params.push_back(const_cast<int64_t *>(&scalars[i]));
  const fb::Kernel &kernel = *plan.kernels()->Get(step.kernel());
  return queue->launch((*kernels)[step.kernel()],
                       blocksOf(kernel, step.extent()), kernel.block_threads(),
                       params.data());
}

Status CudaDevice::gemm(uint32_t prepared, const std::byte *a,
                        const std::byte *b, std::byte *c, bool add) {
  return products->run(prepared, a, b, c, add);
}

Status CudaDevice::copy(std::byte *target, const std::byte *source,
                        uint64_t bytes) {
  return queue->copy(target, source, bytes);
}

Status CudaDevice::fillZero(std::byte *target, uint64_t bytes) {
  return queue->fillZero(target, bytes);
}
