//===- DeviceMemory.cpp - Memory of a GPU ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Memory of a GPU for which somebody is responsible: an arena, scratch memory
// of a collective. NCCL's own allocator gives memory that a window of all ranks
// can be made of, which cuMemAlloc does not; it is taken where NCCL will use
// the memory and has such a function.
//
//===----------------------------------------------------------------------===//

#include "DeviceMemory.h"

using namespace plait;
using namespace plait::runtime;

/// Failing is likely here, if anywhere: the message says on which GPU, how many
/// bytes and what for.
Result<std::shared_ptr<DeviceMemory>>
DeviceMemory::allocate(std::shared_ptr<CudaContext> context, uint64_t bytes,
                       const char *what, const Nccl *nccl) {
  std::shared_ptr<DeviceMemory> result(
      new DeviceMemory(std::move(context), bytes));
  if (bytes == 0)
    return result;
  PLAIT_RETURN_IF_ERROR(result->context->use());
  const Driver &driver = result->context->driver;
  void *memory = nullptr;
  Status status = Status::success();
#ifdef PLAIT_NCCL_REGISTRATION
  if (nccl && nccl->ncclMemAlloc) {
    status = nccl->check(nccl->ncclMemAlloc(&memory, bytes), "ncclMemAlloc");
    result->nccl = nccl;
  } else
#endif
    status = driver.check(
        driver.cuMemAlloc(reinterpret_cast<CUdeviceptr *>(&memory), bytes),
        "cuMemAlloc");
  if (!status.ok())
    return fail(result->context->describe(), ": cannot allocate ", bytes,
                " bytes for ", what, ": ", status.message());
  result->memory = static_cast<std::byte *>(memory);
  return result;
}

/// Any thread may be the last one to hold it, hence use().
DeviceMemory::~DeviceMemory() {
  if (!memory || !context->use().ok())
    return;
#ifdef PLAIT_NCCL_REGISTRATION
  if (nccl) {
    nccl->ncclMemFree(memory);
    return;
  }
#endif
  context->driver.cuMemFree(reinterpret_cast<CUdeviceptr>(memory));
}
