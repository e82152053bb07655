//===- AttentionTimer.h - The fastest engine of attention -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_ATTENTIONTIMER_H
#define PLAIT_LIB_RUNTIME_CUDA_ATTENTIONTIMER_H

#include "CudaAttention.h"
#include "LibraryChoices.h"
#include "Measurer.h"

namespace plait::runtime {

/// Measures the attention of one rank before anything is in its arena, for runs
/// that keep their choices: engines cut rows into different tiles, so that no
/// other one has the bits of the library's first choice.
class AttentionTimer {
public:
  AttentionTimer(Measurer &measurer, CudaAttention &attentions,
                 const GemmTiming &options)
      : measurer(measurer), attentions(attentions), options(options) {}

  /// Has each call of `uses` take the configuration that `choices` has for it.
  /// Where they have none, or one that cannot be taken, it is the fastest of
  /// those whose result is that of the library's first but for rounding; and it
  /// becomes part of `choices`. Leaves its numbers in the operands.
  Status run(const std::vector<AttentionUse> &uses, LibraryChoices &choices);

  /// One line for all; above it, where that is asked for, one a call.
  const std::string &report() const { return text; }

private:
  using Clock = std::chrono::steady_clock;
  struct Candidate {
    std::string configuration;
    std::unique_ptr<AttentionCall> call; // null: what is installed
  };

  Status time(const AttentionUse &use);
  Status findCandidates(const AttentionUse &use,
                        std::vector<Candidate> &candidates);
  Result<std::vector<Measurer::Candidate>>
  findSame(const AttentionUse &use, size_t count, const Measurer::Call &call);
  Status prepareOperands(const AttentionUse &use);
  std::vector<Measurer::Region> findResults(const AttentionUse &use) const;
  void note(const AttentionUse &use, const std::string &outcome);

  Measurer &measurer;
  CudaAttention &attentions;
  const GemmTiming &options;
  Clock::time_point deadline;
  std::string text;
  TimingTally tally;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_ATTENTIONTIMER_H
