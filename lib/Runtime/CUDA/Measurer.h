//===- Measurer.h - How long a library's calls take -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_MEASURER_H
#define PLAIT_LIB_RUNTIME_CUDA_MEASURER_H

#include "CudaKernels.h"
#include "DeviceMemory.h"
#include "plait/Runtime/Executor.h"

#include <chrono>
#include <functional>
#include <optional>

namespace plait::runtime {

/// Measures ways to compute the same thing on one stream, which does nothing
/// else, on numbers that are made up; and tells their results from one another.
class Measurer {
public:
  struct Region {
    std::byte *data;
    uint64_t bytes;
    fb::DType type; // bf16 or f32
  };
  /// Tells one result from another.
  struct Outcome {
    uint64_t checksum = 0; // of all its bits
    /// Numbers of each region; empty: only bits are compared.
    std::vector<std::vector<float>> samples;
  };
  struct Candidate {
    size_t number; // to its owner
    float milliseconds = 0;
  };
  /// Enqueues a candidate once; fails where it does not work.
  using Call = std::function<Status(size_t number)>;
  /// Writes results that were cleared before, as time() with one call does.
  using Attempt = std::function<Result<std::optional<float>>(size_t number)>;
  /// How results are compared, and until when there is time.
  struct Comparison {
    bool sampled;    // or bit by bit
    float tolerance; // of agree()
    std::chrono::steady_clock::time_point deadline;
  };

  explicit Measurer(CudaStream &stream) : stream(stream) {}

  /// Makes numbers and what else the other functions need, once. They lie in
  /// memory of their own, which goes with this object.
  Status load();
  /// Writes numbers of any sign, with all bits of the mantissa and eight
  /// exponents, below 1: with fewer, sums may be exact, and the same in any
  /// order.
  Status fill(const Region &target);
  Status clear(const std::vector<Region> &targets);
  /// Returns the milliseconds of `runs` calls; nothing where one was refused.
  Result<std::optional<float>> time(const Call &call, size_t number, int runs);
  /// Finds the first of `count` candidates that works, and those behind it with
  /// the same `results`; as many as there is time for, if all are as slow as
  /// the first.
  Result<std::vector<Candidate>> findSame(size_t count, const Attempt &attempt,
                                          const std::vector<Region> &results,
                                          const Comparison &how);
  /// Sets what each call takes, in turns, so that a GPU which gets slower is
  /// slower for all. One that fails takes for ever.
  Status timeAll(const Call &call, std::vector<Candidate> &candidates);
  /// Returns the fastest; the first, unless another gains enough to be no
  /// chance.
  static const Candidate &choose(const std::vector<Candidate> &candidates);

private:
  /// How many candidates there is time for up to `deadline`, with one that
  /// takes so long.
  static size_t countUntil(std::chrono::steady_clock::time_point deadline,
                           float milliseconds);
  /// Reads a result, `sampled` or only its checksum.
  Result<Outcome> look(const std::vector<Region> &results, bool sampled);
  /// Whether two results are the same; of samples, whether those of each region
  /// lie apart by at most `tolerance` of their root mean square and the last
  /// bit of bf16.
  static bool agree(const Outcome &first, const Outcome &other,
                    float tolerance);
  Result<uint64_t> checksum(const std::vector<Region> &results);
  Result<std::vector<float>> sample(const Region &region, uint64_t strips);

  CudaStream &stream;
  std::unique_ptr<CudaModule> module;
  CUfunction checksumOf = nullptr;
  CudaEvent begin, end;
  std::shared_ptr<DeviceMemory> floats, halves, sum, strips;
};

/// Counts what was chosen for the calls of one library, and says it.
class TimingTally {
public:
  /// A call takes what was chosen before.
  void addKnown() { ++known; }
  /// A call, made `uses` times a step, was timed.
  void add(size_t uses, const Measurer::Candidate &first,
           const Measurer::Candidate &chosen);
  /// Says the line of all `shapes` of `what`, some of which "take another
  /// `choice`".
  std::string print(const std::string &what, size_t shapes,
                    std::chrono::duration<double> took,
                    std::chrono::duration<double> limit,
                    const std::string &choice) const;

private:
  size_t timed = 0, changed = 0, known = 0; // calls
  double byFirst = 0, byFastest = 0;        // milliseconds of a step
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_MEASURER_H
