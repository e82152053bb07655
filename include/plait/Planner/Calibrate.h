//===- Calibrate.h - Fitting a hardware file to measurements ----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The figures of a hardware file that matter most on a machine of one's own are
// found by running a few plans: the least squares of log(predicted / measured)
// over all steps, each weighted by the time that it takes in a training step.
// What is fitted is the cost model itself (stepSeconds), not a copy of it.
//
// Three groups that share no figure are fitted one after the other:
//
//   steps        rates and ramp of matmuls, memory bandwidth, elementwise rate,
//                launch
//   collectives  start, time of a hop, bandwidth
//   messages     latency, part of that bandwidth
//
// Where a run had more ranks than threads, the cores were shared, and how long
// a step took depended on what other ranks did. Then the processor's time
// counts, times the ranks of a core: what the step takes while all compute.
//
// Links between nodes are fitted to what runs on several nodes have sent over
// them, with the links inside of a node as they were fitted before.
//
// A figure about which the measurements say nothing stays where it was.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_CALIBRATE_H
#define PLAIT_PLANNER_CALIBRATE_H

#include "plait/Planner/PlanCost.h"

#include <span>

namespace plait::planner {

/// A run; `profile` is of `plan` (checkProfile). References: live as long as
/// the call. Nodes have equally many ranks, in order.
struct MeasuredRun {
  const plan::fb::Plan &plan;
  const plan::Profile &profile;
  uint32_t nodes = 1;
};

/// A figure of the hardware file, by its path: "device.launchSeconds".
struct FittedValue {
  std::string path;
  double before = 0, after = 0;
};

/// How well steps of one kind are predicted; errors are means of
/// |predicted / measured - 1|, weighted by time.
struct Residual {
  std::string kind;
  size_t samples = 0;
  double measured = 0; // seconds of a training step, over all runs and ranks
  double predicted = 0;
  double errorBefore = 0, errorAfter = 0;
};

struct Calibration {
  std::vector<FittedValue> values;
  std::vector<Residual> residuals;
  /// The hardware file, which extends the one that was started from.
  std::string json;
};

/// Starts from the hardware `base`, a preset or a file; `name` is that of the
/// new file. Fails when the runs have not measured anything, are of plans for
/// other hardware, or have ranks that their nodes do not divide. The same input
/// gives the same bytes.
Result<Calibration> calibrate(std::span<const MeasuredRun> runs,
                              const std::string &base, const std::string &name);

} // namespace plait::planner

#endif // PLAIT_PLANNER_CALIBRATE_H
