//===- EpilogueFallback.h - Epilogues after their GEMMs ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuBLASLt promises no algorithm for an epilogue. Where it names none, the
// GEMM is computed without, and a kernel of the runtime does the rest.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_EPILOGUEFALLBACK_H
#define PLAIT_LIB_RUNTIME_CUDA_EPILOGUEFALLBACK_H

#include "CudaKernels.h"
#include "GemmLayout.h"
#include "plait/Runtime/Device.h"

#include <memory>

namespace plait::runtime {

class EpilogueFallback {
public:
  static Result<std::unique_ptr<EpilogueFallback>> load(CudaStream &stream);

  /// Does to C, which holds the A B of `layout`, what its epilogue says.
  Status run(const GemmLayout &layout, const GemmOperands &operands);

private:
  explicit EpilogueFallback(CudaStream &stream) : stream(stream) {}

  CudaStream &stream;
  std::unique_ptr<CudaModule> module;
  CUfunction floats = nullptr, halves = nullptr;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_EPILOGUEFALLBACK_H
