//===- CheckSites.cpp - Sites agree as the plan's scheme says -------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A scheme makes of each weight a sequence of deeds. The checker looks, weight
// by weight, for the steps that touch its bytes: they have to be this sequence,
// each over the whole weight, with the anchor, momentum and copy of this very
// weight. A step that no weight asks for is refused as well. How the lists were
// made plays no role: several weights in one step are as good as one.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Check.h"

#include "CheckSiteRule.h"
#include "SiteDeeds.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Metrics.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Sites.h"
#include "plait/Plan/Uses.h"

#include <algorithm>
#include <optional>
#include <vector>

using namespace plait;
using namespace plait::plan;

namespace {

using Deeds = std::vector<Deed>;

/// The lists of one program. `hasOptimizer` and the like are the scheme's.
class SiteChecker {
public:
  SiteChecker(const fb::Plan &plan, const fb::Program &program,
              const Outer &outer)
      : plan(plan), program(program), rule(*plan.outer()), outer(outer),
        mesh(plan), lists(listsOf(outer, length(rule.mixings()))),
        hasOptimizer(outer.keepsAnchor()) {}

  /// Lists come first: what they do not call is what a site does by itself.
  Status check() {
    PLAIT_RETURN_IF_ERROR(checkActions());
    for (uint32_t i = 0; i < length(program.shards()); ++i)
      PLAIT_RETURN_IF_ERROR(checkShard(*program.shards()->Get(i)));
    PLAIT_RETURN_IF_ERROR(inList(
        uint32_t(List::Report), [&](auto &done) { return checkReport(done); }));
    for (uint32_t i = uint32_t(List::Report) + 1; i < lists.size(); ++i)
      if (lists[i].deed != FragmentDeed::Sum)
        PLAIT_RETURN_IF_ERROR(inList(
            i, [&](auto &done) { return checkWeights(lists[i], done); }));
    PLAIT_RETURN_IF_ERROR(checkFragments(plan, program, outer, lists));
    return checkInside();
  }

private:
  Status checkActions();
  Status checkShard(const fb::Shard &shard) const;
  Status checkStates(const fb::Shard &shard, const std::string &name) const;
  template <typename Scalars> bool dependsOnSite(const Scalars *scalars) const;
  bool knowsOthers(const fb::Step &step) const;
  Status checkInside() const;
  template <typename Check> Status inList(uint32_t list, Check check) const;
  Deeds getAgreement(const ListFacts &list) const;
  Deeds getDeeds(const ListFacts &list, const fb::Shard &shard) const;
  Status checkReport(std::vector<Done> &done) const;
  Status checkWeights(const ListFacts &list, std::vector<Done> &done) const;
  Status checkDeeds(const std::string &name, const ElementRange &value,
                    const Deeds &wanted, std::vector<Done> &done) const;
  uint32_t countHolders(const fb::Shard &shard) const;
  Status checkPlaces(const std::string &name, const fb::Shard &shard,
                     const Done &one) const;
  Status checkMessageOf(const ListFacts &list, const Done &one) const;
  std::string nameOf(const fb::Shard &shard) const {
    return "'" + plan.parameters()->Get(shard.parameter())->name()->str() + "'";
  }
  bool isFrozen(const fb::Shard &shard) const {
    return plan.parameters()->Get(shard.parameter())->frozen();
  }

  const fb::Plan &plan;
  const fb::Program &program;
  const fb::OuterRule &rule;
  const Outer &outer;
  RankGrid mesh;
  std::vector<ListFacts> lists; // which the plan has been found to have
  bool hasOptimizer;
};

} // namespace

//===----------------------------------------------------------------------===//
// Lists
//===----------------------------------------------------------------------===//

