//===- CheckFragments.cpp - What fragments add up over sites --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What sites have moved by is added up over several steps, a message in each:
// that of the parameters which are placed in it, once, and of no other. A run
// that another mesh goes on with relies on that.
//
//===----------------------------------------------------------------------===//

#include "SiteDeeds.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Defaults.h"

#include <algorithm>

using namespace plait;
using namespace plait::plan;

static bool meets(const ElementRange &one, const ElementRange &other) {
  return one.offset < other.end() && other.offset < one.end();
}

/// One sum of state or, where a rank has nothing of it, none.
static Result<std::optional<Done>> readSum(const fb::Plan &plan,
                                           const fb::Program &program,
                                           const Outer &outer, uint32_t list) {
  Result<std::vector<Done>> done = readDeeds(plan, program, list);
  if (!done.ok())
    return done.status();
  if (done->empty())
    return std::optional<Done>();
  const Done &one = done->front();
  Deed wanted = outer.isCompressed() ? Deed::Message : Deed::Sum;
  if (one.deed != wanted)
    return fail("has ", kDeeds[size_t(one.deed)], ", expected ",
                kDeeds[size_t(wanted)]);
  if (done->size() > 1)
    return fail("has ", done->size(), " sums, expected one");
  if (!isIn(program, fb::Category::Optimizer, one.value.offset,
            one.value.elements * sizeof(float)))
    return fail("adds up bytes at ", one.value.offset, ", which are no state");
  if (one.error && !isIn(program, fb::Category::Optimizer, *one.error,
                         one.value.elements * sizeof(float)))
    return fail("has errors at ", *one.error, ", which are no state");
  return std::optional(one);
}

/// All that a weight has moved by is in the sum, or nothing that is kept of it.
static Status checkShard(const fb::Plan &plan, const fb::Shard &shard,
                         bool isWanted,
                         const std::optional<ElementRange> &sum) {
  const fb::Parameter &parameter = *plan.parameters()->Get(shard.parameter());
  std::string name = "'" + parameter.name()->str() + "'";
  for (uint32_t i = 0; i < length(shard.state()); ++i) {
    const fb::StateSlot &slot = *shard.state()->Get(i);
    std::string_view kind = slot.name()->string_view();
    ElementRange value = {slot.offset(), weightRange(plan, shard).elements};
    if (isWanted && kind == kDifferenceState) {
      if (!sum || value.offset < sum->offset || sum->end() < value.end())
        return fail("what ", name, " has moved by is not added up as a whole");
    } else if (sum && meets(*sum, value)) {
      return fail("adds up the ", kind, " of ", name);
    }
  }
  return Status::success();
}

Status plan::checkFragments(const fb::Plan &plan, const fb::Program &program,
                            const Outer &outer,
                            std::span<const ListFacts> lists) {
  std::vector<FragmentPlace> places = placeInFragments(plan, outer);
  for (uint32_t i = 0; i < lists.size(); ++i) {
    if (lists[i].deed != FragmentDeed::Sum)
      continue;
    FragmentPlace own = {lists[i].fragment, lists[i].part};
    Result<std::optional<Done>> sum = readSum(plan, program, outer, i);
    Status status = sum.status();
    std::vector<SentShard> sent;
    for (uint32_t j = 0; status.ok() && j < length(program.shards()); ++j) {
      const fb::Shard &shard = *program.shards()->Get(j);
      bool isOwn = places[shard.parameter()] == own;
      status = checkShard(plan, shard, isOwn,
                          *sum ? std::optional((*sum)->value) : std::nullopt);
      auto begin = stateOf(shard, kDifferenceState);
      if (isOwn && begin)
        sent.push_back(
            {&shard, *begin, stateOf(shard, kSiteErrorState).value_or(0)});
    }
    if (status.ok() && *sum && (*sum)->encode)
      status = checkMessage(plan, outer, **sum, std::move(sent));
    if (!status.ok())
      return fail("list '", lists[i].name, "': ", status.message());
  }
  return Status::success();
}
