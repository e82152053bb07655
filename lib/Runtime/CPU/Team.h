//===- Team.h - The threads of one rank -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// oneDNN brings the OpenMP runtime it was built with (libgomp). Kernels run on
// the same threads: a second pool would take turns with the first one on the
// same cores. Every rank is the master of its own team, whose size is set for
// the rank's thread alone.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_TEAM_H
#define PLAIT_LIB_RUNTIME_CPU_TEAM_H

#include <cstdint>

namespace plait::runtime {

/// Makes the calling thread the master of `threads` threads.
void setTeamSize(unsigned threads);

/// Calls work(context, begin, end) for disjoint contiguous ranges that cover
/// [0, extent). Uses the `threads` threads of the team, or, when ranges would
/// be shorter than `grain`, fewer. The cut depends on the arguments alone.
void parallelFor(unsigned threads, int64_t extent, int64_t grain,
                 void (*work)(void *context, int64_t begin, int64_t end),
                 void *context);

/// The same for a callable.
template <typename Work>
void parallelFor(unsigned threads, int64_t extent, int64_t grain, Work work) {
  parallelFor(
      threads, extent, grain,
      [](void *context, int64_t begin, int64_t end) {
        (*static_cast<Work *>(context))(begin, end);
      },
      &work);
}

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_TEAM_H
