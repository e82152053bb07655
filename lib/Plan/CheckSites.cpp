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
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Metrics.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Sites.h"
#include "plait/Plan/Uses.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

using namespace plait;
using namespace plait::plan;

namespace {

/// The kinds of what a list does to the bytes of a value.
enum class Deed : uint8_t { Sum, Mean, Difference, Update, Round };
constexpr std::string_view kDeeds[] = {
    "a sum over sites", "a mean", "a difference", "an update", "a rounding"};
using Deeds = std::vector<Deed>;

/// One step of a list. Offsets are there where its kind has such an operand.
struct Done {
  Deed deed;
  ElementRange value;
  std::optional<uint64_t> anchor = {}, momentum = {}, copy = {};
  bool isWanted = false; // by some value
};

/// The lists of one program. `hasOptimizer` and the like are the scheme's.
class SiteChecker {
public:
  SiteChecker(const fb::Plan &plan, const fb::Program &program)
      : plan(plan), program(program), rule(*plan.outer()), mesh(plan),
        hasOptimizer(rule.rate() > 0) {}

  /// Lists come first: what they do not call is what a site does by itself.
  Status check() {
    PLAIT_RETURN_IF_ERROR(checkActions());
    for (uint32_t i = 0; i < length(program.shards()); ++i)
      PLAIT_RETURN_IF_ERROR(checkShard(*program.shards()->Get(i)));
    PLAIT_RETURN_IF_ERROR(
        inList(List::Report, [&](auto &done) { return checkReport(done); }));
    Deeds agreement = hasOptimizer
                          ? Deeds{Deed::Difference, Deed::Sum, Deed::Update}
                          : Deeds{Deed::Sum, Deed::Mean};
    PLAIT_RETURN_IF_ERROR(inList(List::Outer, [&](auto &done) {
      return checkWeights(agreement, done);
    }));
    return checkInside();
  }

private:
  Status checkActions();
  Status checkShard(const fb::Shard &shard) const;
  Status checkStates(const fb::Shard &shard, const std::string &name) const;
  template <typename Scalars> bool dependsOnSite(const Scalars *scalars) const;
  bool knowsOthers(const fb::Step &step) const;
  Status checkInside() const;
  template <typename Check> Status inList(List list, Check check) const;
  Result<Done> readSum(const fb::CollectiveStep &step) const;
  Result<Done> readOuter(const fb::OuterStep &step) const;
  Status checkReport(std::vector<Done> &done) const;
  Status checkWeights(const Deeds &agreement, std::vector<Done> &done) const;
  Status checkDeeds(const std::string &name, const ElementRange &value,
                    const Deeds &wanted, std::vector<Done> &done) const;
  Status checkPlaces(const std::string &name, const fb::Shard &shard,
                     const Done &one) const;
  bool isIn(fb::Category category, uint64_t begin, uint64_t bytes) const;
  std::string nameOf(const fb::Shard &shard) const {
    return "'" + plan.parameters()->Get(shard.parameter())->name()->str() + "'";
  }
  bool isFrozen(const fb::Shard &shard) const {
    return plan.parameters()->Get(shard.parameter())->frozen();
  }

  const fb::Plan &plan;
  const fb::Program &program;
  const fb::OuterRule &rule;
  RankGrid mesh;
  bool hasOptimizer;
  const fb::Function *functions[std::size(kListNames)] = {}; // but the step's
};

} // namespace

//===----------------------------------------------------------------------===//
// Lists
//===----------------------------------------------------------------------===//

/// The step comes first, and then one call of each other list.
Status SiteChecker::checkActions() {
  uint32_t last = 0;
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    bool isOuter = action.kind() == fb::ActionKind::Outer;
    last += isOuter;
    if (action.list() != last || (last && !isOuter) ||
        last >= std::size(kListNames))
      return fail("action ", i, " (", fb::EnumNameActionKind(action.kind()),
                  ") is in list ", int(action.list()),
                  ", expected a step, and one Outer in each list behind it");
    if (!isOuter)
      continue;
    functions[last] = program.functions()->Get(action.function());
    if (length(functions[last]->slot_bytes()))
      return fail("list '", kListNames[last], "' calls '",
                  functions[last]->name()->str(), "', which has slots");
  }
  if (last + 1 == std::size(kListNames))
    return Status::success();
  return fail("has no action in list '", kListNames[last + 1], "'");
}

