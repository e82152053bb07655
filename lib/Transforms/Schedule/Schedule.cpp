//===- Schedule.cpp - Order the work of every rank ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Generators.h"
#include "plait/Schedule/Verify.h"
#include "plait/Transforms/Names.h"
#include "plait/Transforms/Passes.h"

namespace plait {
#define GEN_PASS_DEF_SCHEDULEPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
struct SchedulePass : plait::impl::SchedulePassBase<SchedulePass> {
  using SchedulePassBase::SchedulePassBase;

  Result<schedule::Schedule> makeSchedule() {
    PLAIT_RETURN_IF_ERROR(
        schedule::checkExecutable(kind.getValue(), schedule::Abilities{}));
    dist::MeshOp mesh = dist::MeshOp::find(getOperation());
    schedule::Problem problem;
    if (mesh)
      problem.stages = std::max<int64_t>(1, mesh.getAxisSize(kPipelineAxis));
    problem.microbatches = microbatches;
    Result<schedule::Schedule> order = schedule::generate(kind, problem);
    if (!order.ok())
      return order;
    return schedule::insertTransfers(*order);
  }

  void runOnOperation() override {
    Result<schedule::Schedule> order = makeSchedule();
    if (!order.ok()) {
      getOperation().emitError(order.status().message());
      return signalPassFailure();
    }
    std::vector<std::string> lines;
    for (const std::vector<schedule::Action> &rank : order->ranks)
      lines.push_back(schedule::print(rank));
    SmallVector<StringRef> texts(lines.begin(), lines.end());
    OpBuilder builder(getOperation().getBodyRegion());
    builder.setInsertionPointToEnd(getOperation().getBody());
    pipe::ScheduleOp::create(builder, getOperation().getLoc(), "schedule", kind,
                             order->problem.stages, order->problem.microbatches,
                             builder.getStrArrayAttr(texts));
  }
};
} // namespace
