//===- Attention.h - Attention by blocks of rows ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What Plan.fbs calls AttentionStep, on a processor. The scores of 64 queries
// of one head exist at a time, for all keys that these see; keys that a mask
// hides from the whole block are not multiplied. Backward, the scores are
// computed again from the saved statistics (Dao et al. 2022, "FlashAttention",
// Algorithm 4). GEMMs are oneDNN's, in f32; a bf16 operand is widened first
// and a bf16 result rounded once.
//
// Threads share out heads: whole query heads forward, whole key heads backward,
// so that each gradient is summed by one thread in one order. The bits depend
// on the number of threads only where there are fewer heads than threads.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_ATTENTION_H
#define PLAIT_LIB_RUNTIME_CPU_ATTENTION_H

#include "plait/Runtime/Device.h"

#include <deque>
#include <vector>

namespace plait::runtime {

/// The attentions of one rank. Used by the rank's thread only, which must have
/// its team of `threads` (see Team.h) before the first run().
class AttentionLibrary {
public:
  explicit AttentionLibrary(unsigned threads) : threads(threads) {}

  /// Makes room for the scores of `step`; the number is for run().
  uint32_t prepare(const fb::AttentionStep &step, AttentionBegin begin);

  Status run(uint32_t prepared, const AttentionOperands &operands);

private:
  struct Prepared {
    fb::AttentionStepT step;
    AttentionBegin begin;
  };
  unsigned threads;
  std::deque<Prepared> steps;
  std::vector<std::vector<float>> rooms; // of each thread, for the largest step
  std::vector<Status> results;           // of each thread
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_ATTENTION_H
