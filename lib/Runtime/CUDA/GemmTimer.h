//===- GemmTimer.h - The fastest algorithm of each GEMM ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_GEMMTIMER_H
#define PLAIT_LIB_RUNTIME_CUDA_GEMMTIMER_H

#include "CublasGemms.h"
#include "CudaKernels.h"
#include "DeviceMemory.h"
#include "plait/Runtime/Executor.h"

#include <optional>

namespace plait::runtime {

/// A GEMM that a step calls.
struct GemmUse {
  uint32_t gemm; // of CublasGemms: a step or, to be timed, a part of one
  GemmOperands operands;
  bool adds = false;  // to what is in C
  uint64_t calls = 0; // in a step
};

/// Measures the GEMMs of one rank before anything is in its arena: they work on
/// numbers that are made up.
class GemmTimer {
public:
  GemmTimer(CudaStream &stream, CublasGemms &gemms, const GemmTiming &options)
      : stream(stream), gemms(gemms), options(options) {}

  /// Has each GEMM of `uses` take the fastest of the algorithms whose result is
  /// that of the first, bit by bit. Leaves its numbers in the operands.
  Status run(std::vector<GemmUse> uses);

  /// One line for all; above it, where that is asked for, one a GEMM.
  const std::string &report() const { return text; }

private:
  using Clock = std::chrono::steady_clock;
  struct Candidate {
    size_t algorithm;
    float milliseconds;
  };
  struct Region {
    std::byte *data;
    uint64_t bytes;
  };

  Status load();
  Status time(const GemmUse &use);
  void note(const GemmUse &use, const std::string &outcome);
  Status fill(const Region &target, fb::DType type);
  Status fillOperands(const GemmUse &use);
  std::vector<Region> findResults(const GemmUse &use) const;
  Result<std::optional<float>> measure(const GemmUse &use, size_t algorithm,
                                       bool add, int runs);
  Result<uint64_t> checksum(const std::vector<Region> &results);
  Result<std::vector<Candidate>> findSame(const GemmUse &use);

  CudaStream &stream;
  CublasGemms &gemms;
  const GemmTiming &options;
  Clock::time_point deadline;
  std::unique_ptr<CudaModule> module;
  CUfunction checksumOf = nullptr;
  CudaEvent begin, end;
  std::shared_ptr<DeviceMemory> floats, halves, sum;
  std::string text;
  size_t timed = 0, changed = 0;     // GEMMs
  double byFirst = 0, byFastest = 0; // milliseconds of a step
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_GEMMTIMER_H
