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
#include "LibraryChoices.h"
#include "plait/Runtime/Executor.h"

#include <optional>

namespace plait::runtime {

/// Measures the GEMMs of one rank before anything is in its arena: they work on
/// numbers that are made up.
class GemmTimer {
public:
  GemmTimer(CudaStream &stream, CublasGemms &gemms, const GemmTiming &options)
      : stream(stream), gemms(gemms), options(options) {}

  /// Has each GEMM of `uses` take the algorithm that `choices` has for it.
  /// Where they have none, or one that cannot be taken, it is the fastest of
  /// those whose result is that of the first: bit by bit, or if the choice is
  /// kept, but for the rounding of sums; and it becomes part of `choices`.
  /// Leaves its numbers in the operands.
  Status run(std::vector<GemmUse> uses, LibraryChoices &choices);

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
  /// Tells one result from another.
  struct Outcome {
    uint64_t checksum = 0;
    std::vector<float> sample; // where sums may be rounded in another way
  };

  Status load();
  Status time(const GemmUse &use);
  void note(const GemmUse &use, const std::string &outcome);
  Status fill(const Region &target, fb::DType type);
  Status fillOperands(const GemmUse &use);
  std::vector<Region> findResults(const GemmUse &use) const;
  Result<std::optional<float>> measure(const GemmUse &use, size_t algorithm,
                                       bool add, int runs);
  Result<Outcome> lookAt(const GemmUse &use);
  Result<uint64_t> checksum(const std::vector<Region> &results);
  Status sample(const Region &region, fb::DType type, uint64_t strips,
                std::vector<float> &numbers);
  bool agree(const Outcome &first, const Outcome &other) const;
  Result<std::vector<Candidate>> findCandidates(const GemmUse &use);
  Status measureAll(const GemmUse &use, std::vector<Candidate> &candidates);
  void report(size_t uses, std::chrono::duration<double> took);

  CudaStream &stream;
  CublasGemms &gemms;
  const GemmTiming &options;
  Clock::time_point deadline;
  std::unique_ptr<CudaModule> module;
  CUfunction checksumOf = nullptr;
  CudaEvent begin, end;
  std::shared_ptr<DeviceMemory> floats, halves, sum, strips;
  std::string text;
  size_t timed = 0, changed = 0, known = 0; // GEMMs
  double byFirst = 0, byFastest = 0;        // milliseconds of a step
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_GEMMTIMER_H
