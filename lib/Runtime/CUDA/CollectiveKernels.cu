//===- CollectiveKernels.cu - Reductions between ranks on one GPU ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CollectiveKernels.h"

#include <cuda_bf16.h>

using plait::runtime::ReduceParams;

namespace {

struct Sum {
  __device__ float operator()(float left, float right) const {
    return left + right;
  }
};

// As on the CPU: of two equal values the left, and of a NaN on the left
// nothing else.
struct Max {
  __device__ float operator()(float left, float right) const {
    return left < right ? right : left;
  }
};

// In the order of the inputs, element by element: the result depends on nothing
// but their values.
template <typename Element, typename Operation>
__device__ void reduce(const ReduceParams &params, Operation combine) {
  int64_t count = params.outer * params.chunk;
  int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    int64_t row = i / params.chunk, column = i % params.chunk;
    int64_t from = row * params.inputStride + column;
    int64_t to = row * params.outputStride + column;
    auto input = [&](int32_t member) -> float {
      return static_cast<const Element *>(params.inputs[member])[from];
    };
    float value = input(0);
    for (int32_t j = 1; j < params.inputCount; ++j)
      value = combine(value, input(j));
    for (int32_t j = 0; j < params.outputCount; ++j)
      static_cast<Element *>(params.outputs[j])[to] = Element(value);
  }
}

} // namespace

extern "C" __global__ void
plait_reduce_sum(const __grid_constant__ ReduceParams params) {
  reduce<float>(params, Sum());
}

extern "C" __global__ void
plait_reduce_max(const __grid_constant__ ReduceParams params) {
  reduce<float>(params, Max());
}

extern "C" __global__ void
plait_reduce_sum_bf16(const __grid_constant__ ReduceParams params) {
  reduce<__nv_bfloat16>(params, Sum());
}

extern "C" __global__ void
plait_reduce_max_bf16(const __grid_constant__ ReduceParams params) {
  reduce<__nv_bfloat16>(params, Max());
}
