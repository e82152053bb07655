//===- CudaDevice.h - Executes steps on a GPU -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUDADEVICE_H
#define PLAIT_LIB_RUNTIME_CUDA_CUDADEVICE_H

#include "CublasProducts.h"
#include "CudaKernels.h"
#include "CudaStream.h"
#include "plait/Runtime/Device.h"

#include <memory>
#include <mutex>
#include <vector>

namespace plait::runtime {

/// One rank's part of a GPU: an arena and a stream on which everything but
/// transfers between ranks happens.
class CudaDevice : public Device {
public:
  struct Options {
    std::shared_ptr<CudaContext> context;
    std::shared_ptr<const CudaKernels> kernels;
    std::shared_ptr<std::mutex> recording; // see CudaStream
    bool tf32 = false;
  };

  /// Allocates the arena of `program`, which belongs to `plan`.
  static Result<std::unique_ptr<CudaDevice>> create(const fb::Plan &plan,
                                                    const fb::Program &program,
                                                    const Options &options);
  ~CudaDevice() override;

  CudaStream &stream() { return *queue; }

  Status attachThread() override { return queue->context->use(); }
  std::byte *arena() override { return memory; }
  Status write(uint64_t offset, std::span<const std::byte> bytes) override;
  Status read(uint64_t offset, std::span<std::byte> bytes) override;
  Result<uint32_t> prepareGemm(const fb::GemmStep &step) override;
  Status kernel(const fb::KernelStep &step, std::byte *const *args,
                const int64_t *scalars) override;
  Status gemm(uint32_t prepared, const std::byte *a, const std::byte *b,
              std::byte *c, bool add) override;
  Status copy(std::byte *target, const std::byte *source,
              uint64_t bytes) override;
  Status fillZero(std::byte *target, uint64_t bytes) override;

private:
  CudaDevice(const fb::Plan &plan, const fb::Program &program,
             const Options &options)
      : plan(plan), program(program), kernels(options.kernels),
        tf32(options.tf32) {}

  const fb::Plan &plan;
  const fb::Program &program;
  std::shared_ptr<const CudaKernels> kernels;
  bool tf32;
  std::unique_ptr<CudaStream> queue;
  std::unique_ptr<CublasProducts> products; // made by the first prepareGemm
  std::byte *memory = nullptr;
  // Page-locked host memory, which the GPU reads and writes by itself. What is
  // written lies in [0, staged) until the stream has caught up.
  std::byte *staging = nullptr;
  uint64_t staged = 0;
  std::vector<void *> params; // of a launch
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUDADEVICE_H
