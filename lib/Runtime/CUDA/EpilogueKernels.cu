//===- EpilogueKernels.cu - Epilogues after their GEMMs -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EpilogueKernels.h"

#include <cuda_bf16.h>

using plait::runtime::EpilogueParams;

namespace {

// Of plan::fb::Epilogue, whose header needs more than device code has.
enum { Bias = 1, Gelu = 2, BiasGelu = 3, GeluGradient = 4 };

constexpr float linear = 0.7978845608028654f, cubic = 0.044715f;

__device__ float bendOf(float x) {
  return tanhf(linear * x * (1 + cubic * x * x));
}

__device__ float gelu(float x) { return 0.5f * x * (1 + bendOf(x)); }

__device__ float geluSlope(float x) {
  float bend = bendOf(x);
  return 0.5f * (1 + bend) +
         0.5f * x * (1 - bend * bend) * linear * (1 + 3 * cubic * x * x);
}

template <typename Element>
__device__ void apply(const EpilogueParams &params) {
  int64_t count = params.rows * params.columns;
  int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    int64_t row = i / params.columns, column = i % params.columns;
    int64_t place = row * params.stride + column;
    Element *c = static_cast<Element *>(params.c) + place;
    float value = float(*c);
    if (params.kind == GeluGradient) {
      const Element *inputs = static_cast<const Element *>(params.geluInput);
      *c = Element(value * geluSlope(float(inputs[place])));
      continue;
    }
    if (params.kind == Bias || params.kind == BiasGelu)
      value += float(static_cast<const Element *>(params.bias)[column]);
    if (params.geluInput)
      static_cast<Element *>(params.geluInput)[place] = Element(value);
    *c = Element(params.kind == Bias ? value : gelu(value));
  }
}

} // namespace

extern "C" __global__ void
plait_epilogue(const __grid_constant__ EpilogueParams params) {
  apply<float>(params);
}

extern "C" __global__ void
plait_epilogue_bf16(const __grid_constant__ EpilogueParams params) {
  apply<__nv_bfloat16>(params);
}
