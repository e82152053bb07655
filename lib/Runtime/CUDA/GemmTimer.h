//===- GemmTimer.h - The fastest algorithm of each GEMM ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_GEMMTIMER_H
#define PLAIT_LIB_RUNTIME_CUDA_GEMMTIMER_H

#include "CublasGemms.h"
#include "LibraryChoices.h"
#include "Measurer.h"

namespace plait::runtime {

/// Measures the GEMMs of one rank before anything is in its arena: they work on
/// numbers that are made up.
class GemmTimer {
public:
  GemmTimer(Measurer &measurer, CublasGemms &gemms, const GemmTiming &options)
      : measurer(measurer), gemms(gemms), options(options) {}

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

  Status time(const GemmUse &use);
  void note(const GemmUse &use, const std::string &outcome);
  Measurer::Call callOf(const GemmUse &use, bool add);
  Status fillOperands(const GemmUse &use);
  std::vector<Measurer::Region> findResults(const GemmUse &use) const;
  Result<std::vector<Measurer::Candidate>> findCandidates(const GemmUse &use);

  Measurer &measurer;
  CublasGemms &gemms;
  const GemmTiming &options;
  Clock::time_point deadline;
  std::string text;
  TimingTally tally;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_GEMMTIMER_H
