//===- DeviceMemory.h - Memory of a GPU -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_DEVICEMEMORY_H
#define PLAIT_LIB_RUNTIME_CUDA_DEVICEMEMORY_H

#include "CudaStream.h"
#include "Nccl.h"

#include <memory>

namespace plait::runtime {

/// One allocation, freed on destruction; the work that uses it must be over.
class DeviceMemory {
public:
  /// `what` is for messages: "an arena". With `nccl` the memory is NCCL's own
  /// where its version has such: communicators can register it. Nothing is
  /// allocated for 0 bytes.
  static Result<std::shared_ptr<DeviceMemory>>
  allocate(std::shared_ptr<CudaContext> context, uint64_t bytes,
           const char *what, const Nccl *nccl = nullptr);
  ~DeviceMemory();

  std::byte *data() const { return memory; }
  uint64_t bytes() const { return size; }
  /// Whether NCCL can give all ranks a window to it.
  bool isShareable() const { return nccl != nullptr; }

private:
  DeviceMemory(std::shared_ptr<CudaContext> context, uint64_t size)
      : context(std::move(context)), size(size) {}

  std::shared_ptr<CudaContext> context;
  uint64_t size;
  std::byte *memory = nullptr;
  const Nccl *nccl = nullptr; // what has allocated it, or null: the driver
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_DEVICEMEMORY_H
