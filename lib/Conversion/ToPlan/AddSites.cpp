//===- AddSites.cpp - Copies a plan to several sites ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All that is compiled and proven is the step of one site. Here it becomes that
// of each, and beside it come two lists of one function each. They work on
// weights where these are: what lies side by side is one message, as each costs
// the latency between sites. New state is placed behind all that is there.
//
//===----------------------------------------------------------------------===//

#include "AddSites.h"

#include "plait/Plan/Ranks.h"
#include "plait/Plan/Sites.h"
#include "plait/Support/Collectives.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MathExtras.h"

#include <array>

using namespace plait;
using namespace plait::plan;

namespace {

/// A range that is sent at once, and where its state is.
struct Range {
  uint64_t begin, end;
  uint64_t anchor = 0, momentum = 0;

  uint64_t elements() const { return (end - begin) / sizeof(float); }
  bool contains(uint64_t offset) const {
    return begin <= offset && offset < end;
  }
};

/// Adds the lists to one program.
class SiteBuilder {
public:
  SiteBuilder(fb::PlanT &plan, fb::ProgramT &program, const Outer &outer,
              uint8_t axis, uint32_t location)
      : plan(plan), program(program), outer(outer), axis(axis),
        location(location), ranges(findRanges()) {}

  void build();

private:
  llvm::SmallVector<Range> findRanges() const;
  uint64_t allocate(const Range &range, llvm::StringRef what);
  void addState();
  void addSum(fb::FunctionT &function, uint64_t offset, uint64_t elements);
  fb::OuterStepT &addOuter(fb::FunctionT &function, fb::OuterKind kind,
                           uint64_t value, uint64_t elements);
  void addReport();
  void addAgreement();
  fb::FunctionT &addList(List list);

  fb::PlanT &plan;
  fb::ProgramT &program;
  const Outer &outer;
  uint8_t axis;
  uint32_t location;
  llvm::SmallVector<Range> ranges;
};

} // namespace

