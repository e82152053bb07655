//===- Overlap.cpp - Products beside collectives --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Overlap.h"

#include "RewriteSteps.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Uses.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace plait;
using namespace plait::plan;

namespace {

/// What a GPU computes while a byte of a collective's result crosses its links:
/// an H100 has 990 TFLOP/s in bf16 and sends and receives 450 GB/s each over
/// NVLink. Slower links leave more time, smaller products use less of the peak.
constexpr double flopsPerByte = 990e12 / 450e9;

/// Bytes of one slot, or of the arena.
struct Bytes {
  int32_t slot;
  uint64_t begin, end;
};

/// A set of bytes.
class ByteSet {
public:
  void add(const Bytes &bytes) {
    if (bytes.begin >= bytes.end)
      return;
    auto &ranges = slots[bytes.slot];
    uint64_t begin = bytes.begin, end = bytes.end;
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
  std::map<int32_t, std::map<uint64_t, uint64_t>> slots; // end by begin
};

/// What steps read and write.
class Footprint {
public:
  void add(const Bytes &bytes, bool writes) {
    (writes ? written : read).add(bytes);
  }
  bool conflicts(const Bytes &bytes, bool writes) const {
    return written.touches(bytes) || (writes && read.touches(bytes));
  }

private:
  ByteSet read, written;
};

/// Reorders the steps of one function.
class Reorderer {
public:
  /// `aliases`: see Aliases.
  Reorderer(const Mesh &mesh, const fb::Function &function,
            const std::vector<int32_t> &aliases)
      : function(function) {
    for (uint32_t i = 0; i < length(function.steps()); ++i) {
      order.push_back(i);
      auto &list = uses.emplace_back();
      for (const Use &use : usesOf(mesh, *function.steps()->Get(i)))
        list.push_back({resolve(use, aliases), use.writes});
    }
  }

  std::vector<uint32_t> run() {
    for (size_t i = 0; i < order.size(); ++i)
      if (stepAt(i).step_as_CollectiveStep())
        fill(i);
    return order;
  }

private:
  struct ResolvedUse {
    Bytes bytes;
    bool writes;
  };

  /// Where slots overlap is not the same in all actions: one that has an alias
  /// counts as a whole.
  Bytes resolve(const Use &use, const std::vector<int32_t> &aliases) const {
    int32_t slot = use.ref->slot();
    if (slot >= 0 && aliases[slot] != slot)
      return {aliases[slot], 0, UINT64_MAX};
    return {slot, use.ref->offset(), use.end(UINT64_MAX)};
  }

  const fb::Step &stepAt(size_t place) const {
    return *function.steps()->Get(order[place]);
  }
  bool conflicts(const Footprint &footprint, uint32_t step) const {
    return std::any_of(uses[step].begin(), uses[step].end(),
                       [&](const ResolvedUse &use) {
                         return footprint.conflicts(use.bytes, use.writes);
                       });
  }
  void add(Footprint &footprint, uint32_t step) const {
    for (const ResolvedUse &use : uses[step])
      footprint.add(use.bytes, use.writes);
  }

  double flopsAt(size_t place) const {
    const auto *product = stepAt(place).step_as_GemmStep();
    if (!product)
      return 0;
    double flops = 2.0 * product->m() * product->n() * product->k();
    for (uint32_t i = 0; i < length(product->batch()); ++i)
      flops *= double(product->batch()->Get(i));
    return flops;
  }

  /// Gives the collective at `place` something to hide behind.
  void fill(size_t place) {
    Footprint collective;
    add(collective, order[place]);
    const Bytes &result = uses[order[place]].back().bytes;
    double missing = flopsPerByte * double(result.end - result.begin);
    size_t user = place + 1;
    for (; user < order.size() && !conflicts(collective, order[user]); ++user)
      missing -= flopsAt(user);
    // What a product would be moved over, from the user on.
    Footprint between;
    for (size_t i = user; i < order.size() && missing > 0; ++i) {
      double flops = flopsAt(i);
      if (flops == 0 || conflicts(collective, order[i]) ||
          conflicts(between, order[i])) {
        add(between, order[i]);
        continue;
      }
      missing -= flops;
      std::rotate(order.begin() + user, order.begin() + i,
                  order.begin() + i + 1);
      ++user;
    }
  }

  const fb::Function &function;
  std::vector<std::vector<ResolvedUse>> uses; // by step
  std::vector<uint32_t> order;
};

/// Of each slot of a function the first one that some action binds to the same
/// bytes; -1 where these are bytes of the arena that steps name directly.
class Aliases {
public:
  Aliases(const Mesh &mesh, const fb::Program &program, int32_t index)
      : function(*program.functions()->Get(index)) {
    for (uint32_t i = 0; i < length(function.slot_bytes()); ++i)
      aliases.push_back(int32_t(i));
    for (uint32_t i = 0; i < length(function.steps()); ++i)
      for (const Use &use : usesOf(mesh, *function.steps()->Get(i)))
        if (use.ref->slot() < 0)
          named.add({-1, use.ref->offset(), use.end(program.arena_bytes())});
    for (uint32_t i = 0; i < length(program.actions()); ++i)
      if (program.actions()->Get(i)->function() == index)
        add(*program.actions()->Get(i));
    for (int32_t &alias : aliases)
      alias = find(alias);
  }

  const std::vector<int32_t> &get() const { return aliases; }

private:
  void add(const fb::Action &action) {
    std::vector<uint32_t> slots(aliases.size());
    std::iota(slots.begin(), slots.end(), 0);
    std::sort(slots.begin(), slots.end(), [&](uint32_t left, uint32_t right) {
      return action.bindings()->Get(left) < action.bindings()->Get(right);
    });
    uint64_t end = 0; // of the slots so far; the last of which is `owner`
    uint32_t owner = 0;
    for (uint32_t slot : slots) {
      uint64_t begin = action.bindings()->Get(slot);
      uint64_t bytes = function.slot_bytes()->Get(slot);
      if (named.touches({-1, begin, begin + bytes}))
        join(find(slot), -1);
      if (begin < end)
        join(find(slot), find(owner));
      if (begin + bytes > end) {
        end = begin + bytes;
        owner = slot;
      }
    }
  }

  int32_t find(int32_t slot) const {
    while (slot >= 0 && aliases[slot] != slot)
      slot = aliases[slot];
    return slot;
  }
  void join(int32_t left, int32_t right) {
    if (int32_t later = std::max(left, right); later >= 0)
      aliases[later] = std::min(left, right);
  }

  const fb::Function &function;
  ByteSet named; // of the arena, by steps
  std::vector<int32_t> aliases;
};

} // namespace

void plan::overlapCollectives(fb::PlanT &plan) {
  rewriteSteps(plan, [](const Mesh &mesh, const fb::Program &program,
                        int32_t index, auto &steps) {
    Aliases aliases(mesh, program, index);
    auto order =
        Reorderer(mesh, *program.functions()->Get(index), aliases.get()).run();
    std::vector<std::unique_ptr<fb::StepT>> moved;
    for (uint32_t step : order)
      moved.push_back(std::move(steps[step]));
    steps = std::move(moved);
  });
}
