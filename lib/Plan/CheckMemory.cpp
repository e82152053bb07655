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

/// Regions begin in order of time; before each one begins, those that have
/// ended are taken out. Regions without bytes share nothing.
Status checkProgram(uint32_t index, const fb::Program &program) {
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
  return Status::success();
}

} // namespace

Status plan::checkMemory(const fb::Plan &plan) {
  for (uint32_t i = 0; i < plan.programs()->size(); ++i)
    PLAIT_RETURN_IF_ERROR(checkProgram(i, *plan.programs()->Get(i)));
  return Status::success();
}
