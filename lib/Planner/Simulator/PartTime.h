//===- PartTime.h - Passes that wait for what ZeRO exchanges ----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_PARTTIME_H
#define PLAIT_LIB_PLANNER_SIMULATOR_PARTTIME_H

#include "PartLists.h"

namespace plait::planner {

/// Runs `stage`, whose blocks take `times` by entry, through the streams of a
/// rank: parameters that ZeRO 3 divides are gathered a layer ahead and
/// gradients that ZeRO 2 and 3 divide are reduced where they end. Returns the
/// seconds that the passes over a microbatch wait for that.
PassWaits getPassWaits(const StageBlocks &stage,
                       std::span<const BlockTime *const> times, bool splits,
                       const Context &context);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_PARTTIME_H
