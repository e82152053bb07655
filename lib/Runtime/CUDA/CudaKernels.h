//===- CudaKernels.h - The loaded kernels of a plan -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUDAKERNELS_H
#define PLAIT_LIB_RUNTIME_CUDA_CUDAKERNELS_H

#include "CudaStream.h"
#include "plait/Plan/Plan_generated.h"

#include <memory>
#include <vector>

namespace plait::runtime {

/// Code on one GPU. Unloaded on destruction.
class CudaModule {
public:
  /// `image` is PTX or a cubin, followed by a NUL.
  static Result<std::unique_ptr<CudaModule>>
  load(std::shared_ptr<CudaContext> context, const void *image);
  ~CudaModule();

  Result<CUfunction> find(const char *symbol) const;

private:
  explicit CudaModule(std::shared_ptr<CudaContext> context)
      : context(std::move(context)) {}

  std::shared_ptr<CudaContext> context;
  CUmodule handle = nullptr;
};

/// The kernels of a plan on one GPU; a plan without kernels needs no code.
class CudaKernels {
public:
  /// Takes the cubin for this very GPU; where there is none, or the driver is
  /// older than it, lets the driver compile the PTX. Fails when the GPU is
  /// older than what the plan was compiled for. `plan` must have been verified.
  static Result<std::shared_ptr<const CudaKernels>>
  load(const plan::fb::Plan &plan, std::shared_ptr<CudaContext> context);

  CUfunction operator[](uint32_t kernel) const { return functions[kernel]; }

private:
  std::unique_ptr<CudaModule> module;
  std::vector<CUfunction> functions;
};

/// The code objects of `plan` for a GPU of compute capability major.minor, the
/// best first; there is one. `gpu` names it in messages.
Result<std::vector<const plan::fb::CodeObject *>>
chooseCode(const plan::fb::Plan &plan, int major, int minor,
           const std::string &gpu);

/// The number of blocks that cover the parallel indices of a step.
uint64_t blocksOf(const plan::fb::Kernel &kernel, int64_t extent);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUDAKERNELS_H
