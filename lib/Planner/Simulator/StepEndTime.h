//===- StepEndTime.h - Costs of the end of a step ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_STEPENDTIME_H
#define PLAIT_LIB_PLANNER_SIMULATOR_STEPENDTIME_H

#include "BlockTime.h"
#include "RankMemory.h"

#include <optional>

namespace plait::planner {

/// Seconds that passes over a microbatch wait for the collectives of
/// parameters, one by one.
struct PassWaits {
  double forward = 0;
  double backward = 0; // or the half of it that gives gradients of inputs
  double weights = 0;  // the other half
  /// Seconds in which either pass goes on before it has its message, where a
  /// pipeline has none for it yet.
  double earlyForward = 0, earlyBackward = 0;

  double getSeconds() const { return forward + backward + weights; }
  PassWaits &operator+=(const PassWaits &other) {
    forward += other.forward;
    backward += other.backward;
    weights += other.weights;
    return *this;
  }
};

/// The rank of the pipeline that holds the most parameters.
struct StepLoad {
  Elements parameters;
  double tied = 0;                  // of them: shared with another rank
  double forward = 0, backward = 0; // seconds of one microbatch
  double gradients = 0; // of backward: in which gradients of parameters end
  int64_t microbatches = 1;
  bool splits = false; // the backward pass, into two
  /// Whether the loss is on the rank.
  bool hasLoss = true;
  /// The blocks that have the parameters. Empty: not known, and what is
  /// exchanged counts as no more than is certain.
  std::vector<const StageBlocks *> stages;
  /// The waits of their passes; without: not known.
  std::optional<PassWaits> waits = std::nullopt;
  /// Seconds that the pipeline takes longer because passes wait for what ZeRO
  /// exchanges; without: all passes of the rank wait one by one.
  std::optional<double> waited = std::nullopt;
};

/// Returns the part of the pipeline's time that the slowest replica, of those
/// of all sites, takes longer.
double getWaitShare(const Configuration &configuration,
                    const Training &training);

/// Seconds in which nothing but the sum of gradients and the exchange of
/// parameters goes on.
double getDataSeconds(const StepLoad &load, const Context &context);

/// Gathers `bytes` of experts or of all else, of which the ranks that divide
/// their state have a part each, `times` a step. Returns the seconds of all of
/// them, with nothing beside.
double gatherState(double bytes, bool experts, double times, Moment moment,
                   const Context &context);

/// Returns the seconds in which what the optimizer has on the host comes from
/// there, or goes back; 0 where it has nothing there.
double getMovedSeconds(const StepLoad &load, const Context &context);

/// Returns the cost of the optimizer: norm, clipping, update.
Cost getOptimizerCost(const StepLoad &load, const Context &context);

/// Seconds of a step in which sites agree, on average over those in which they
/// do and those in which they do not, and tell each other of their loss. What
/// is sent beside a step of `step` seconds counts as far as it takes longer.
double getSitesSeconds(const StepLoad &load, double step,
                       const Context &context);

/// Returns the cost of adding what ZeRO 2 and 3 have reduced of `group` to a
/// rank's part of the sum.
Cost getAddingCost(const ParameterGroup &group, const Context &context);

/// Returns the cost of adding one microbatch's gradients to the sum in kernels
/// of their own.
Cost getAccumulationCost(const StageBlocks &stage, const Context &context);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_STEPENDTIME_H
