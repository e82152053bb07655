//===- StageCut.h - Which layers form a stage -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_STAGECUT_H
#define PLAIT_LIB_PLANNER_SIMULATOR_STAGECUT_H

#include "plait/Schedule/Schedule.h"

#include <span>
#include <vector>

namespace plait::planner {

/// Cuts a row of layers into the virtual stages of `problem` so that the
/// slowest rank, which works through all stages that it holds, is as fast as
/// possible. `before` and `after` are what the first and the last stage do
/// besides. Every stage gets a layer; expects no more stages than costs.
///
/// With one chunk a rank the cut is the best there is. With more it is where
/// layers cost the same; where they do not, no rank gets more than the slowest
/// one would of the best cut by stages. Where an even cut is as good it is
/// taken, with the short stages in front, because they hold the most
/// microbatches.
std::vector<int> cutStages(std::span<const double> costs, double before,
                           double after, const schedule::Problem &problem);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_STAGECUT_H
