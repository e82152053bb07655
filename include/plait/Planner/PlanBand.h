//===- PlanBand.h - Bands of plait's own plans ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_PLANBAND_H
#define PLAIT_PLANNER_PLANBAND_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Planner/Band.h"
#include "plait/Planner/Cluster.h"

#include <optional>

namespace plait::planner {

/// Makes the question for the band of `program` on `ranks` devices.
BandQuestion askBand(std::string_view program, const Device &device,
                     int64_t ranks, bool offloads, bool hasExperts);

/// Returns the band of a plan's predicted step on `cluster`; nothing for
/// processors, of which no runs are published.
std::optional<Band> getBand(const plan::fb::Plan &plan, const Cluster &cluster);

/// "5 runs of 2 sources, programs like plait", and what nobody has measured.
std::string describeBasis(const Band &band);

} // namespace plait::planner

#endif // PLAIT_PLANNER_PLANBAND_H
