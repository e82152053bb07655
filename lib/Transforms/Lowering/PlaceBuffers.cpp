//===- PlaceBuffers.cpp - The programs of a plan ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds the functions that the schedule's actions call, gives what is in them
// addresses, and has the programs built.
//
// The order matters twice. Pitches come first, since they change how large
// values are; and functions are placed in the order in which a rank calls them
// first, because what several of them add to is begun by the first of them
// alone.
//
//===----------------------------------------------------------------------===//

#include "BuildProgram.h"
#include "PreparePlacing.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Schedule/Generators.h"
#include "plait/Schedule/Verify.h"
#include "plait/Transforms/Passes.h"

#include "llvm/ADT/StringSet.h"

#include <map>

namespace plait {
#define GEN_PASS_DEF_PLACEBUFFERSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using schedule::Action;

namespace {
struct PlaceBuffersPass : plait::impl::PlaceBuffersPassBase<PlaceBuffersPass> {
  FailureOr<Calls> findCalls();
  LogicalResult findFunctions(Calls &calls);
  void assignSlots(Calls &calls);
  LogicalResult checkCalls(pipe::ScheduleOp op, const Calls &calls);
  LogicalResult checkSums();
  const ParameterPacks &getPacks(int64_t rank);
  void placeFunctions(const Calls &calls);

  std::map<int64_t, ParameterPacks> packsOf; // by rank of the pipeline

  void getDependentDialects(DialectRegistry &registry) const override {
    PlaceBuffersPassBase::getDependentDialects(registry);
    registry.insert<PlaitDialect>(); // of getRates()
  }

  void runOnOperation() override {
    padRows(getOperation());
    FailureOr<Calls> calls = findCalls();
    if (failed(calls))
      return signalPassFailure();
    // A pass object may run again, on another module.
    packsOf.clear();
    placeFunctions(*calls);
    for (uint32_t rank = 0; rank < calls->schedule.problem.stages; ++rank)
      buildProgram(getOperation(), rank, *calls, getPacks(rank));
  }
};
} // namespace

/// Notes each function by what it does; two that do the same are an error,
/// since an action could mean either.
LogicalResult PlaceBuffersPass::findFunctions(Calls &calls) {
  for (auto function : getOperation().getOps<func::FuncOp>()) {
    pipe::FunctionAttr own = getStageFunction(function);
    if (!own)
      continue;
    auto [known, isNew] = calls.functions.try_emplace(own, function);
    if (!isNew) {
      InFlightDiagnostic diag = function.emitOpError("does ")
                                << own << ", as another function does";
      diag.attachNote(known->second.getLoc()) << "the other one";
      return diag;
    }
  }
  return success();
}

/// Residuals are sorted into sets for all functions of a virtual stage at once,
/// so that they agree on what a slot holds. What happens once a step has none.
void PlaceBuffersPass::assignSlots(Calls &calls) {
  std::map<int64_t, SmallVector<func::FuncOp>> stages;
  for (auto function : getOperation().getOps<func::FuncOp>())
    if (pipe::FunctionAttr own = getStageFunction(function);
        own && !own.isOfRank())
      stages[own.getIndex()].push_back(function);
    else
      calls.slots.try_emplace(function, function, StageResiduals());
  for (auto &[stage, functions] : stages) {
    StageResiduals residuals(
        functions,
        schedule::peakInFlight(calls.schedule, *getRank(functions.front())));
    for (func::FuncOp function : functions)
      calls.slots.try_emplace(function, function, residuals);
  }
}

/// Checks that every action but transfers has a function.
LogicalResult PlaceBuffersPass::checkCalls(pipe::ScheduleOp op,
                                           const Calls &calls) {
  for (const auto &[rank, actions] : llvm::enumerate(calls.schedule.ranks))
    for (const Action &action : actions) {
      if (action.isTransfer())
        continue;
      pipe::FunctionAttr callee =
          getCallee(&getContext(), calls.schedule.problem, rank, action);
      if (!calls.functions.contains(callee))
        return op.emitOpError("has action ")
               << schedule::print(action) << " on rank " << rank
               << ", but no function does " << callee;
    }
  return success();
}

/// Whatever adds to memory is computed there, so somebody has to compute it.
LogicalResult PlaceBuffersPass::checkSums() {
  for (auto op : nn::findAccesses(getOperation(), nn::SlotAccess::Add))
    if (!op.getTensor().getDefiningOp())
      return op.emitOpError("adds an argument, which no op of the function has "
                            "computed");
  return success();
}

/// The module's schedule, with transfers, after a check that there is what it
/// relies on.
FailureOr<Calls> PlaceBuffersPass::findCalls() {
  auto schedules = getOperation().getOps<pipe::ScheduleOp>();
  if (schedules.empty())
    return getOperation().emitOpError("has no pipe.schedule");
  pipe::ScheduleOp op = *schedules.begin();
  pipe::PlacementAttr placement = getPlacement(getOperation());
  if (op.getPlacement() != placement)
    return op.emitOpError("orders stages on ")
           << op.getPlacement() << ", but they are on " << placement;
  Result<schedule::Schedule> schedule = pipe::getSchedule(op);
  if (!schedule.ok())
    return op.emitError(schedule.status().message());
  // A schedule that was edited may still be called as before.
  if (Status status = schedule::checkNamedBound(*schedule); !status.ok())
    op.emitWarning(status.message());
  Calls calls;
  // Complete already in the usual order of phases, and then left as it is; a
  // test may begin with one that holds the computing alone.
  calls.schedule = completeSchedule(getOperation(), *schedule);
  if (failed(findFunctions(calls)) || failed(checkCalls(op, calls)) ||
      failed(checkSums()))
    return failure();
  assignSlots(calls);
  return calls;
}

/// Made once per rank; -1 stands for no rank.
const ParameterPacks &PlaceBuffersPass::getPacks(int64_t rank) {
  return packsOf.try_emplace(rank, getOperation(), rank).first->second;
}

/// A sum that several functions of a rank add to begins with the one that is
/// called first.
void PlaceBuffersPass::placeFunctions(const Calls &calls) {
  llvm::DenseSet<Operation *> placed;
  // Ops are moved before addresses are given: afterwards an order decides which
  // bytes are free.
  auto place = [&](func::FuncOp function, const llvm::StringSet<> &begun) {
    // A function of no stage knows no packs.
    Unmoved unmoved;
    Surroundings surroundings{getPacks(getRank(function).value_or(-1)),
                              calls.slots.at(function), unmoved};
    spreadReplicas(function);
    startGathers(function, surroundings);
    delayMatmuls(function, surroundings);
    placeValues(function, surroundings, begun);
  };
  for (const auto &[rank, actions] : llvm::enumerate(calls.schedule.ranks)) {
    llvm::StringSet<> begun;
    for (const Action &action : actions) {
      func::FuncOp function;
      if (!action.isTransfer())
        function = calls.functions.lookup(
            getCallee(&getContext(), calls.schedule.problem, rank, action));
      if (!function || !placed.insert(function).second)
        continue;
      // Before what it adds to is noted as begun: its own sums it begins.
      place(function, begun);
      for (auto add : nn::findAccesses(function, nn::SlotAccess::Add))
        begun.insert(bufferName(add.getSymbol(), add.getSlot()));
    }
  }
  // Those that no action calls, so that every function of the module has
  // addresses.
  for (auto function : getOperation().getOps<func::FuncOp>())
    if (!placed.contains(function))
      place(function, {});
}
