//===- ChecksumKernel.cu - Checksums of results ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ChecksumKernel.h"

using plait::runtime::ChecksumParams;
using plait::runtime::mixBits;

extern "C" __global__ void
plait_checksum(const __grid_constant__ ChecksumParams params) {
  uint64_t step = uint64_t(gridDim.x) * blockDim.x, sum = 0;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
       i < params.units; i += step)
    sum += mixBits(i << 16 | params.data[i]);
  // One addition a warp to memory that all share.
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  if (threadIdx.x % 32 == 0)
    atomicAdd(reinterpret_cast<unsigned long long *>(params.sum), sum);
}
