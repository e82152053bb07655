//===- CheckMemory.cpp - Live regions do not overlap ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two regions may share bytes only at different times. Actions are the clock: a
// region lives from its first to its last action, both included. n log n in the
// regions of a program. What the next step goes on with lives all the time.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Check.h"

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Level.h"

#include <algorithm>
#include <map>
#include <vector>

using namespace plait;
using namespace plait::plan;

namespace {

/// A sweep over the action list that keeps the live regions sorted by offset:
/// since they are disjoint, a new one can only collide with its neighbours.
class LiveRegions {
public:
  /// The live region that shares bytes with `region`, or null.
  const fb::Region *insert(const fb::Region &region) {
    auto next = byOffset.lower_bound(region.offset());
    if (next != byOffset.end() &&
        next->first < region.offset() + region.bytes())
      return next->second;
    if (next != byOffset.begin()) {
      const fb::Region *previous = std::prev(next)->second;
      if (previous->offset() + previous->bytes() > region.offset())
        return previous;
    }
    byOffset.emplace_hint(next, region.offset(), &region);
    return nullptr;
  }

  void erase(const fb::Region &region) { byOffset.erase(region.offset()); }

private:
  std::map<uint64_t, const fb::Region *> byOffset;
};

/// Bytes and lifetime: the two in which regions collide.
std::string describe(const fb::Region &region) {
  std::ostringstream out;
  out << "'" << flatbuffers::GetString(region.name()) << "' (bytes "
      << region.offset() << " to " << region.offset() + region.bytes()
      << ", actions " << region.first_action() << " to " << region.last_action()
      << ")";
  return out.str();
}

/// Weights and the optimizer's state are read by the next step: nothing may
/// take their bytes, not even behind their last use.
Status checkCarried(uint32_t index, const fb::Program &program) {
  uint32_t actions = program.actions() ? program.actions()->size() : 0;
  for (const fb::Region *region : *program.regions()) {
    bool isCarried = region->category() == fb::Category::Parameters ||
                     region->category() == fb::Category::Optimizer;
    if (isCarried && region->bytes() && actions &&
        (region->first_action() > 0 || region->last_action() < actions - 1))
      return fail("program ", index, ": region ", describe(*region),
                  " is carried over to the next step, and does not live for "
                  "all of the ",
                  actions, " actions");
  }
  return Status::success();
}

/// Some regions of a program, to ask what begins in one of them. Of any
/// lifetime, so that they may share bytes.
class RegionIndex {
public:
  template <typename Predicate>
  RegionIndex(const fb::Program &program, Predicate isIn) {
    for (const fb::Region *region : *program.regions())
      if (isIn(*region))
        ends.emplace_back(region->offset(), region->offset() + region->bytes());
    std::sort(ends.begin(), ends.end());
    // Where all regions that begin up to here end.
    for (size_t i = 1; i < ends.size(); ++i)
      ends[i].second = std::max(ends[i].second, ends[i - 1].second);
  }

  bool contains(uint64_t offset) const {
    auto next = std::upper_bound(ends.begin(), ends.end(),
                                 std::pair(offset, UINT64_MAX));
    return next != ends.begin() && offset < std::prev(next)->second;
  }

private:
  std::vector<std::pair<uint64_t, uint64_t>> ends;
};

/// Checks that regions have the right categories. A run keeps regions of some
/// categories from step to step, and skips a step by them: so what is kept has
/// to be in those, and what stands beside it in its own. What is in no region
/// at all has no category either.
class CategoryChecker {
public:
  CategoryChecker(uint32_t index, const fb::Plan &plan)
      : index(index), plan(plan), program(*plan.programs()->Get(index)),
        all(program, [](const fb::Region &) { return true; }) {
    for (fb::Category category : fb::EnumValuesCategory())
      regions.emplace_back(program, [category](const fb::Region &region) {
        return region.category() == category;
      });
  }

