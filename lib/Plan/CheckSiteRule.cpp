//===- CheckSiteRule.cpp - The rule of sites, and when it is due ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a plan says of its sites beside what they do: the axis, the rule and its
// matrices, and the lists of actions with the steps that they are run in.
//
//===----------------------------------------------------------------------===//

#include "CheckSiteRule.h"

#include "plait/Configuration/Mixing.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Sites.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace plait;
using namespace plait::plan;

/// The exchanges are those of the graph's matrices: each message goes to
/// another site, and what it counts is what the matrix says.
static Status checkMixing(const fb::Mixing &mixing, const Matrix &matrix,
                          int64_t sites) {
  Matrix left = matrix;
  for (uint32_t i = 0; i < length(mixing.exchanges()); ++i) {
    const fb::SiteExchange &exchange = *mixing.exchanges()->Get(i);
    std::vector<int64_t> sources(sites, -1);
    for (int64_t from = 0; from < sites; ++from) {
      int64_t to = exchange.targets()->Get(from);
      if (to < 0)
        continue;
      if (to == from || sources[to] >= 0)
        return fail("exchange ", i + 1, " sends to site ", to,
                    to == from ? " what it has itself" : " twice");
      sources[to] = from;
    }
    for (int64_t to = 0; to < sites; ++to) {
      double weight = exchange.weights()->Get(to);
      double &wanted = left[to * sites + std::max<int64_t>(0, sources[to])];
      // A plan as text has some of its digits.
      bool isRight =
          sources[to] < 0 ? weight == 0 : std::abs(weight - wanted) <= 1e-9;
      if (!isRight)
        return fail("exchange ", i + 1, " gives site ", to, " weight ", weight,
                    " of what it receives, the graph ",
                    sources[to] < 0 ? 0 : wanted);
      if (sources[to] >= 0)
        wanted = 0;
    }
  }
  for (int64_t i = 0; i < sites * sites; ++i)
    if (i / sites != i % sites && left[i] != 0)
      return fail("site ", i / sites, " receives nothing of site ", i % sites);
  return Status::success();
}

/// Sizes come first: whatever looks for a partner relies on them.
static Status checkMixings(const fb::Plan &plan, const Outer &outer) {
  uint32_t count = length(plan.outer()->mixings());
  std::vector<Matrix> period;
  if (outer.is(Agreement::Gossip)) {
    Result<std::vector<Matrix>> made =
        makeMixings("the plan", outer.getGraph(), outer.sites);
    if (!made.ok())
      return made.status();
    period = std::move(*made);
  }
  if (count != period.size())
    return fail("there are ", count, " mixings, expected ", period.size());
  for (uint32_t i = 0; i < count; ++i) {
    const fb::Mixing &mixing = *plan.outer()->mixings()->Get(i);
    for (uint32_t j = 0; j < length(mixing.exchanges()); ++j)
      for (uint64_t size : {mixing.exchanges()->Get(j)->targets()->size(),
                            mixing.exchanges()->Get(j)->weights()->size()})
        if (int64_t(size) != outer.sites)
          return fail("mixing ", i + 1, ": exchange ", j + 1, " is of ", size,
                      " sites, there are ", outer.sites);
    for (uint32_t j = 0; j < length(mixing.exchanges()); ++j)
      for (int32_t target : *mixing.exchanges()->Get(j)->targets())
        if (target < -1 || target >= outer.sites)
          return fail("mixing ", i + 1, ": exchange ", j + 1, " is with site ",
                      target, ", there are ", outer.sites);
    if (Status status = checkMixing(mixing, period[i], outer.sites);
        !status.ok())
      return fail("mixing ", i + 1, ": ", status.message());
  }
  return Status::success();
}

/// The values that a median drops follow from the sites.
Status plan::checkSiteRule(const fb::Plan &plan, const Outer &outer) {
  PLAIT_RETURN_IF_ERROR(check("the plan", outer));
  if (int64_t(plan.outer()->drop()) != outer.countDropped())
    return fail("drop is ", plan.outer()->drop(), ", expected ",
                outer.countDropped());
  return checkMixings(plan, outer);
}

static std::string describe(const ListFacts &list) {
  std::string text =
      "'" + list.name + "' each " + std::to_string(list.every) + " steps";
  if (list.phase)
    text += " from " + std::to_string(list.phase) + " on";
  if (list.except)
    text += " but for each " + std::to_string(list.except);
  return text +
         (list.mixing ? " by mixing " + std::to_string(list.mixing) : "");
}

/// Compares names, and how often each is run.
Status plan::checkSiteLists(const fb::Plan &plan, const Outer &outer) {
  std::vector<ListFacts> wanted =
      listsOf(outer, length(plan.outer()->mixings()));
  for (uint32_t i = 0; i < wanted.size(); ++i) {
    std::string found = "missing";
    if (i < length(plan.lists())) {
      const fb::ActionList &list = *plan.lists()->Get(i);
      found = describe(ListFacts{list.name()->str(), list.every(), list.phase(),
                                 list.except(), list.mixing()});
    }
    if (found != describe(wanted[i]))
      return fail("list ", i, " is ", found, ", expected ",
                  describe(wanted[i]));
  }
  return length(plan.lists()) == wanted.size()
             ? Status::success()
             : fail("has ", length(plan.lists()), " lists, expected ",
                    wanted.size());
}

/// The axis is the last one, so that all others keep their numbers.
Status plan::checkSitesAxis(const fb::Plan &plan) {
  uint32_t count = 0;
  for (const fb::MeshAxis *axis : *plan.mesh())
    count += axis->name()->string_view() == kSitesAxis;
  bool isLast =
      plan.mesh()->Get(plan.mesh()->size() - 1)->name()->string_view() ==
      kSitesAxis;
  if (count != (plan.outer() ? 1u : 0u) || (count && !isLast))
    return fail("the mesh has ", count, " axes of sites",
                isLast || !count ? "" : ", not the last one", ", and the plan ",
                plan.outer() ? "one rule" : "no rule", " for them");
  return Status::success();
}

/// Plans without sites have nothing of what is above.
Status plan::checkNoSites(const fb::Plan &plan) {
  if (length(plan.lists()))
    return fail("there are lists of actions, but no sites");
  for (uint32_t i = 0; i < plan.programs()->size(); ++i) {
    const fb::Program &program = *plan.programs()->Get(i);
    for (uint32_t j = 0; j < length(program.actions()); ++j)
      if (program.actions()->Get(j)->list() ||
          program.actions()->Get(j)->kind() == fb::ActionKind::Outer)
        return fail("program ", i, ": action ", j,
                    " is about sites, but there are none");
    for (uint32_t j = 0; j < length(program.functions()); ++j)
      for (uint32_t k = 0; k < length(program.functions()->Get(j)->steps());
           ++k)
        if (program.functions()->Get(j)->steps()->Get(k)->step_type() ==
            fb::StepKind::OuterStep)
          return fail("program ", i, ": function ", j, ", step ", k,
                      " is about sites, but there are none");
    for (uint32_t j = 0; j < length(program.shards()); ++j)
      for (uint32_t k = 0; k < length(program.shards()->Get(j)->state()); ++k)
        if (const fb::StateSlot &slot =
                *program.shards()->Get(j)->state()->Get(k);
            slot.like_weight() || slot.from_weight())
          return fail("program ", i, ": ", slot.name()->str(),
                      " begins as a weight, as for sites, but there are none");
  }
  return Status::success();
}
