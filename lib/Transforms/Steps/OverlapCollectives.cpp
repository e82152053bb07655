//===- OverlapCollectives.cpp - GEMMs beside collectives ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Moves GEMMs between a collective that runs on a stream of its own and the
// first step that waits for it.
//
// The order within a function decides what a GPU can do at the same time, since
// streams follow it (plait/Plan/Streams.h). In the backward pass of tensor
// parallelism, the sum of an input gradient stands right before the op that
// needs it, and matmuls of weight gradients behind: moved up, they run while
// the sum is under way.
//
// Only GEMMs move, and only upwards. Collectives stay in their order, which all
// ranks of a group must share, and a pair of steps of which one writes what the
// other uses is never exchanged: so all results stay the same bits.
//
//===----------------------------------------------------------------------===//

#include "../Remarks.h"
#include "Footprint.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Transforms/Passes.h"

#include <algorithm>

namespace plait {
#define GEN_PASS_DEF_OVERLAPCOLLECTIVESPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using namespace plait::plan;

namespace {

/// Orders the steps of one function.
class Orderer {
public:
  Orderer(FunctionOp function, const Aliases &aliases)
      : module(function->getParentOfType<ModuleOp>()), rates(getRates(module)) {
    // Uses are resolved once: fill() compares them once for each collective.
    for (StepOpInterface step : getSteps(function)) {
      order.push_back(order.size());
      steps.push_back(step);
      uses.push_back(aliases.resolve(step));
    }
  }

  /// Visits collectives in their order, which never changes: all ranks of a
  /// group have to meet in the same one.
  LogicalResult run() {
    for (size_t i = 0; i < order.size(); ++i)
      if (steps[order[i]].getStream() && failed(fill(i)))
        return failure();
    // Unchanged: the IR is left alone.
    if (llvm::is_sorted(order))
      return success();
    Block *block = steps.front()->getBlock();
    for (uint32_t step : order)
      steps[step]->moveBefore(block, block->end());
    return success();
  }

private:
  double flopsAt(size_t position) {
    return steps[order[position]].getMatrixFlops();
  }

  /// Gives the collective at `position` something to hide behind, as much as a
  /// device computes meanwhile.
  LogicalResult fill(size_t position) {
    StepMessage sent = steps[order[position]].getSent();
    // A copy to or from the host stands where it is to begin.
    if (sent.axis.empty())
      return success();
    FailureOr<LinkAttr> link = getLink(module, sent.axis);
    if (failed(link))
      return failure();
    Footprint collective;
    collective.add(uses[order[position]]);
    // In FLOPs, as GEMMs count: what the device would do while the message is
    // under way. GEMMs that already run there count towards it.
    double missing =
        link->getSeconds(sent.bytes) / rates.getGemmSeconds(/*flops=*/1);
    // The first step that cannot start before the collective is done.
    size_t user = position + 1;
    for (; user < order.size() && !collective.conflicts(uses[order[user]]);
         ++user)
      missing -= flopsAt(user);
    // Greedy, in order: a later collective takes what this one leaves. A GEMM
    // that is not moved joins what others may not be moved over, so that no
    // two exchange which conflict.
    // `between` is what a GEMM would be moved over, from the user on.
    Footprint between;
    size_t first = user;
    for (size_t i = user; i < order.size() && missing > 0; ++i) {
      double flops = flopsAt(i);
      if (flops == 0 || collective.conflicts(uses[order[i]]) ||
          between.conflicts(uses[order[i]])) {
        between.add(uses[order[i]]);
        continue;
      }
      // The GEMM goes in front of the user; what was between keeps its order.
      // That takes time linear in the distance, for each GEMM that is moved.
      missing -= flops;
      std::rotate(order.begin() + user, order.begin() + i,
                  order.begin() + i + 1);
      ++user;
    }
    tell(steps[order[position]], user - first, missing);
    return success();
  }

  /// Why the collective is hidden, or not.
  static void tell(StepOpInterface collective, size_t moved, double missing) {
    auto options = about(collective, "overlap", "plan-overlap-collectives");
    if (moved)
      remark::passed(collective.getLoc(), options)
          << remark::add("{0} GEMMs overlapped with this collective", moved);
    if (missing > 0)
      remark::missed(collective.getLoc(), options)
          << remark::add("{0:E2} more FLOPs would be needed to hide this "
                         "collective, and no GEMM is left that may be moved",
                         missing);
  }

  ModuleOp module;
  RatesAttr rates;
  SmallVector<StepOpInterface> steps;
  std::vector<ResolvedUses> uses; // by step
  SmallVector<uint32_t> order;
};

struct OverlapCollectivesPass
    : plait::impl::OverlapCollectivesPassBase<OverlapCollectivesPass> {
  void runOnOperation() override {
    TargetAttr target = getTarget(getOperation());
    if (!target || !target.isGPU())
      return;
    auto visit = [](FunctionOp function, const Aliases &aliases) {
      return Orderer(function, aliases).run();
    };
    if (failed(forEachCalled(getOperation(), visit)))
      signalPassFailure();
  }
};
} // namespace