/// Reads what a list does, and adds to failures which list it is.
template <typename Check>
Status SiteChecker::inList(List list, Check check) const {
  std::vector<Done> done;
  const fb::Function &function = *functions[size_t(list)];
  Status status = Status::success();
  for (uint32_t i = 0; i < length(function.steps()) && status.ok(); ++i) {
    const fb::Step &step = *function.steps()->Get(i);
    const auto *sum = step.step_as_CollectiveStep();
    const auto *outer = step.step_as_OuterStep();
    Result<Done> one = sum     ? readSum(*sum)
                       : outer ? readOuter(*outer)
                               : fail("is no step of sites");
    if (one.ok())
      done.push_back(*one);
    else
      status = fail("step ", i, " ", one.status().message());
  }
  if (status.ok())
    status = check(done);
  for (size_t i = 0; i < done.size() && status.ok(); ++i)
    if (!done[i].isWanted)
      status = fail("step ", i, " is ", kDeeds[size_t(done[i].deed)],
                    " of what is no weight that is trained");
  return status.ok() ? status
                     : fail("list '", kListNames[size_t(list)],
                            "': ", status.message());
}

/// Over all sites, in place, and of numbers side by side.
Result<Done> SiteChecker::readSum(const fb::CollectiveStep &step) const {
  if (step.axis() != mesh.sitesAxis())
    return fail("goes over axis '",
                plan.mesh()->Get(step.axis())->name()->str(), "', expected '",
                kSitesAxis, "'");
  bool inPlace = step.input()->slot() < 0 && step.output()->slot() < 0 &&
                 step.input()->offset() == step.output()->offset();
  if (kindOf(step) != CollectiveKind::AllReduce || !inPlace ||
      step.reduction() != fb::Reduction::Sum || step.outer() != 1 ||
      step.dtype() != fb::DType::F32)
    return fail("is no sum in f32 and in place");
  return Done{Deed::Sum, {step.input()->offset(), uint64_t(step.chunk())}};
}

