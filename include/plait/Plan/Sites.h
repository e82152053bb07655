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

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace plait::plan {

/// The lists of a plan with sites, in this order.
enum class List : uint8_t {
  Step,   // the step of each site, in each step
  Report, // loss and norm become their mean over sites, tokens their sum
  Outer   // the agreement
};
inline constexpr std::string_view kListNames[] = {"step", "report", "outer"};

/// The names of what sites keep of each parameter: the weights that all have
/// agreed on last, and the momentum of the outer optimizer.
inline constexpr std::string_view kAnchorState = "anchor",
                                  kOuterMomentumState = "outer_momentum";

/// Steps from one run of the action to the next.
uint32_t everyOf(const fb::Plan &plan, const fb::Action &action);

/// "average:8" or "diloco:30,rate=0.7,momentum=0.9", of a plan with sites.
std::string describeOuter(const fb::Plan &plan);

/// Bytes of the arena that hold one value in f32 for each of `elements`.
struct ElementRange {
  uint64_t offset = 0, elements = 0;
  uint64_t end() const { return offset + elements * sizeof(float); }
};

/// Returns where a rank has what it updates of a shard's parameter.
ElementRange weightRange(const fb::Plan &plan, const fb::Shard &shard);

/// Whether the agreement of sites has to renew the shard's bf16 copy.
bool roundsWeight(const fb::Shard &shard);

/// Fails unless the lists of all programs are those of the plan's scheme: each
/// weight that is trained is added up over all sites once, divided by their
/// number, and moved by its own anchor and momentum; nothing else is written,
/// and what a site does by itself knows nothing of others. A plan without sites
/// has nothing of this. Part of checkPlan().
Status checkSites(const fb::Plan &plan);

} // namespace plait::plan

#endif // PLAIT_PLAN_SITES_H
