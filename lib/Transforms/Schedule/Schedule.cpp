//===- Schedule.cpp - Order the work of every rank ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Gives the module a schedule with all transfers: one that it already has, or
// one made from the configuration. The algorithms are in the schedule library,
// which knows no IR.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Generators.h"
#include "plait/Schedule/Verify.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

namespace plait {
#define GEN_PASS_DEF_SCHEDULEPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
struct SchedulePass : plait::impl::SchedulePassBase<SchedulePass> {
  using SchedulePassBase::SchedulePassBase;

  /// With all that its ranks do, in the terms of the functions that there are.
  Result<schedule::Schedule> complete(pipe::ScheduleOp given) {
    // Functions are split for the whole module or not at all
    // (pipe-split-phases), so that where some backward passes are split, all
    // have to be.
    Result<schedule::Schedule> order = pipe::getSchedule(given);
    if (!order.ok())
      return order;
    return completeSchedule(getOperation(), schedule::splitBackwards(*order));
  }

  /// The schedule that the configuration names, for the placement that stages
  /// have been assigned by, which the schedule may not contradict.
  Result<schedule::Schedule> makeSchedule(pipe::PlacementAttr placement) {
    TrainingConfiguration configuration = getConfiguration(getOperation());
    dist::MeshOp mesh = dist::MeshOp::find(getOperation());
    Result<int64_t> microbatches = countMicrobatches(
        configuration, mesh ? mesh.getKnownAxes().batchParts() : 1);
    if (!microbatches.ok())
      return microbatches.status();
    schedule::Problem problem = placement.getProblem(*microbatches);
    Result<schedule::Schedule> order =
        schedule::generate(configuration.schedule, problem);
    if (!order.ok())
      return order;
    // With one chunk a rank all arrangements are the same, and a generator's
    // own says nothing.
    if (problem.chunks > 1 && order->problem.placement != problem.placement)
      return fail("schedule ", configuration.schedule,
                  " wants its virtual stages in another arrangement than ",
                  pipe::kPlacementAttr.str(), " gives: ",
                  pipe::stringifyArrangement(placement.getArrangement()).str());
    order->problem.placement = problem.placement;
    return completeSchedule(getOperation(), *order);
  }

  void runOnOperation() override {
    pipe::ScheduleOp given = pipe::findSchedule(getOperation());
    Result<schedule::Schedule> order =
        given ? complete(given) : makeSchedule(getPlacement(getOperation()));
    if (!order.ok()) {
      getOperation().emitError(order.status().message());
      return signalPassFailure();
    }
    // Only once its replacement is known to be valid.
    if (given)
      given.erase();
    pipe::addSchedule(getOperation(), *order, order->kind);
  }
};
} // namespace