/// The step comes first, and then the other lists: one call each, or what a
/// mixing takes. Sums that go on beside the step are before it.
Status SiteChecker::checkActions() {
  std::vector<uint32_t> counts(length(plan.lists()), 0);
  auto getPlace = [&](uint32_t list) -> size_t {
    bool isBeside = lists[list].deed == FragmentDeed::Sum && outer.delay > 0;
    return list + (isBeside ? 0 : lists.size());
  };
  size_t last = 0;
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    uint32_t list = action.list();
    bool isOuter = action.kind() == fb::ActionKind::Outer;
    bool fits = list < counts.size() && getPlace(list) >= last &&
                (list ? isOuter || (isTransfer(action) && action.exchange())
                      : !isOuter && !action.exchange());
    if (!fits)
      return fail(
          "action ", i, " (", fb::EnumNameActionKind(action.kind()),
          ") is in list ", list,
          ", expected a step, and what sites do in the lists behind it");
    last = getPlace(list);
    ++counts[list];
    if (!isOuter)
      continue;
    const fb::Function &function = *program.functions()->Get(action.function());
    if (length(function.slot_bytes()))
      return fail("list '", plan.lists()->Get(list)->name()->str(), "' calls '",
                  function.name()->str(), "', which has slots");
  }
  for (uint32_t i = 0; i < counts.size(); ++i) {
    const fb::ActionList &list = *plan.lists()->Get(i);
    if (i && !list.mixing() && counts[i] != 1)
      return fail("has ", counts[i], " actions in list '", list.name()->str(),
                  "', expected one");
  }
  return Status::success();
}

/// Reads what a list does, and adds to failures which list it is.
template <typename Check>
Status SiteChecker::inList(uint32_t list, Check check) const {
  Result<std::vector<Done>> done = readDeeds(plan, program, list);
  Status status = done.status();
  if (status.ok())
    status = check(*done);
  for (size_t i = 0; status.ok() && i < done->size(); ++i)
    if (!(*done)[i].isWanted)
      status = fail("deed ", i, " is ", kDeeds[size_t((*done)[i].deed)],
                    " of what is no weight that is trained");
  return status.ok() ? status
                     : fail("list '", plan.lists()->Get(list)->name()->str(),
                            "': ", status.message());
}

/// Returns what the list has to do to a trained weight of its fragment, before
/// copies are rounded; a mixing without neighbours does nothing.
Deeds SiteChecker::getAgreement(const ListFacts &list) const {
  if (list.corrects)
    return {Deed::Correct};
  if (list.mixing) {
    if (!length(rule.mixings()->Get(list.mixing - 1)->exchanges()))
      return {};
    if (!outer.keepsBefore())
      return {Deed::Mixing};
    return outer.corrects() ? Deeds{Deed::Tracking, Deed::Mixing, Deed::Keep}
                            : Deeds{Deed::Joining, Deed::Keep};
  }
  switch (outer.get().agreement) {
  case Agreement::Optimizer:
    return {Deed::Difference, outer.isCompressed() ? Deed::Message : Deed::Sum,
            Deed::Update};
  case Agreement::Middle:
    return {Deed::Middle};
  case Agreement::Clipping:
    return {Deed::Difference, Deed::Squares, Deed::Clip, Deed::Sum,
            Deed::Update};
  case Agreement::Streaming:
    return {list.deed == FragmentDeed::Part ? Deed::Part : Deed::Blend};
  case Agreement::Mean:
    if (outer.isCompressed())
      return {Deed::Difference, Deed::Message, Deed::Update};
    [[fallthrough]];
  case Agreement::Gossip:
    return outer.corrects() ? Deeds{Deed::Learn} : Deeds{Deed::Sum, Deed::Mean};
  }
  __builtin_unreachable();
}