static std::unique_ptr<fb::Ref> at(uint64_t offset) {
  return std::make_unique<fb::Ref>(offset, -1);
}

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
/// their own.
llvm::SmallVector<Range> SiteBuilder::findRanges() const {
  llvm::SmallVector<Range> found;
  for (const auto &region : program.regions) {
    // First, as most regions are of activations.
    if (region->category != fb::Category::Parameters)
      continue;
    Range range = {region->offset, region->offset + region->bytes};
    bool isTrained = llvm::any_of(program.shards, [&](const auto &shard) {
      return !plan.parameters[shard->parameter]->frozen &&
             range.contains(shard->weight);
    });
    if (isTrained)
      found.push_back(range);
  }
  return found;
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

/// Behind the arena so far, live from beginning to end.
uint64_t SiteBuilder::allocate(const Range &range, llvm::StringRef what) {
  auto region = std::make_unique<fb::RegionT>();
  region->name = (what + " of weights at " + llvm::Twine(range.begin)).str();
  region->category = fb::Category::Optimizer;
  region->offset = llvm::alignTo(program.arena_bytes, 64);
  region->bytes = range.end - range.begin;
  region->last_action = program.actions.size() - 1;
  program.arena_bytes = llvm::alignTo(region->offset + region->bytes, 64);
  program.regions.push_back(std::move(region));
  return program.regions.back()->offset;
}

/// State of the inner optimizer becomes a site's own.
void SiteBuilder::addState() {
  bool hasAnchor = outer.keepsAnchor(), hasMomentum = outer.keepsMomentum();
  for (Range &range : ranges) {
    if (hasAnchor)
      range.anchor = allocate(range, kAnchorState);
    if (hasMomentum)
      range.momentum = allocate(range, kOuterMomentumState);
  }
  for (const auto &shard : program.shards) {
    for (auto &slot : shard->state)
      slot->own_axis = axis;
    if (plan.parameters[shard->parameter]->frozen)
      continue;
    const Range &range = *llvm::find_if(
        ranges, [&](const Range &one) { return one.contains(shard->weight); });
    auto add = [&](llvm::StringRef name, uint64_t begin, bool isAnchor) {
      auto slot = std::make_unique<fb::StateSlotT>();
      slot->name = name;
      slot->offset = begin + (shard->weight - range.begin);
      slot->like_weight = true;
      slot->from_weight = isAnchor;
      shard->state.push_back(std::move(slot));
    };
    if (hasAnchor)
      add(kAnchorState, range.anchor, true);
    if (hasMomentum)
      add(kOuterMomentumState, range.momentum, false);
  }
}

//===----------------------------------------------------------------------===//
// Lists
//===----------------------------------------------------------------------===//

/// A function without slots, and the action that calls it.
fb::FunctionT &SiteBuilder::addList(List list) {
  auto action = std::make_unique<fb::ActionT>();
  action->kind = fb::ActionKind::Outer;
  action->function = program.functions.size();
  action->list = uint8_t(list);
  program.actions.push_back(std::move(action));
  program.functions.push_back(std::make_unique<fb::FunctionT>());
  program.functions.back()->name = kListNames[size_t(list)];
  return *program.functions.back();
}

void SiteBuilder::addSum(fb::FunctionT &function, uint64_t offset,
                         uint64_t elements) {
  fb::CollectiveStepT sum;
  sum.kind = uint8_t(CollectiveKind::AllReduce);
  sum.reduction = fb::Reduction::Sum;
  sum.axis = axis;
  sum.outer = 1;
  sum.chunk = elements;
  sum.input = at(offset);
  sum.output = at(offset);
  auto step = std::make_unique<fb::StepT>();
  step->step.Set(std::move(sum));
  step->location = location;
  function.steps.push_back(std::move(step));
}

fb::OuterStepT &SiteBuilder::addOuter(fb::FunctionT &function,
                                      fb::OuterKind kind, uint64_t value,
                                      uint64_t elements) {
  fb::OuterStepT outer;
  outer.kind = kind;
  outer.elements = elements;
  outer.value = at(value);
  auto step = std::make_unique<fb::StepT>();
  step->step.Set(std::move(outer));
  step->location = location;
  function.steps.push_back(std::move(step));
  return *function.steps.back()->step.AsOuterStep();
}

/// One message; tokens stay a sum.
void SiteBuilder::addReport() {
  fb::FunctionT &function = addList(List::Report);
  uint64_t count = size_t(fb::Metric::Count) + plan.named_losses.size();
  addSum(function, program.metrics, count);
  for (uint64_t i = 0; i < count; ++i)
    if (fb::Metric(i) != fb::Metric::TokenCount)
      addOuter(function, fb::OuterKind::Mean,
               program.metrics + i * sizeof(float), 1);
}

/// Range by range, and the copies at the end.
void SiteBuilder::addAgreement() {
  fb::FunctionT &function = addList(List::Outer);
  bool hasOptimizer = outer.keepsAnchor();
  for (const Range &range : ranges) {
    if (hasOptimizer)
      addOuter(function, fb::OuterKind::Difference, range.begin,
               range.elements())
          .anchor = at(range.anchor);
    addSum(function, range.begin, range.elements());
    fb::OuterStepT &end = addOuter(
        function, hasOptimizer ? fb::OuterKind::Update : fb::OuterKind::Mean,
        range.begin, range.elements());
    if (hasOptimizer)
      end.anchor = at(range.anchor);
    if (outer.keepsMomentum())
      end.momentum = at(range.momentum);
  }
  for (const auto &shard : program.shards) {
    bool isDivided = shard->division || !shard->state_dims.empty();
    if (shard->compute_dtype == fb::DType::BF16 && !isDivided &&
        !plan.parameters[shard->parameter]->frozen)
      addOuter(function, fb::OuterKind::Round, shard->weight,
               countElements(shard->local_shape))
          .copy = at(shard->compute_weight);
  }
}

/// Regions that live to the end of the step live to the end of the lists:
/// nothing else is placed over it.
void SiteBuilder::build() {
  uint32_t last = program.actions.size() - 1;
  addState();
  addReport();
  addAgreement();
  for (auto &region : program.regions)
    if (region->last_action == last)
      region->last_action = program.actions.size() - 1;
}

//===----------------------------------------------------------------------===//
// The plan
//===----------------------------------------------------------------------===//

void plait::addSites(fb::PlanT &plan, const Outer &outer) {
  auto rule = std::make_unique<fb::OuterRuleT>();
  rule->scheme = outer.scheme;
  rule->every = outer.every;
  rule->rate = outer.rate;
  rule->momentum = outer.momentum;
  plan.outer = std::move(rule);
  for (auto [name, every] :
       llvm::zip_equal(kListNames, std::array{1u, 1u, uint32_t(outer.every)})) {
    auto list = std::make_unique<fb::ActionListT>();
    list->name = name;
    list->every = every;
    plan.lists.push_back(std::move(list));
  }
  plan.model_flops *= double(outer.sites);
  plan.locations.push_back("what sites exchange");
  uint8_t axis = plan.mesh.size();
  for (auto &program : plan.programs)
    SiteBuilder(plan, *program, outer, axis, plan.locations.size() - 1).build();
  auto sites = std::make_unique<fb::MeshAxisT>();
  sites->name = kSitesAxis;
  sites->size = outer.sites;
  plan.mesh.push_back(std::move(sites));
}
