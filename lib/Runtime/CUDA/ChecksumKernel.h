//===- ChecksumKernel.h - Checksums of results ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shared between the host and the kernel of ChecksumKernel.cu.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CHECKSUMKERNEL_H
#define PLAIT_LIB_RUNTIME_CUDA_CHECKSUMKERNEL_H

#include <stdint.h>

#ifdef __CUDACC__
#define PLAIT_HOST_AND_DEVICE __host__ __device__
#else
#define PLAIT_HOST_AND_DEVICE
#endif

namespace plait::runtime {

/// Adds a number to `sum` that depends on every one of `units` pairs of bytes,
/// and on where it is. The order of the additions does not matter.
struct ChecksumParams {
  const uint16_t *data;
  uint64_t units;
  uint64_t *sum;
};

/// Threads of a block of the kernel; any number of blocks does.
enum { checksumThreads = 256 };
#define PLAIT_CHECKSUM "plait_checksum"

/// The end of SplitMix64 (Steele, Lea and Flood 2014), which has each bit of
/// its argument change half of those of the result.
PLAIT_HOST_AND_DEVICE inline uint64_t mixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// The kernel as PTX, with a closing NUL.
extern const char checksumKernelPtx[];

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CHECKSUMKERNEL_H
