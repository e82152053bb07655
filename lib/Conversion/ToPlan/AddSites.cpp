//===- AddSites.cpp - Copies a plan to several sites ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All that is compiled and proven is the step of one site. Here it becomes that
// of each, and beside it come lists of what sites do together. They work on
// weights where these are: what lies side by side is one message, as each costs
// the latency between sites. New state is placed behind all that is there, and
// what is received where the step had its activations.
//
//===----------------------------------------------------------------------===//

#include "AddSites.h"

#include "SiteBuilder.h"
#include "plait/Configuration/Mixing.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Sites.h"
#include "plait/Support/Collectives.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MathExtras.h"

#include <map>

using namespace plait;
using namespace plait::plan;

static uint64_t countElements(llvm::ArrayRef<int64_t> shape) {
  uint64_t elements = 1;
  for (int64_t size : shape)
    elements *= size;
  return elements;
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// The regions of trained weights, each of them one range: a pack is one
/// region, and what its members leave of it is padding. Copies have regions of
/// their own. A region whose weights are sent in several messages is cut where
/// another one begins.
llvm::SmallVector<SentRange> SiteBuilder::findRanges() const {
  llvm::SmallVector<SentRange> found;
  for (const auto &region : program.regions) {
    // First, as most regions are of activations.
    if (region->category != fb::Category::Parameters)
      continue;
    SentRange range = {region->offset, region->offset + region->bytes};
    std::map<uint64_t, FragmentPlace> begins;
    for (const auto &shard : program.shards)
      if (!plan.parameters[shard->parameter]->frozen &&
          range.contains(shard->weight))
        begins.try_emplace(shard->weight, places[shard->parameter]);
    if (begins.empty())
      continue;
    range.place = begins.begin()->second;
    for (auto [begin, place] : begins)
      if (place != range.place) {
        found.push_back({range.begin, begin, range.place});
        range = {begin, range.end, place};
      }
    found.push_back(range);
  }
  return found;
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

/// Behind the arena so far, live from beginning to end.
uint64_t SiteBuilder::allocate(const llvm::Twine &name, uint64_t bytes,
                               fb::Category category) {
  auto region = std::make_unique<fb::RegionT>();
  region->name = name.str();
  region->category = category;
  region->offset = llvm::alignTo(program.arena_bytes, 64);
  region->bytes = bytes;
  region->last_action = program.actions.size() - 1;
  program.arena_bytes = llvm::alignTo(region->offset + region->bytes, 64);
  program.regions.push_back(std::move(region));
  return program.regions.back()->offset;
}

uint64_t SiteBuilder::allocate(const SentRange &range, llvm::StringRef what) {
  return allocate(what + " of weights at " + llvm::Twine(range.begin),
                  range.end - range.begin);
}

/// Puts a state of the ranges of a message side by side.
void SiteBuilder::placeSideBySide(llvm::StringRef name,
                                  uint64_t SentRange::*state) {
  llvm::MapVector<std::pair<uint32_t, uint32_t>, uint64_t> bytes;
  for (const SentRange &range : ranges)
    bytes[{range.place.fragment, range.place.part}] += range.end - range.begin;
  for (auto &[place, count] : bytes)
    count = allocate(llvm::Twine(name) + " of fragment " +
                         llvm::Twine(place.first + 1) + ", part " +
                         llvm::Twine(place.second + 1),
                     count);
  for (SentRange &range : ranges) {
    uint64_t &next = bytes[{range.place.fragment, range.place.part}];
    range.*state = next;
    next += range.end - range.begin;
  }
}

/// State of the inner optimizer becomes a site's own, and so is what it has
/// moved by.
void SiteBuilder::addState() {
  bool hasAnchor = outer.keepsAnchor(), hasMomentum = outer.keepsMomentum();
  bool isSplit = outer.keepsDifference();
  bool hasError = compress.keepsError();
  if (isSplit)
    placeSideBySide(kDifferenceState, &SentRange::difference);
  if (isSplit && hasError)
    placeSideBySide(kSiteErrorState, &SentRange::error);
  for (SentRange &range : ranges) {
    if (hasError && !isSplit)
      range.error = allocate(range, kSiteErrorState);
    if (hasAnchor)
      range.anchor = allocate(range, kAnchorState);
    if (hasMomentum)
      range.momentum = allocate(range, kOuterMomentumState);
    if (outer.corrects())
      range.correction = allocate(range, kCorrectionState);
    if (outer.keepsBefore())
      range.before = allocate(range, kBeforeState);
  }
  for (const auto &shard : program.shards) {
    for (auto &slot : shard->state)
      slot->own_axis = axis;
    if (plan.parameters[shard->parameter]->frozen)
      continue;
    const SentRange &range = *llvm::find_if(ranges, [&](const SentRange &one) {
      return one.contains(shard->weight);
    });
    auto add = [&](llvm::StringRef name, uint64_t begin, bool fromWeight,
                   uint8_t ownAxis = 0) {
      auto slot = std::make_unique<fb::StateSlotT>();
      slot->name = name;
      slot->offset = begin + (shard->weight - range.begin);
      slot->like_weight = true;
      slot->from_weight = fromWeight;
      slot->own_axis = ownAxis;
      shard->state.push_back(std::move(slot));
    };
    if (hasAnchor)
      add(kAnchorState, range.anchor, true);
    if (hasMomentum)
      add(kOuterMomentumState, range.momentum, false);
    if (isSplit)
      add(kDifferenceState, range.difference, false, axis);
    if (hasError)
      add(kSiteErrorState, range.error, false, axis);
    if (outer.corrects())
      add(kCorrectionState, range.correction, false, axis);
    if (outer.keepsBefore())
      add(kBeforeState, range.before, true, axis);
  }
}

/// The lowest place that is free once the step is over: what lives to its end
/// lives on. Places that are taken come in the order of their offsets.
uint64_t SiteBuilder::findRoom(uint64_t bytes) const {
  llvm::SmallVector<std::pair<uint64_t, uint64_t>> taken;
  for (const auto &region : program.regions)
    if (region->last_action + 1 >= steps && isInArena(region->offset))
      taken.emplace_back(region->offset, region->offset + region->bytes);
  llvm::sort(taken);
  uint64_t place = 0;
  for (auto [begin, end] : taken) {
    if (place + bytes <= begin)
      break;
    place = std::max<uint64_t>(place, llvm::alignTo(end, 64));
  }
  return place;
}

/// Buffers for the largest range, of which a middle needs a block for each
/// site: one for what stays, one for what is received and, of what is tracked,
/// one more.
void SiteBuilder::placeScratch() {
  uint64_t most = 0;
  for (const SentRange &range : ranges)
    most = std::max(most, range.elements());
  if (outer.is(Agreement::Middle))
    most = llvm::alignTo(most, outer.sites);
  scratchBytes = llvm::alignTo(most * sizeof(float), 64);
  for (uint64_t &place :
       llvm::MutableArrayRef(scratch).take_front(countBuffers()))
    place = addScratch(scratchBytes);
}

uint64_t SiteBuilder::addScratch(uint64_t bytes) {
  auto region = std::make_unique<fb::RegionT>();
  region->name = "what sites receive";
  region->category = fb::Category::Workspace;
  region->offset = findRoom(bytes);
  region->bytes = bytes;
  // Lists come behind the step; build() makes it live to their end.
  region->first_action = steps;
  region->last_action = steps;
  program.arena_bytes =
      std::max<uint64_t>(program.arena_bytes, region->offset + bytes);
  program.regions.push_back(std::move(region));
  return program.regions.back()->offset;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

/// A function without slots, and the action that calls it.
fb::FunctionT &SiteBuilder::addCall() {
  auto action = std::make_unique<fb::ActionT>();
  action->kind = fb::ActionKind::Outer;
  action->function = program.functions.size();
  action->list = list;
  program.actions.push_back(std::move(action));
  program.functions.push_back(std::make_unique<fb::FunctionT>());
  program.functions.back()->name = plan.lists[list]->name;
  return *program.functions.back();
}

void SiteBuilder::addCollective(fb::FunctionT &function, CollectiveKind kind,
                                uint8_t over, uint64_t input, uint64_t output,
                                uint64_t elements, fb::DType dtype) {
  fb::CollectiveStepT step;
  step.kind = uint8_t(kind);
  step.reduction = fb::Reduction::Sum;
  step.axis = over;
  step.outer = 1;
  step.chunk = elements;
  step.dtype = dtype;
  step.input = at(input);
  step.output = at(output);
  addStep(function, std::move(step));
}

void SiteBuilder::addCopy(fb::FunctionT &function, uint64_t source,
                          uint64_t target, uint64_t elements) {
  fb::CopyStepT copy;
  copy.source = at(source);
  copy.target = at(target);
  copy.bytes = elements * sizeof(float);
  addStep(function, std::move(copy));
}

fb::OuterStepT &SiteBuilder::addOuter(fb::FunctionT &function,
                                      fb::OuterKind kind, uint64_t value,
                                      uint64_t elements) {
  fb::OuterStepT step;
  step.kind = kind;
  step.elements = elements;
  step.value = at(value);
  return addStep(function, std::move(step));
}

/// One message; tokens stay a sum.
void SiteBuilder::addReport() {
  list = uint32_t(List::Report);
  fb::FunctionT &function = addCall();
  uint64_t count = size_t(fb::Metric::Count) + plan.named_losses.size();
  addSum(function, program.metrics, count);
  for (uint64_t i = 0; i < count; ++i)
    if (fb::Metric(i) != fb::Metric::TokenCount)
      addOuter(function, fb::OuterKind::Mean,
               program.metrics + i * sizeof(float), 1);
}

//===----------------------------------------------------------------------===//
// Agreements of all sites
//===----------------------------------------------------------------------===//

void SiteBuilder::addDifference(fb::FunctionT &function,
                                const SentRange &range) {
  addOuter(function, fb::OuterKind::Difference, range.begin, range.elements())
      .anchor = at(range.anchor);
}

void SiteBuilder::addUpdate(fb::FunctionT &function, const SentRange &range) {
  fb::OuterStepT &update =
      addOuter(function, fb::OuterKind::Update, range.begin, range.elements());
  update.anchor = at(range.anchor);
  if (outer.keepsMomentum())
    update.momentum = at(range.momentum);
}

/// The mean, or what the second optimizer makes of it.
void SiteBuilder::addMean(fb::FunctionT &function, const SentRange &range) {
  bool hasOptimizer = outer.keepsAnchor();
  if (hasOptimizer)
    addDifference(function, range);
  if (compress.isOn())
    addMessage(function, &range, range.begin);
  else
    addSum(function, range.begin, range.elements());
  if (hasOptimizer)
    addUpdate(function, range);
  else
    addOuter(function, fb::OuterKind::Mean, range.begin, range.elements());
}

/// Each site has a block of the elements of all sites, and all get its result.
void SiteBuilder::addMiddle(fb::FunctionT &function, const SentRange &range) {
  uint64_t block = llvm::divideCeil(range.elements(), outer.sites);
  auto [own, others, _] = scratch;
  addCopy(function, range.begin, own, range.elements());
  addCollective(function, CollectiveKind::AllToAll, own, others, block);
  fb::OuterStepT &middle = addOuter(function, fb::OuterKind::Middle, 0, block);
  middle.value = nullptr;
  middle.others = at(others);
  middle.mixed = at(own);
  addCollective(function, CollectiveKind::AllGather, own, others, block);
  addCopy(function, others, range.begin, range.elements());
}

static bool hasCopy(const fb::PlanT &plan, const fb::ShardT &shard) {
  bool isDivided = shard.division || !shard.state_dims.empty();
  return shard.compute_dtype == fb::DType::BF16 && !isDivided &&
         !plan.parameters[shard.parameter]->frozen;
}

void SiteBuilder::addRounding(fb::FunctionT &function, uint32_t fragment) {
  for (const auto &shard : program.shards)
    if (hasCopy(plan, *shard) && places[shard->parameter].fragment == fragment)
      addOuter(function, fb::OuterKind::Round, shard->weight,
               countElements(shard->local_shape))
          .copy = at(shard->compute_weight);
}

/// Range by range, and the copies at the end.
void SiteBuilder::addAgreement() {
  fb::FunctionT &function = addCall();
  if (outer.is(Agreement::Clipping))
    return addClipping(function);
  for (const SentRange &range : ranges)
    if (outer.is(Agreement::Middle))
      addMiddle(function, range);
    else if (outer.corrects())
      addScaffold(function, range);
    else
      addMean(function, range);
  addRounding(function);
}

/// A rank that has nothing of it gets a call of nothing.
void SiteBuilder::addFragment(const ListFacts &facts) {
  fb::FunctionT &function = addCall();
  if (facts.deed == FragmentDeed::Sum)
    return addSums(function, {facts.fragment, facts.part});
  bool blends = facts.deed == FragmentDeed::Blend;
  for (const SentRange &range : ranges) {
    if (range.place.fragment != facts.fragment)
      continue;
    fb::OuterStepT &step =
        addOuter(function, blends ? fb::OuterKind::Blend : fb::OuterKind::Part,
                 range.begin, range.elements());
    step.anchor = at(range.anchor);
    step.mixed = at(range.difference);
    if (blends && outer.keepsMomentum())
      step.momentum = at(range.momentum);
  }
  if (blends)
    addRounding(function, facts.fragment);
}

//===----------------------------------------------------------------------===//
// Agreements of neighbours
//===----------------------------------------------------------------------===//

bool SiteBuilder::hasCopies() const {
  return llvm::any_of(program.shards,
                      [&](const auto &shard) { return hasCopy(plan, *shard); });
}

void SiteBuilder::addTransfer(fb::ActionKind kind, uint32_t exchange,
                              uint64_t buffer, const SentRange &range,
                              uint32_t tensor) {
  auto action = std::make_unique<fb::ActionT>();
  action->kind = kind;
  action->list = list;
  action->exchange = exchange;
  action->peer = index;
  action->tensor = tensor;
  action->buffer = buffer;
  action->bytes = range.elements() * sizeof(float);
  program.actions.push_back(std::move(action));
}

/// Everything is sent before anything is waited for, and a weight changes when
/// all neighbours have it.
void SiteBuilder::mix(const SentRange &range, uint64_t value, uint32_t tensor,
                      uint32_t exchanges) {
  auto [mixed, received, _] = scratch;
  for (uint32_t i = 1; i <= exchanges; ++i)
    addTransfer(fb::ActionKind::Send, i, value, range, tensor);
  for (uint32_t i = 1; i <= exchanges; ++i) {
    addTransfer(fb::ActionKind::Recv, i, received, range, tensor);
    fb::OuterStepT &step =
        addOuter(addCall(), fb::OuterKind::Mix, value, range.elements());
    step.others = at(received);
    step.mixed = at(mixed);
    step.exchange = i;
  }
  for (uint32_t i = 1; i <= exchanges; ++i)
    addTransfer(fb::ActionKind::WaitSend, i, value, range, tensor);
}

/// Neighbours have sent their weights, and those of a site become the mean.
void SiteBuilder::agree(const SentRange &range, uint32_t tensor,
                        uint32_t exchanges) {
  mix(range, range.begin, tensor, exchanges);
  addOuter(addCall(), fb::OuterKind::Take, range.begin, range.elements())
      .mixed = at(scratch[0]);
}

void SiteBuilder::addMixing(const fb::MixingT &mixing) {
  if (mixing.exchanges.empty())
    return;
  uint32_t exchanges = mixing.exchanges.size();
  for (auto [tensor, range] : llvm::enumerate(ranges))
    if (outer.corrects())
      track(range, tensor, exchanges);
    else if (outer.keepsBefore())
      joinMixed(range, tensor, exchanges);
    else
      agree(range, tensor, exchanges);
  if (hasCopies())
    addRounding(addCall());
}

/// Regions that live to the end of the step live to the end of the lists:
/// nothing else is placed over it.
void SiteBuilder::build() {
  addState();
  bool mixes =
      llvm::any_of(plan.lists, [](const auto &own) { return own->mixing; });
  if (mixes || outer.is(Agreement::Middle) || outer.corrects())
    placeScratch();
  if (outer.is(Agreement::Clipping))
    scratch[0] = addScratch(sizeof(float));
  if (compress.isOn()) {
    findPieces();
    placeMessages();
  }
  addReport();
  std::vector<ListFacts> facts = listsOf(outer, plan.outer->mixings.size());
  for (list = uint32_t(List::Report) + 1; list < plan.lists.size(); ++list)
    if (facts[list].corrects)
      addCorrections();
    else if (facts[list].deed != FragmentDeed::None)
      addFragment(facts[list]);
    else if (uint32_t mixing = plan.lists[list]->mixing)
      addMixing(*plan.outer->mixings[mixing - 1]);
    else
      addAgreement();
  for (auto &region : program.regions)
    if (region->last_action + 1 >= steps)
      region->last_action = program.actions.size() - 1;
  if (outer.delay)
    moveBeside(facts);
}

/// Sends what is on its way for some steps beside these: it begins before
/// them, and nothing waits for it until it is taken.
void SiteBuilder::moveBeside(llvm::ArrayRef<ListFacts> facts) {
  uint32_t moved = llvm::count_if(program.actions, [&](const auto &action) {
    return facts[action->list].deed == FragmentDeed::Sum;
  });
  std::stable_partition(program.actions.begin(), program.actions.end(),
                        [&](const auto &action) {
                          return facts[action->list].deed == FragmentDeed::Sum;
                        });
  uint32_t end = program.actions.size() - 1;
  for (auto &region : program.regions) {
    bool isLasting = region->last_action == end;
    if (!isLasting || region->first_action)
      region->first_action += moved;
    if (!isLasting)
      region->last_action += moved;
  }
}

//===----------------------------------------------------------------------===//
// The plan
//===----------------------------------------------------------------------===//

/// The matrices of the graph, which has been checked, as exchanges.
static std::vector<std::unique_ptr<fb::MixingT>>
makeMixings(const Outer &outer) {
  std::vector<std::unique_ptr<fb::MixingT>> mixings;
  if (!outer.is(Agreement::Gossip))
    return mixings;
  Result<std::vector<Matrix>> period =
      plait::makeMixings("`outer`", outer.getGraph(), outer.sites);
  for (const Matrix &matrix : *period) {
    mixings.push_back(std::make_unique<fb::MixingT>());
    for (MixingExchange &own : makeExchanges(matrix, outer.sites)) {
      auto exchange = std::make_unique<fb::SiteExchangeT>();
      exchange->targets = std::move(own.targets);
      exchange->weights = std::move(own.weights);
      mixings.back()->exchanges.push_back(std::move(exchange));
    }
  }
  return mixings;
}

static std::unique_ptr<fb::OuterRuleT> makeRule(const Outer &outer) {
  auto rule = std::make_unique<fb::OuterRuleT>();
  rule->scheme = outer.getName();
  rule->every = outer.every;
  rule->rate = outer.rate;
  rule->momentum = outer.momentum;
  rule->drop = outer.countDropped();
  rule->average = outer.average;
  rule->graph = outer.getGraph();
  rule->mixings = makeMixings(outer);
  rule->fragments = outer.fragments;
  rule->delay = outer.delay;
  rule->mix = outer.mix;
  rule->radius = outer.radius;
  return rule;
}

static std::vector<FragmentPlace> placeInFragments(const fb::PlanT &plan,
                                                   const Outer &outer) {
  llvm::SmallVector<SizedName> all;
  for (const auto &parameter : plan.parameters)
    all.push_back({parameter->name, parameter->frozen
                                        ? 0
                                        : countElements(parameter->box_shape)});
  return plan::placeInFragments(outer, all);
}

/// Fails where a fragment would be of nothing.
static Status checkFragments(const fb::PlanT &plan, const Outer &outer,
                             llvm::ArrayRef<FragmentPlace> places) {
  llvm::SmallVector<bool> has(outer.fragments, false);
  for (auto [parameter, place] : llvm::zip(plan.parameters, places))
    if (!parameter->frozen && outer.fragments)
      has[place.fragment] = true;
  auto empty = llvm::find(has, false);
  return empty == has.end()
             ? Status::success()
             : fail("`outer` has fragments ", outer.fragments,
                    ", which is more than the layers that are trained: "
                    "fragment ",
                    empty - has.begin() + 1, " has none");
}

Status plait::addSites(fb::PlanT &plan, const Outer &outer) {
  std::vector<FragmentPlace> places = ::placeInFragments(plan, outer);
  PLAIT_RETURN_IF_ERROR(checkFragments(plan, outer, places));
  PLAIT_RETURN_IF_ERROR(checkChunks(plan, outer));
  plan.outer = makeRule(outer);
  for (const ListFacts &facts : listsOf(outer, plan.outer->mixings.size())) {
    auto list = std::make_unique<fb::ActionListT>();
    list->name = facts.name;
    list->every = facts.every;
    list->phase = facts.phase;
    list->except = facts.except;
    list->mixing = facts.mixing;
    plan.lists.push_back(std::move(list));
  }
  plan.model_flops *= double(outer.sites);
  plan.locations.push_back("what sites exchange");
  uint8_t axis = plan.mesh.size();
  for (uint32_t i = 0; i < plan.programs.size(); ++i)
    SiteBuilder(plan, i, outer, places, axis, plan.locations.size() - 1)
        .build();
  auto sites = std::make_unique<fb::MeshAxisT>();
  sites->name = kSitesAxis;
  sites->size = outer.sites;
  plan.mesh.push_back(std::move(sites));
  return Status::success();
}
