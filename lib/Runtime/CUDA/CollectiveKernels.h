//===- CollectiveKernels.h - Reductions between ranks on one GPU *- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shared between the host and the kernels of CollectiveKernels.cu.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_COLLECTIVEKERNELS_H
#define PLAIT_LIB_RUNTIME_CUDA_COLLECTIVEKERNELS_H

#include <stdint.h>

namespace plait::runtime {

enum { maxCollectiveMembers = 64 };

/// Parameters of, for o < outer and c < chunk:
///   value = inputs[0][i] op inputs[1][i] op …, i = o * inputStride + c
///   outputs[k][o * outputStride + c] = value for all k
/// An output may be one of the inputs, at the same addresses. Elements are f32
/// or, of the kernels called so, bf16, which are reduced in f32.
struct ReduceParams {
  const void *inputs[maxCollectiveMembers];
  void *outputs[maxCollectiveMembers];
  int32_t inputCount;
  int32_t outputCount;
  int64_t outer;
  int64_t chunk;
  int64_t inputStride;
  int64_t outputStride;
};

/// Threads of a block of the kernels below, each of which takes one
/// ReduceParams; any number of blocks does.
enum { reduceThreads = 256 };
#define PLAIT_REDUCE_SUM "plait_reduce_sum"
#define PLAIT_REDUCE_MAX "plait_reduce_max"
#define PLAIT_REDUCE_SUM_BF16 "plait_reduce_sum_bf16"
#define PLAIT_REDUCE_MAX_BF16 "plait_reduce_max_bf16"

/// The kernels as PTX, with a closing NUL.
extern const char collectiveKernelsPtx[];

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_COLLECTIVEKERNELS_H
