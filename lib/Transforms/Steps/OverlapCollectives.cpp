//===- OverlapCollectives.cpp - GEMMs beside collectives ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Moves GEMMs between a collective that runs on a stream of its own and the
// first step that waits for it. Which steps may pass each other is decided by
// the bytes that they read and write.
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
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/Steps.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace plait {
#define GEN_PASS_DEF_OVERLAPCOLLECTIVESPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using namespace plait::plan;

namespace {

/// Bytes of one slot, or of the arena.
struct Bytes {
  int64_t slot; // -1: the arena
  int64_t begin, end;
};

/// A set of bytes, as ranges that neither overlap nor touch, so that of those
/// that begin before some byte the last one alone can reach it: `touches` takes
/// the logarithm of the ranges, `add` too but for what it merges.
class ByteSet {
public:
  void add(const Bytes &bytes) {
    if (bytes.begin >= bytes.end)
      return;
    auto &ranges = slots[bytes.slot];
    int64_t begin = bytes.begin, end = bytes.end;
    // Begin with the range that may reach `begin` from before, then swallow all
    // that begin up to `end`.
    auto next = ranges.upper_bound(begin);
    if (next != ranges.begin() && std::prev(next)->second >= begin)
      --next;
    while (next != ranges.end() && next->first <= end) {
      begin = std::min(begin, next->first);
      end = std::max(end, next->second);
      next = ranges.erase(next);
    }
    ranges.emplace(begin, end);
  }

  bool touches(const Bytes &bytes) const {
    auto ranges = slots.find(bytes.slot);
    if (ranges == slots.end())
      return false;
    auto next = ranges->second.lower_bound(bytes.end);
    return next != ranges->second.begin() &&
           std::prev(next)->second > bytes.begin;
  }

private:
  std::map<int64_t, std::map<int64_t, int64_t>> slots; // end by begin
};

/// What steps read and write.
class Footprint {
public:
  void add(const Bytes &bytes, bool writes) {
    (writes ? written : read).add(bytes);
  }
  /// Two reads never conflict.
  bool conflicts(const Bytes &bytes, bool writes) const {
    return written.touches(bytes) || (writes && read.touches(bytes));
  }

private:
  ByteSet read, written;
};

/// Of each slot of a function the first one that some action binds to the same
/// bytes; -1 where these are bytes of the arena that steps name directly.
class Aliases {
public:
  Aliases(FunctionOp function, ArrayRef<ActionOp> calls,
          const ProgramMemory &memory)
      : function(function), memory(memory) {
    for (size_t slot = 0; slot < function.getBytes().size(); ++slot)
      aliases.push_back(slot);
    for (StepOpInterface step : getSteps(function))
      for (const StepUse &use : step.getUses())
        if (use.memory.getBuffer())
          named.add(locate(use.memory));
    // Conservative over all calls: two slots that one action gives the same
    // bytes are one for the order, which all actions share.
    for (ActionOp action : calls)
      add(action);
    for (int64_t &alias : aliases)
      alias = find(alias);
  }

  /// Where slots overlap is not the same in all actions: one that has an alias
  /// counts as a whole.
  Bytes resolve(MemoryAttr used) const {
    if (used.getBuffer())
      return locate(used);
    int64_t slot = used.getSlot();
    if (aliases[slot] != slot)
      return {aliases[slot], 0, std::numeric_limits<int64_t>::max()};
    return {slot, used.getOffset(), used.getEnd()};
  }

private:
  /// Of memory that a step names directly.
  Bytes locate(MemoryAttr used) const {
    ProgramMemory::Range range = memory.resolve(ActionOp(), used);
    return {-1, range.begin, range.end};
  }

  /// Joins the slots that overlap, one with another or with what steps name, in
  /// the bytes that `action` binds.
  void add(ActionOp action) {
    SmallVector<ProgramMemory::Range> bound;
    for (size_t slot = 0; slot < aliases.size(); ++slot) {
      bound.push_back(memory.getBound(action, slot));
      bound.back().end = bound.back().begin + function.getBytes()[slot];
    }
    SmallVector<int64_t> slots(aliases.size());
    std::iota(slots.begin(), slots.end(), 0);
    llvm::sort(slots, [&](int64_t left, int64_t right) {
      return bound[left].begin < bound[right].begin;
    });
    // A sweep over the slots in the order of their bytes. Whoever reaches
    // furthest so far is the only one that can overlap the next.
    int64_t end = 0; // of the slots so far; the last of which is `owner`
    int64_t owner = 0;
    for (int64_t slot : slots) {
      if (named.touches({-1, bound[slot].begin, bound[slot].end}))
        join(find(slot), -1);
      if (bound[slot].begin < end)
        join(find(slot), find(owner));
      if (bound[slot].end > end) {
        end = bound[slot].end;
        owner = slot;
      }
    }
  }

  /// A forest like union-find's, without path compression: there are few slots,
  /// and the constructor flattens it at last.
  int64_t find(int64_t slot) const {
    while (slot >= 0 && aliases[slot] != slot)
      slot = aliases[slot];
    return slot;
  }
  /// The smaller one leads: the arena, -1, above all.
  void join(int64_t left, int64_t right) {
    if (int64_t later = std::max(left, right); later >= 0)
      aliases[later] = std::min(left, right);
  }

  FunctionOp function;
  const ProgramMemory &memory;
  ByteSet named; // of the arena, by steps
  SmallVector<int64_t> aliases;
};

/// Orders the steps of one function.
class Orderer {
public:
  Orderer(FunctionOp function, const Aliases &aliases)
      : module(function->getParentOfType<ModuleOp>()), rates(getRates(module)) {
    // Uses are resolved once: fill() compares them once for each collective.
    for (StepOpInterface step : getSteps(function)) {
      order.push_back(order.size());
      steps.push_back(step);
      auto &list = uses.emplace_back();
      for (const StepUse &use : step.getUses())
        list.push_back({aliases.resolve(use.memory), use.writes});
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
  struct ResolvedUse {
    Bytes bytes;
    bool writes;
  };

  bool conflicts(const Footprint &footprint, uint32_t step) const {
    return llvm::any_of(uses[step], [&](const ResolvedUse &use) {
      return footprint.conflicts(use.bytes, use.writes);
    });
  }
  void add(Footprint &footprint, uint32_t step) const {
    for (const ResolvedUse &use : uses[step])
      footprint.add(use.bytes, use.writes);
  }
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
    add(collective, order[position]);
    // In FLOPs, as GEMMs count: what the device would do while the message is
    // under way. GEMMs that already run there count towards it.
    double missing =
        link->getSeconds(sent.bytes) / rates.getGemmSeconds(/*flops=*/1);
    // The first step that cannot start before the collective is done.
    size_t user = position + 1;
    for (; user < order.size() && !conflicts(collective, order[user]); ++user)
      missing -= flopsAt(user);
    // Greedy, in order: a later collective takes what this one leaves. A GEMM
    // that is not moved joins what others may not be moved over, so that no
    // two exchange which conflict.
    // `between` is what a GEMM would be moved over, from the user on.
    Footprint between;
    size_t first = user;
    for (size_t i = user; i < order.size() && missing > 0; ++i) {
      double flops = flopsAt(i);
      if (flops == 0 || conflicts(collective, order[i]) ||
          conflicts(between, order[i])) {
        add(between, order[i]);
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
          << remark::add("{0} GEMMs moved beside this collective", moved);
    if (missing > 0)
      remark::missed(collective.getLoc(), options)
          << remark::add("{0:E2} more FLOPs would be needed to hide this "
                         "collective, and no GEMM is left that may be moved",
                         missing);
  }

  ModuleOp module;
  RatesAttr rates;
  SmallVector<StepOpInterface> steps;
  std::vector<SmallVector<ResolvedUse>> uses; // by step
  SmallVector<uint32_t> order;
};

struct OverlapCollectivesPass
    : plait::impl::OverlapCollectivesPassBase<OverlapCollectivesPass> {
  void runOnOperation() override {
    TargetAttr target = getTarget(getOperation());
    if (!target || !target.isGPU())
      return;
    if (failed(verifySteps(getOperation())))
      return signalPassFailure();
    for (auto program : getOperation().getOps<ProgramOp>()) {
      ProgramMemory memory(program);
      llvm::DenseMap<Attribute, SmallVector<ActionOp>> calls;
      for (auto action : program.getBody().getOps<ActionOp>())
        if (auto callee = action.getCalleeAttr())
          calls[callee.getAttr()].push_back(action);
      // Once a function, in the light of all of its calls: their slots may
      // overlap in one and not in another.
      for (FunctionOp function : getCalled(program)) {
        Aliases aliases(function, calls[function.getSymNameAttr()], memory);
        if (failed(Orderer(function, aliases).run()))
          return signalPassFailure();
      }
    }
  }
};
} // namespace
