//===- NcclGroup.h - Collectives by NCCL ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_NCCLGROUP_H
#define PLAIT_LIB_RUNTIME_CUDA_NCCLGROUP_H

#include "CudaStream.h"
#include "Nccl.h"
#include "plait/Runtime/Communicator.h"

#include <memory>

namespace plait::runtime {

/// Room for tensors whose blocks are not contiguous.
class Scratch {
public:
  static Result<std::shared_ptr<Scratch>>
  create(std::shared_ptr<CudaContext> context, uint64_t bytes) {
    std::shared_ptr<Scratch> result(new Scratch(std::move(context)));
    if (bytes == 0)
      return result;
    const Driver &driver = result->context->driver;
    PLAIT_RETURN_IF_ERROR(result->context->use());
    if (Status status = driver.check(driver.cuMemAlloc(&result->memory, bytes),
                                     "cuMemAlloc");
        !status.ok())
      return fail(result->context->describe(), ": cannot allocate ", bytes,
                  " bytes to pack collectives: ", status.message());
    return result;
  }
  ~Scratch() {
    if (memory && context->use().ok())
      context->driver.cuMemFree(memory);
  }

  std::byte *data() const { return reinterpret_cast<std::byte *>(memory); }

private:
  explicit Scratch(std::shared_ptr<CudaContext> context)
      : context(std::move(context)) {}

  std::shared_ptr<CudaContext> context;
  CUdeviceptr memory = 0;
};

/// The group behind `comm`, or, where that is null, a group of one rank. Its
/// collectives happen on `stream`; `scratch` has room for the largest of them
/// that must be packed.
std::unique_ptr<Group> createNcclGroup(const Nccl &nccl, ncclComm_t comm,
                                       int64_t members, CudaStream &stream,
                                       std::shared_ptr<Scratch> scratch);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_NCCLGROUP_H