/// Copies follow weights, which a part leaves as they are.
Deeds SiteChecker::getDeeds(const ListFacts &list,
                            const fb::Shard &shard) const {
  const fb::Parameter &parameter = *plan.parameters()->Get(shard.parameter());
  bool isElsewhere = list.deed != FragmentDeed::None &&
                     fragmentOf(parameter.name()->string_view(),
                                outer.fragments) != list.fragment;
  if (parameter.frozen() || isElsewhere)
    return {};
  Deeds wanted = getAgreement(list);
  if (!wanted.empty() && wanted.front() != Deed::Part && roundsWeight(shard))
    wanted.push_back(Deed::Round);
  return wanted;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// All steps that touch `value`, in their order, are `wanted`.
Status SiteChecker::checkDeeds(const std::string &name,
                               const ElementRange &value, const Deeds &wanted,
                               std::vector<Done> &done) const {
  size_t count = 0;
  for (Done &one : done) {
    if (one.value.offset >= value.end() || value.offset >= one.value.end())
      continue;
    if (one.value.offset > value.offset || one.value.end() < value.end())
      return fail("a part of ", name, " is left out of ",
                  kDeeds[size_t(one.deed)]);
    if (count == wanted.size() || one.deed != wanted[count])
      return fail(name, " gets ", kDeeds[size_t(one.deed)], ", expected ",
                  count == wanted.size() ? "nothing more"
                                         : kDeeds[size_t(wanted[count])]);
    one.isWanted = true;
    ++count;
  }
  return count == wanted.size()
             ? Status::success()
             : fail(name, " lacks ", kDeeds[size_t(wanted[count])]);
}

/// A site's loss and norm are means of its own, its tokens a number.
Status SiteChecker::checkReport(std::vector<Done> &done) const {
  for (size_t i = 0; i < countMetrics(plan); ++i) {
    ElementRange value = {program.metrics() + i * sizeof(float), 1};
    bool isCount = fb::Metric(i) == fb::Metric::TokenCount;
    PLAIT_RETURN_IF_ERROR(checkDeeds(
        "metric " + std::to_string(i), value,
        isCount ? Deeds{Deed::Sum} : Deeds{Deed::Sum, Deed::Mean}, done));
  }
  ElementRange all = {program.metrics(), countMetrics(plan)};
  for (const Done &one : done)
    if (one.value.offset < all.offset || one.value.end() > all.end())
      return fail("changes what is no metric");
  return Status::success();
}

/// Bytes beside weights in one step are padding of the same region.
Status SiteChecker::checkWeights(const ListFacts &list,
                                 std::vector<Done> &done) const {
  for (uint32_t i = 0; i < length(program.shards()); ++i) {
    const fb::Shard &shard = *program.shards()->Get(i);
    Deeds wanted = getDeeds(list, shard);
    ElementRange value = weightRange(plan, shard);
    PLAIT_RETURN_IF_ERROR(checkDeeds(nameOf(shard), value, wanted, done));
    for (const Done &one : done)
      if (!wanted.empty() && one.value.offset <= value.offset &&
          value.offset < one.value.end())
        PLAIT_RETURN_IF_ERROR(checkPlaces(nameOf(shard), shard, one));
  }
  for (const Done &one : done) {
    uint64_t bytes = one.value.elements * sizeof(float);
    bool isKnown =
        isIn(program, fb::Category::Parameters, one.value.offset, bytes);
    for (std::optional<uint64_t> state :
         {one.anchor, one.momentum, one.difference, one.correction, one.before,
          one.error})
      isKnown &=
          !state || isIn(program, fb::Category::Optimizer, *state, bytes);
    if (!isKnown)
      return fail(kDeeds[size_t(one.deed)], " at ", one.value.offset,
                  " goes beyond the region that it is in");
    if (one.encode)
      PLAIT_RETURN_IF_ERROR(checkMessageOf(list, one));
  }
  return Status::success();
}

/// The trained weights in it, of which each has been found to be wanted.
Status SiteChecker::checkMessageOf(const ListFacts &list,
                                   const Done &one) const {
  std::vector<SentShard> sent;
  for (uint32_t i = 0; i < length(program.shards()); ++i) {
    const fb::Shard &shard = *program.shards()->Get(i);
    if (one.value.offset <= shard.weight() &&
        shard.weight() < one.value.end() && !getDeeds(list, shard).empty())
      sent.push_back({&shard, shard.weight(),
                      stateOf(shard, kSiteErrorState).value_or(0)});
  }
  return checkMessage(plan, outer, one, std::move(sent));
}

/// Ranks of a site that update the same elements of it, on all stages.
uint32_t SiteChecker::countHolders(const fb::Shard &shard) const {
  uint32_t ranks = 0;
  for (uint32_t i = 0; i < length(plan.programs()); ++i)
    for (const fb::Shard *other : *plan.programs()->Get(i)->shards()) {
      bool isMaster = other->compute_dtype() == fb::DType::BF16;
      Sharing sharing = sharingOf(*other, isMaster);
      sharing.ownAxis = mesh.sitesAxis();
      if (other->parameter() == shard.parameter())
        ranks += replicaOf(mesh, mesh.rankOf(i, 0), *other, sharing).count;
    }
  return ranks;
}

/// Operands lie as far behind those of the shard as the value does.
Status SiteChecker::checkPlaces(const std::string &name, const fb::Shard &shard,
                                const Done &one) const {
  uint64_t before = shard.weight() - one.value.offset;
  if (one.deed == Deed::Squares)
    if (uint32_t ranks = countHolders(shard); one.copies != ranks)
      return fail("squares of ", name, " count for 1 of ", one.copies,
                  " ranks, but ", ranks, " of a site have it");
  if (one.copy && *one.copy + before / 2 != shard.compute_weight())
    return fail("the copy of ", name, " is not where it is rounded to");
  for (uint32_t i = 0; i < length(shard.state()); ++i) {
    const fb::StateSlot &slot = *shard.state()->Get(i);
    std::string_view kind = slot.name()->string_view();
    std::optional<uint64_t> used = kind == kAnchorState          ? one.anchor
                                   : kind == kOuterMomentumState ? one.momentum
                                   : kind == kDifferenceState ? one.difference
                                   : kind == kCorrectionState ? one.correction
                                   : kind == kBeforeState     ? one.before
                                                              : std::nullopt;
    if (used && *used + before != slot.offset())
      return fail(kDeeds[size_t(one.deed)], " of ", name, " uses the ", kind,
                  " of another parameter");
  }
  return Status::success();
}

//===----------------------------------------------------------------------===//
// What a site does by itself
//===----------------------------------------------------------------------===//

static bool uses(const DimShardings &dims, uint32_t axis) {
  return std::ranges::any_of(dims, [&](const fb::DimSharding *dim) {
    return dim->axes() && std::ranges::count(*dim->axes(), axis);
  });
}

Status SiteChecker::checkShard(const fb::Shard &shard) const {
  std::string name = nameOf(shard);
  uint32_t axis = mesh.sitesAxis();
  if (uses(*shard.dims(), axis) ||
      (shard.state_dims() && uses(*shard.state_dims(), axis)) ||
      (shard.division() && divides(*shard.division(), axis)))
    return fail(name, " is split over sites, each of which has all of it");
  bool isDivided = shard.division() || shard.state_dims();
  if (isDivided && shard.compute_dtype() == fb::DType::BF16 &&
      std::ranges::none_of(*program.actions(), [](const fb::Action *action) {
        return action->kind() == fb::ActionKind::Gather;
      }))
    return fail("nothing renews the copy of ", name,
                " after sites have agreed");
  return isFrozen(shard) ? Status::success() : checkStates(shard, name);
}

namespace {
/// A kind of state that sites keep of each weight.
struct SiteState {
  std::string_view name, plural;
  bool isShared;   // the same on all sites
  bool fromWeight; // how it begins
  int wanted, count = 0;
};
} // namespace

/// State of the inner optimizer is a site's own, and so is what it has moved
/// by; that of the outer one is there as the scheme says, and the same on all.
Status SiteChecker::checkStates(const fb::Shard &shard,
                                const std::string &name) const {
  SiteState states[] = {
      {kAnchorState, "anchors", true, true, hasOptimizer},
      {kOuterMomentumState, "outer momenta", true, false, rule.momentum() > 0},
      {kDifferenceState, "differences", false, false, outer.keepsDifference()},
      {kCorrectionState, "corrections", false, false, outer.corrects()},
      {kBeforeState, "weights of before", false, true, outer.keepsBefore()},
      {kSiteErrorState, "errors of messages", false, false,
       outer.getCompression().keepsError()}};
  for (uint32_t i = 0; i < length(shard.state()); ++i) {
    const fb::StateSlot &slot = *shard.state()->Get(i);
    std::string_view kind = slot.name()->string_view();
    auto own = std::ranges::find(states, kind, &SiteState::name);
    bool isOfSites = own != std::end(states);
    bool isShared = isOfSites && own->isShared;
    if (isOfSites)
      ++own->count;
    if (slot.own_axis() != (isShared ? 0 : mesh.sitesAxis()))
      return fail(kind, " of ", name, " is ",
                  isShared ? "one of each site" : "the same on all sites");
    if (slot.like_weight() != isOfSites ||
        slot.from_weight() != (isOfSites && own->fromWeight))
      return fail(kind, " of ", name, " does not begin as it has to");
  }
  for (const SiteState &own : states)
    if (own.count != own.wanted)
      return fail(name, " has ", own.count, " ", own.plural, " in scheme ",
                  rule.scheme()->string_view(), ", expected ", own.wanted);
  return Status::success();
}

/// Whether some number of a step is another one on each site.
template <typename Scalars>
bool SiteChecker::dependsOnSite(const Scalars *scalars) const {
  for (uint32_t i = 0; i < length(scalars); ++i)
    if (scalars->Get(i)->axis() == int64_t(mesh.sitesAxis()))
      return true;
  return false;
}

bool SiteChecker::knowsOthers(const fb::Step &step) const {
  if (const auto *collective = step.step_as_CollectiveStep())
    return collective->axis() == mesh.sitesAxis();
  if (const auto *kernel = step.step_as_KernelStep())
    return dependsOnSite(kernel->scalars());
  if (const auto *gemm = step.step_as_GroupedGemmStep())
    return dependsOnSite(gemm->first_expert());
  if (const auto *attention = step.step_as_AttentionStep())
    return dependsOnSite(attention->first_query()) ||
           (attention->dropout() &&
            dependsOnSite(attention->dropout()->first_group()));
  return step.step_type() == fb::StepKind::OuterStep;
}

/// It neither talks to others nor depends on which one it is, but for its
/// samples.
Status SiteChecker::checkInside() const {
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    if (isTransfer(action) || action.list())
      continue;
    const fb::Function &function = *program.functions()->Get(action.function());
    for (uint32_t j = 0; j < length(function.steps()); ++j)
      if (knowsOthers(*function.steps()->Get(j)))
        return fail("function '", function.name()->str(), "', step ", j,
                    ": a step of one site knows of others");
  }
  for (uint32_t i = 0; i < length(program.constants()); ++i)
    if (dependsOnSite(program.constants()->Get(i)->begin()))
      return fail("constant ", i, ": a step of one site knows of others");
  return Status::success();
}

//===----------------------------------------------------------------------===//
// The plan
//===----------------------------------------------------------------------===//

Status plan::checkSites(const fb::Plan &plan) {
  PLAIT_RETURN_IF_ERROR(checkSitesAxis(plan));
  if (!plan.outer())
    return checkNoSites(plan);
  if (isCuda(plan))
    return fail("sites are for processors, the plan is for GPUs");
  Outer outer = outerOf(plan);
  PLAIT_RETURN_IF_ERROR(checkSiteRule(plan, outer));
  PLAIT_RETURN_IF_ERROR(checkSiteLists(plan, outer));
  for (uint32_t i = 0; i < plan.programs()->size(); ++i)
    if (Status status =
            SiteChecker(plan, *plan.programs()->Get(i), outer).check();
        !status.ok())
      return fail("sites: program ", i, ": ", status.message());
  return Status::success();
}
