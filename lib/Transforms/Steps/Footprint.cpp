//===- Footprint.cpp - What steps read and write --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Footprint.h"

#include <limits>
#include <numeric>

using namespace mlir;
using namespace plait;
using namespace plait::plan;

void ByteSet::add(const SlotBytes &bytes) {
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

bool ByteSet::touches(const SlotBytes &bytes) const {
  auto ranges = slots.find(bytes.slot);
  if (ranges == slots.end())
    return false;
  auto next = ranges->second.lower_bound(bytes.end);
  return next != ranges->second.begin() &&
         std::prev(next)->second > bytes.begin;
}

Aliases::Aliases(FunctionOp function, ArrayRef<ActionOp> calls,
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

SlotBytes Aliases::resolve(MemoryAttr used) const {
  if (used.getBuffer())
    return locate(used);
  int64_t slot = used.getSlot();
  if (aliases[slot] != slot)
    return {aliases[slot], 0, std::numeric_limits<int64_t>::max()};
  return {slot, used.getOffset(), used.getEnd()};
}

ResolvedUses Aliases::resolve(StepOpInterface step) const {
  ResolvedUses uses;
  for (const StepUse &use : step.getUses())
    uses.push_back({resolve(use.memory), use.writes});
  return uses;
}

/// Locates memory that a step names directly.
SlotBytes Aliases::locate(MemoryAttr used) const {
  ProgramMemory::Range range = memory.resolve(ActionOp(), used);
  return {-1, range.begin, range.end};
}

/// Joins the slots that overlap, one with another or with what steps name, in
/// the bytes that `action` binds.
void Aliases::add(ActionOp action) {
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
int64_t Aliases::find(int64_t slot) const {
  while (slot >= 0 && aliases[slot] != slot)
    slot = aliases[slot];
  return slot;
}

/// The smaller one leads: the arena, -1, above all.
void Aliases::join(int64_t left, int64_t right) {
  if (int64_t later = std::max(left, right); later >= 0)
    aliases[later] = std::min(left, right);
}

LogicalResult plait::forEachCalled(
    ModuleOp module,
    function_ref<LogicalResult(FunctionOp, const Aliases &)> visit) {
  if (failed(verifySteps(module)))
    return failure();
  SymbolTableCollection symbols;
  for (auto program : module.getOps<ProgramOp>()) {
    ProgramMemory memory(program);
    llvm::DenseMap<Attribute, SmallVector<ActionOp>> calls;
    for (auto action : program.getBody().getOps<ActionOp>())
      if (auto callee = action.getCalleeAttr())
        calls[callee.getAttr()].push_back(action);
    for (FunctionOp function : getCalled(program, symbols))
      if (failed(visit(
              function,
              Aliases(function, calls[function.getSymNameAttr()], memory))))
        return failure();
  }
  return success();
}
