//===- PartTime.h - Passes that wait for what ZeRO exchanges ----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_PARTTIME_H
#define PLAIT_LIB_PLANNER_SIMULATOR_PARTTIME_H

#include "Step.h"

namespace plait::planner {

/// Seconds that passes over a microbatch wait for the collectives of
/// parameters, one by one.
struct PassWaits {
  double forward = 0;
  double backward = 0; // or the half of it that gives gradients of inputs
  double weights = 0;  // the other half

  double getSeconds() const { return forward + backward + weights; }
};

/// Runs the stages of `load`, whose blocks take `load.times`, through the
/// streams of a rank: parameters that ZeRO 3 divides are gathered a layer ahead
/// and gradients that ZeRO 2 and 3 divide are reduced where they end.
PassWaits getPassWaits(const StepLoad &load, const Context &context);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_PARTTIME_H
