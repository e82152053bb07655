//===- CudaAttention.h - Attention on a GPU ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What stands between a device and the library that computes AttentionSteps:
// cuDNN (CudnnAttention.cpp), or in tests an implementation on the host.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUDAATTENTION_H
#define PLAIT_LIB_RUNTIME_CUDA_CUDAATTENTION_H

#include "CudaStream.h"
#include "plait/Runtime/Device.h"

#include <memory>
#include <span>

namespace plait::runtime {

/// The attentions of one rank. Used by the rank's thread only.
class CudaAttention {
public:
  virtual ~CudaAttention() = default;

  /// Does at load time all that `step` needs, whose query 0 has the position
  /// `firstQuery` among the keys; the number is for run(). Equal steps may
  /// share one.
  virtual Result<uint32_t> prepare(const fb::AttentionStep &step,
                                   int64_t firstQuery) = 0;
  /// Enqueues the step.
  virtual Status run(uint32_t prepared, const AttentionOperands &operands) = 0;
};

/// `stream` outlives the result. `workspace` is device memory that nothing else
/// on the stream uses at the same time.
using CudaAttentionFactory = Result<std::unique_ptr<CudaAttention>> (*)(
    CudaStream &stream, std::span<std::byte> workspace);

/// By cuDNN. Fails with one line where the library or, in this build, its
/// front end is missing, and where the library is too old.
Result<std::unique_ptr<CudaAttention>>
createCudnnAttention(CudaStream &stream, std::span<std::byte> workspace);

/// What devices use: createCudnnAttention, unless a test puts its own here
/// before the first device is made.
extern CudaAttentionFactory createCudaAttention;

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUDAATTENTION_H
