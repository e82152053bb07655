//===- Sites.h - Lists of actions, and what sites do ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A plan with sites has, beside the list of actions that is a step, lists that
// bring sites together. What they have to do follows from the scheme and from
// where parameters lie; the checker holds them against that.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_SITES_H
#define PLAIT_PLAN_SITES_H

#include "plait/Configuration/Outer.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Plan/Ranks.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait::plan {

/// The lists that each plan with sites has; those of its scheme follow.
enum class List : uint8_t {
  Step,  // the step of each site, in each step
  Report // loss and norm become their mean over sites, tokens their sum
};

/// The deeds of lists with a fragment: sites write down what they have moved
/// by, add a part of that up, and take the sum.
enum class FragmentDeed : uint8_t { None, Part, Sum, Blend };

/// A list as a scheme asks for it, see Plan.fbs.
struct ListFacts {
  std::string name;
  uint32_t every = 1, phase = 0, except = 0;
  uint32_t mixing = 0;
  /// Its deed with a fragment.
  FragmentDeed deed = FragmentDeed::None;
  uint32_t fragment = 0, part = 0;
  bool corrects = false; // steps of a site by itself
};

/// The lists of `outer`, whose graph has a period of so many matrices: step,
/// report, what all sites do together ("outer"), and one for each matrix ("mix
/// 1"). Those that no step would run are left out. Of fragments there are, one
/// after the other, "part 1", "sum 1.1" and so on, and "blend 1". What corrects
/// the step of a site ("correct") comes before all agreements.
std::vector<ListFacts> listsOf(const Outer &outer, uint32_t mixings);

/// The fragment of `fragments` that parameter `name` belongs to. Layers are
/// dealt to fragments one by one, by the first whole number between the name's
/// dots; what is in no layer is in the last fragment.
uint32_t fragmentOf(std::string_view name, uint32_t fragments);

/// The fragment of a parameter, and in which of its messages it is sent.
struct FragmentPlace {
  uint32_t fragment = 0, part = 0;
  bool operator==(const FragmentPlace &) const = default;
};

/// A parameter that is trained, or another one, which counts 0 elements.
struct SizedName {
  std::string_view name;
  uint64_t elements = 0;
};

/// Deals parameters to fragments and, whole, to the messages of these, about
/// equally many elements to each. They are taken in the order of their names:
/// of another mesh each has the same place. Without fragments all are alike.
std::vector<FragmentPlace> placeInFragments(const Outer &outer,
                                            std::span<const SizedName> all);
std::vector<FragmentPlace> placeInFragments(const fb::Plan &plan,
                                            const Outer &outer);

/// The names of what sites keep of each parameter: the weights that all have
/// agreed on last, the momentum of the outer optimizer, what a site has moved
/// by, or the sum of that over sites; by what each step of a site is corrected,
/// its weights when it agreed last, and what its messages have left out.
inline constexpr std::string_view kAnchorState = "anchor",
                                  kOuterMomentumState = "outer_momentum",
                                  kDifferenceState = "difference",
                                  kCorrectionState = "correction",
                                  kBeforeState = "before",
                                  kSiteErrorState = "site_error";

/// Whether the action is of a list of the scheme, neither of a site's own step
/// nor of the report.
inline bool isScheme(const fb::Action &action) {
  return action.list() > uint8_t(List::Report);
}

/// Whether the action's list is run in step `number`.
bool isDue(const fb::Plan &plan, const fb::Action &action, uint64_t number);

/// Returns in how many steps it is run, as a part of all.
double runsPerStep(const fb::Plan &plan, const fb::Action &action);
double runsPerStep(const fb::ActionList &list);

/// The rule of a plan with sites, as --outer would have it. Its scheme may be
/// none that there is.
Outer outerOf(const fb::Plan &plan);

/// "average:8" or "diloco:30,rate=0.7,momentum=0.9", of a plan with sites.
std::string describeOuter(const fb::Plan &plan);

/// Fails unless the list has so many exchanges, with as many numbers as there
/// are sites.
Status checkExchange(const fb::Plan &plan, uint32_t list, uint32_t exchange);

/// The exchange of a list with a mixing, counted from 1, which has passed the
/// check.
const fb::SiteExchange &exchangeOf(const fb::Plan &plan, uint32_t list,
                                   uint32_t exchange);

/// The rank at the other end of a transfer of `rank`; none where the site of
/// the rank has no part in the exchange.
std::optional<uint32_t> partnerOf(const fb::Plan &plan, const RankGrid &mesh,
                                  uint32_t rank, const fb::Action &action);

/// Bytes of the arena that hold one value in f32 for each of `elements`.
struct ElementRange {
  uint64_t offset = 0, elements = 0;
  uint64_t end() const { return offset + elements * sizeof(float); }
};

/// Returns where a rank has what it updates of a shard's parameter.
ElementRange weightRange(const fb::Plan &plan, const fb::Shard &shard);

/// Whether the agreement of sites has to renew the shard's bf16 copy.
bool roundsWeight(const fb::Shard &shard);

/// Fails unless the lists of all programs are those of the plan's scheme: of
/// each weight that is trained, they do what the scheme says, once, with its
/// own anchor and momentum, or with the same weight of the neighbours that the
/// mixing names; nothing else is written, and what a site does by itself knows
/// nothing of others. A plan without sites has nothing of this. Part of
/// checkPlan().
Status checkSites(const fb::Plan &plan);

} // namespace plait::plan

#endif // PLAIT_PLAN_SITES_H