/// Kind and operands have been checked with the step itself.
Result<Done> SiteChecker::readOuter(const fb::OuterStep &step) const {
  constexpr Deed deeds[] = {Deed::Mean, Deed::Difference, Deed::Update,
                            Deed::Round}; // by OuterKind
  Done done = {deeds[size_t(step.kind())],
               {step.value()->offset(), step.elements()}};
  auto offset = [](const fb::Ref *ref) {
    return ref ? std::optional(ref->offset()) : std::nullopt;
  };
  done.anchor = offset(step.anchor());
  done.momentum = offset(step.momentum());
  done.copy = offset(step.copy());
  if (done.deed == Deed::Update &&
      done.momentum.has_value() != (rule.momentum() > 0))
    return fail("is an update ", done.momentum ? "with" : "without",
                " momentum, which is ", rule.momentum());
  return done;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

bool SiteChecker::isIn(fb::Category category, uint64_t begin,
                       uint64_t bytes) const {
  for (uint32_t i = 0; i < length(program.regions()); ++i)
    if (const fb::Region &region = *program.regions()->Get(i);
        region.category() == category && region.offset() <= begin &&
        begin + bytes <= region.offset() + region.bytes())
      return true;
  return false;
}

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
Status SiteChecker::checkWeights(const Deeds &agreement,
                                 std::vector<Done> &done) const {
  for (uint32_t i = 0; i < length(program.shards()); ++i) {
    const fb::Shard &shard = *program.shards()->Get(i);
    Deeds wanted = isFrozen(shard) ? Deeds() : agreement;
    if (!isFrozen(shard) && roundsWeight(shard))
      wanted.push_back(Deed::Round);
    ElementRange value = weightRange(plan, shard);
    PLAIT_RETURN_IF_ERROR(checkDeeds(nameOf(shard), value, wanted, done));
    for (const Done &one : done)
      if (!wanted.empty() && one.value.offset <= value.offset &&
          value.offset < one.value.end())
        PLAIT_RETURN_IF_ERROR(checkPlaces(nameOf(shard), shard, one));
  }
  for (const Done &one : done) {
    uint64_t bytes = one.value.elements * sizeof(float);
    bool isKnown = isIn(fb::Category::Parameters, one.value.offset, bytes);
    for (std::optional<uint64_t> state : {one.anchor, one.momentum})
      isKnown &= !state || isIn(fb::Category::Optimizer, *state, bytes);
    if (!isKnown)
      return fail(kDeeds[size_t(one.deed)], " at ", one.value.offset,
                  " goes beyond the region that it is in");
  }
  return Status::success();
}

/// Operands lie as far behind those of the shard as the value does.
Status SiteChecker::checkPlaces(const std::string &name, const fb::Shard &shard,
                                const Done &one) const {
  uint64_t before = shard.weight() - one.value.offset;
  if (one.copy && *one.copy + before / 2 != shard.compute_weight())
    return fail("the copy of ", name, " is not where it is rounded to");
  for (uint32_t i = 0; i < length(shard.state()); ++i) {
    const fb::StateSlot &slot = *shard.state()->Get(i);
    std::string_view kind = slot.name()->string_view();
    std::optional<uint64_t> used = kind == kAnchorState          ? one.anchor
                                   : kind == kOuterMomentumState ? one.momentum
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
      (shard.division() && shard.division()->axis() == axis))
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

/// State of the inner optimizer is a site's own; that of the outer one is there
/// as the scheme says, and the same on all.
Status SiteChecker::checkStates(const fb::Shard &shard,
                                const std::string &name) const {
  int anchors = 0, momenta = 0;
  for (uint32_t i = 0; i < length(shard.state()); ++i) {
    const fb::StateSlot &slot = *shard.state()->Get(i);
    std::string_view kind = slot.name()->string_view();
    bool isAnchor = kind == kAnchorState;
    bool isOuter = isAnchor || kind == kOuterMomentumState;
    anchors += isAnchor;
    momenta += isOuter && !isAnchor;
    if (slot.own_axis() != (isOuter ? 0 : mesh.sitesAxis()))
      return fail(kind, " of ", name, " is ",
                  isOuter ? "one of each site" : "the same on all sites");
    if (slot.like_weight() != isOuter || slot.from_weight() != isAnchor)
      return fail(kind, " of ", name, " does not begin as it has to");
  }
  if (anchors != hasOptimizer)
    return fail(name, " has ", anchors, " anchors in scheme ",
                rule.scheme()->string_view());
  if (momenta != (rule.momentum() > 0))
    return fail(name, " has ", momenta, " outer momenta, and momentum is ",
                rule.momentum());
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

/// Written so that NaN fails.
static Status checkRule(const fb::Plan &plan) {
  const fb::OuterRule &rule = *plan.outer();
  std::string_view scheme = rule.scheme()->string_view();
  bool hasOptimizer = scheme == "diloco";
  if (!hasOptimizer && scheme != "average")
    return fail("scheme '", scheme,
                "' is unknown, known are average and diloco");
  if (!(hasOptimizer ? rule.rate() > 0 && rule.rate() <= 10 : rule.rate() == 0))
    return fail("rate is ", rule.rate(), ", expected ",
                hasOptimizer ? "above 0 and at most 10" : "0");
  if (!(rule.momentum() >= 0 && rule.momentum() < (hasOptimizer ? 1 : 1e-300)))
    return fail("momentum is ", rule.momentum(), ", expected 0",
                hasOptimizer ? " or more, and below 1" : "");
  return Status::success();
}

/// Compares names, and how often each is run.
static Status checkLists(const fb::Plan &plan) {
  const uint32_t every[] = {1, 1, plan.outer()->every()};
  for (uint32_t i = 0; i < std::size(kListNames); ++i) {
    const auto *list =
        i < length(plan.lists()) ? plan.lists()->Get(i) : nullptr;
    if (!list || list->name()->string_view() != kListNames[i] ||
        list->every() != every[i])
      return fail("list ", i, " is ",
                  list ? "'" + list->name()->str() + "' each " +
                             std::to_string(list->every()) + " steps"
                       : "missing",
                  ", expected '", kListNames[i], "' each ", every[i], " steps");
  }
  if (length(plan.lists()) > std::size(kListNames))
    return fail("has ", length(plan.lists()), " lists, expected ",
                std::size(kListNames));
  return plan.outer()->every() > 0 ? Status::success()
                                   : fail("sites agree every 0 steps");
}

/// The axis is the last one, so that all others keep their numbers.
static Status checkSitesAxis(const fb::Plan &plan) {
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
static Status checkNone(const fb::Plan &plan) {
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

Status plan::checkSites(const fb::Plan &plan) {
  PLAIT_RETURN_IF_ERROR(checkSitesAxis(plan));
  if (!plan.outer())
    return checkNone(plan);
  if (isCuda(plan))
    return fail("sites are for processors, the plan is for GPUs");
  PLAIT_RETURN_IF_ERROR(checkRule(plan));
  PLAIT_RETURN_IF_ERROR(checkLists(plan));
  for (uint32_t i = 0; i < plan.programs()->size(); ++i)
    if (Status status = SiteChecker(plan, *plan.programs()->Get(i)).check();
        !status.ok())
      return fail("sites: program ", i, ": ", status.message());
  return Status::success();
}
