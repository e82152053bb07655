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
// A GEMM that stands behind another collective, which has use for it, is only
// moved as far as it is needed: some of its rows, if that is best
// (plait/Support/PieceOverlap.h).
//
// Only GEMMs move, and only upwards. Collectives stay in their order, which all
// ranks of a group must share, and a pair of steps of which one writes what the
// other uses is never exchanged: so all results stay the same bits.
//
//===----------------------------------------------------------------------===//

#include "../Remarks.h"
#include "Footprint.h"
#include "GemmRows.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Support/PieceOverlap.h"
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
      : module(function->getParentOfType<ModuleOp>()), aliases(aliases),
        rates(getRates(module)) {
    // Uses are resolved once: fill() compares them once for each collective.
    for (StepOpInterface step : getSteps(function)) {
      positions.push_back(order.size());
      order.push_back(order.size());
      steps.push_back(step);
      uses.push_back(aliases.resolve(step));
      flops.push_back(step.getMatrixFlops());
      last.push_back(flops.back() == 0 ? -1 : findLastConflict());
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
  double flopsAt(size_t position) { return flops[order[position]]; }

  /// The last step before the newest one that may not be exchanged with it, or
  /// -1. A GEMM mostly finds the maker of an operand a few steps back.
  int64_t findLastConflict() const {
    Footprint own;
    own.add(uses.back());
    int64_t step = int64_t(uses.size()) - 2;
    while (step >= 0 && !own.conflicts(uses[step]))
      --step;
    return step;
  }

  /// Whether a step that `gemm` may not be moved over stands at `position` or
  /// behind, as far as one is known without a look at those in between.
  bool isHeldBehind(size_t position, uint32_t gemm) const {
    return last[gemm] >= 0 && positions[last[gemm]] >= position;
  }

  /// Moves the step at `from` up to `to`; what was between keeps its order.
  void move(size_t from, size_t to) {
    std::rotate(order.begin() + to, order.begin() + from,
                order.begin() + from + 1);
    for (size_t i = to; i <= from; ++i)
      positions[order[i]] = i;
  }

  /// Returns how many rows of the GEMM `step` to move up to where `missing`
  /// FLOPs are missing: 0 means that it stays. All of those of one for which
  /// nothing else `hasUse`.
  int64_t countRows(uint32_t step, double missing, bool hasUse) {
    auto gemm = dyn_cast<GemmOp>(steps[step].getOperation());
    int64_t rows = gemm ? int64_t(gemm.getM()) : 1;
    if (!hasUse)
      return rows;
    // What cannot be cut moves where half of it is needed at least.
    if (!gemm || gemm.getEpilogue() != Epilogue::None)
      return flops[step] < 2 * missing ? rows : 0;
    int64_t count = 1;
    for (int64_t size : gemm.getBatchSizes())
      count *= size;
    return chooseRows(rows, gemm.getN(), count, rates.getGemmUnits(),
                      flops[step], missing);
  }

  /// Cuts the step at `position`, if it has more than `rows`: the first ones
  /// become a step of their own there.
  void cut(size_t position, int64_t rows) {
    uint32_t step = order[position];
    auto gemm = dyn_cast<GemmOp>(steps[step].getOperation());
    if (!gemm || rows == int64_t(gemm.getM()))
      return;
    OpBuilder builder(gemm);
    steps.push_back(createRows(builder, gemm, 0, rows));
    steps[step] = createRows(builder, gemm, rows, gemm.getM() - rows);
    gemm->erase();
    last.push_back(last[step]);
    positions.push_back(0);
    uses.emplace_back();
    flops.emplace_back();
    order.insert(order.begin() + position, uint32_t(steps.size() - 1));
    for (uint32_t own : {step, uint32_t(steps.size() - 1)}) {
      uses[own] = aliases.resolve(steps[own]);
      flops[own] = steps[own].getMatrixFlops();
    }
    for (size_t i = position; i < order.size(); ++i)
      positions[order[i]] = i;
  }

  /// Gives the collective at `position` something to hide behind, as much as a
  /// device computes meanwhile.
  LogicalResult fill(size_t position) {
    StepMessage sent = steps[order[position]].getSent();
    // A copy to or from another place stands where it is to begin.
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
    // `between` is what a GEMM would be moved over, from the user on; it is
    // filled up to `known` when a GEMM asks for it, which few do far from here.
    Footprint between;
    size_t first = user, known = user;
    bool hasUse = false; // a collective in front of the GEMM, for it
    for (size_t i = user; i < order.size() && missing > 0; ++i) {
      uint32_t gemm = order[i];
      hasUse |= bool(steps[gemm].getStream());
      if (flops[gemm] == 0 || isHeldBehind(user, gemm) ||
          collective.conflicts(uses[gemm]))
        continue;
      for (; known < i; ++known)
        between.add(uses[order[known]]);
      int64_t rows = countRows(gemm, missing, hasUse);
      if (rows == 0 || between.conflicts(uses[gemm]))
        continue;
      // That takes time linear in the distance, for each GEMM that is moved.
      cut(i, rows);
      missing -= flopsAt(i);
      move(i, user++);
      ++known; // one step more stands in front of it
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
  const Aliases &aliases;
  RatesAttr rates;
  SmallVector<StepOpInterface> steps;
  std::vector<ResolvedUses> uses; // by step
  std::vector<double> flops;
  std::vector<int64_t> last;     // see findLastConflict
  std::vector<size_t> positions; // in `order`
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
