//===- Metrics.h - Position of the metrics in a step ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step ends with the optimizer function: it sums up the loss, counts the
// tokens, takes the norm of the gradients and clips by it; then it updates the
// parameters. What comes first can be done alone: a step may look at its
// metrics before it changes anything, and data that is not trained on has a
// loss.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_METRICS_H
#define PLAIT_PLAN_METRICS_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <string_view>

namespace plait::plan {

/// The most named losses of a plan: with enum Metric they fill a line of
/// memory.
inline constexpr size_t kMostNamedLosses = 13;

/// Whether `name` may name a loss: up to 32 letters, digits and underscores,
/// the first no digit.
bool isLossName(std::string_view name);

/// Counts the numbers that a step reports: those of enum Metric and named
/// losses.
inline size_t countMetrics(const fb::Plan &plan) {
  size_t named = plan.named_losses() ? plan.named_losses()->size() : 0;
  return size_t(fb::Metric::Count) + named;
}

/// Whether the forward passes of a step, all microbatches, need this action.
inline bool isForward(const fb::Action &action) {
  switch (action.kind()) {
  case fb::ActionKind::Forward:
  case fb::ActionKind::Gather:
    return true;
  case fb::ActionKind::Send:
  case fb::ActionKind::Recv:
  case fb::ActionKind::WaitSend:
    return action.direction() == fb::Direction::Forward;
  default:
    return false;
  }
}

/// The number of steps of the optimizer function of program `program`, the
/// first ones, after which the metrics are known. They change neither
/// parameters nor what the optimizer keeps. Fails where the metrics are not
/// known before one of these changes. `plan` has passed checkPlan.
Result<uint32_t> countMetricSteps(const fb::Plan &plan, uint32_t program);

} // namespace plait::plan

#endif // PLAIT_PLAN_METRICS_H
