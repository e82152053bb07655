//===- TestedBackends.h - The backends that conform --------------*- C++
//-*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_TESTEDBACKENDS_H
#define PLAIT_TEST_UNIT_RUNTIME_TESTEDBACKENDS_H

#include "Core/Backend.h"

#include <chrono>
#include <vector>

namespace plait::runtime {

using Factory = Result<Backend> (*)(const fb::Plan &plan,
                                    const Topology &topology,
                                    const ExecutorOptions &options);

struct TestedBackend {
  const char *name;
  Factory create;
  bool inRankOrder;     // the order of sums
  unsigned devices = 0; // see ExecutorOptions
  unsigned stride = 1;  // of the numbers of ranks that are tried, from 1
};

inline constexpr std::chrono::milliseconds patience = std::chrono::seconds(60);

/// Every backend of this build that can put all ranks into one process; under
/// mpirun, the one over MPI.
std::vector<TestedBackend> testedBackends();

} // namespace plait::runtime

#endif // PLAIT_TEST_UNIT_RUNTIME_TESTEDBACKENDS_H
