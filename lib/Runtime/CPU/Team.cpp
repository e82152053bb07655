//===- Team.cpp - The threads of one rank ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Calls libgomp by the functions that a compiler would: `omp parallel` without
// a compiler's pragma. See Team.h for why it has to be this pool of threads.
//
//===----------------------------------------------------------------------===//

#include "Team.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;

// The entry points of libgomp that a compiler calls for `omp parallel`. clang's
// own -fopenmp would bring another OpenMP runtime into the process.
extern "C" {
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads,
                   unsigned flags);
int omp_get_thread_num();
void omp_set_num_threads(int threads);
}

namespace {

/// A loop that is cut into `parts` ranges; bounds are computed from the number
/// of the part alone, so that who runs it does not matter.
struct Region {
  void (*work)(void *context, int64_t begin, int64_t end);
  void *context;
  int64_t extent;
  int64_t parts;

  void run(int64_t part) const {
    int64_t begin = extent * part / parts;
    int64_t end = extent * (part + 1) / parts;
    if (begin < end)
      work(context, begin, end);
  }
};

} // namespace

/// A thread's own setting: libgomp keeps one for each master.
void runtime::setTeamSize(unsigned threads) {
  omp_set_num_threads(static_cast<int>(threads));
}

/// Ranges follow from extent, grain and threads: a run with the same number of
/// threads cuts alike. Small loops stay on the calling thread, as waking a team
/// takes longer than they do.
void runtime::parallelFor(unsigned threads, int64_t extent, int64_t grain,
                          void (*work)(void *, int64_t, int64_t),
                          void *context) {
  int64_t parts =
      std::clamp<int64_t>(extent / std::max<int64_t>(grain, 1), 1, threads);
  if (parts == 1) {
    if (extent > 0)
      work(context, 0, extent);
    return;
  }
  Region region = {work, context, extent, parts};
  // Always the whole team: libgomp ends threads when a team shrinks and starts
  // new ones when it grows again.
  GOMP_parallel(
      [](void *data) {
        const auto &region = *static_cast<const Region *>(data);
        if (int part = omp_get_thread_num(); part < region.parts)
          region.run(part);
      },
      &region, threads, 0);
}
