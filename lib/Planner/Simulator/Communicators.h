//===- Communicators.h - GPU memory of a choice's groups --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_COMMUNICATORS_H
#define PLAIT_LIB_PLANNER_SIMULATOR_COMMUNICATORS_H

#include "Simulator/BlockTime.h"
#include "plait/Support/CommunicatorMemory.h"

namespace plait::planner {

/// Counts what NCCL makes for the rank of `configuration` that has most of it:
/// what plan::countCommunicators() finds in the plan, or more. What is packed
/// is not among it. `ties`: whether a table has two ends.
CommunicatorMemory countCommunicators(const Configuration &configuration,
                                      bool ties);

/// Returns the bytes that communicators take beyond what the device reserves;
/// 0 for processors, and for programs whose reserve was measured.
double getUnreservedBytes(const Context &context);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_COMMUNICATORS_H