  Status check() {
    for (uint32_t i = 0; i < length(program.shards()); ++i)
      PLAIT_RETURN_IF_ERROR(checkShard(*program.shards()->Get(i)));
    for (uint32_t i = 0; i < length(program.inputs()); ++i)
      PLAIT_RETURN_IF_ERROR(check("input", program.inputs()->Get(i)->offset(),
                                  fb::Category::Inputs));
    for (uint32_t i = 0; i < length(program.constants()); ++i)
      PLAIT_RETURN_IF_ERROR(check("constant",
                                  program.constants()->Get(i)->offset(),
                                  fb::Category::Constants));
    PLAIT_RETURN_IF_ERROR(
        check("scalars", program.scalars(), fb::Category::Inputs));
    return check("metrics", program.metrics(), fb::Category::Inputs);
  }

private:
  Status check(const std::string &what, uint64_t offset,
               fb::Category category) {
    if (!all.contains(offset) || regions[size_t(category)].contains(offset))
      return Status::success();
    return fail("program ", index, ": ", what, " at ", offset,
                " is in no region of category ",
                fb::EnumNameCategory(category));
  }

  Status checkShard(const fb::Shard &shard) {
    const fb::Parameter &parameter = *plan.parameters()->Get(shard.parameter());
    std::string of = " of '" + parameter.name()->str() + "'";
    PLAIT_RETURN_IF_ERROR(
        check("weight" + of, shard.weight(), fb::Category::Parameters));
    if (shard.compute_dtype() == fb::DType::BF16)
      PLAIT_RETURN_IF_ERROR(
          check("copy" + of, shard.compute_weight(), fb::Category::Parameters));
    if (parameter.frozen())
      return Status::success();
    PLAIT_RETURN_IF_ERROR(check("gradient" + of, shard.gradient(),
                                addsToError(plan, shard)
                                    ? fb::Category::Optimizer
                                    : fb::Category::Gradients));
    if (shard.division())
      PLAIT_RETURN_IF_ERROR(check("reduced gradient" + of,
                                  shard.division()->reduced(),
                                  fb::Category::Gradients));
    for (uint32_t i = 0; i < length(shard.state()); ++i)
      PLAIT_RETURN_IF_ERROR(check("state" + of, shard.state()->Get(i)->offset(),
                                  fb::Category::Optimizer));
    return Status::success();
  }

  uint32_t index;
  const fb::Plan &plan;
  const fb::Program &program;
  RegionIndex all;
  std::vector<RegionIndex> regions; // by category
};

/// Regions begin in order of time; before each one begins, those that have
/// ended are taken out. Regions without bytes share nothing.
Status checkProgram(uint32_t index, const fb::Plan &plan) {
  const fb::Program &program = *plan.programs()->Get(index);
  if (!program.regions())
    return Status::success();
  PLAIT_RETURN_IF_ERROR(checkCarried(index, program));
  // Two orders of the same regions: by when they begin, and by when they end.
  std::vector<const fb::Region *> starts;
  for (const fb::Region *region : *program.regions())
    if (region->bytes())
      starts.push_back(region);
  std::vector<const fb::Region *> ends = starts;
  // Ties by offset, so that the same plan always reports the same pair.
  std::sort(starts.begin(), starts.end(), [](auto *left, auto *right) {
    return std::pair(left->first_action(), left->offset()) <
           std::pair(right->first_action(), right->offset());
  });
  std::sort(ends.begin(), ends.end(), [](auto *left, auto *right) {
    return left->last_action() < right->last_action();
  });

  LiveRegions live;
  auto end = ends.begin();
  for (const fb::Region *region : starts) {
    // Ends before the end of the list: `region` itself ends no earlier than it
    // begins.
    for (; (*end)->last_action() < region->first_action(); ++end)
      live.erase(**end);
    if (const fb::Region *other = live.insert(*region))
      return fail("program ", index, ": region ", describe(*region),
                  " overlaps ", describe(*other));
  }
  return CategoryChecker(index, plan).check();
}

} // namespace

Status plan::checkMemory(const fb::Plan &plan) {
  for (uint32_t i = 0; i < plan.programs()->size(); ++i)
    PLAIT_RETURN_IF_ERROR(checkProgram(i, plan));
  return Status::success();
}
