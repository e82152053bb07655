//===- CheckSiteRule.h - The rule of sites, and when it is due --*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Parts of checkSites() that are of a plan as a whole.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLAN_CHECKSITERULE_H
#define PLAIT_LIB_PLAN_CHECKSITERULE_H

#include "plait/Configuration/Outer.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

namespace plait::plan {

/// Fails unless there is an axis of sites, the last one, where there is a rule.
Status checkSitesAxis(const fb::Plan &plan);

/// Fails where a plan without sites has what only sites have.
Status checkNoSites(const fb::Plan &plan);

/// Fails unless `outer`, the plan's rule, is within its bounds, and the plan's
/// mixings are its graph's matrices.
Status checkSiteRule(const fb::Plan &plan, const Outer &outer);

/// Fails unless the plan has the lists of the rule, each as often. The rule has
/// been checked.
Status checkSiteLists(const fb::Plan &plan, const Outer &outer);

} // namespace plait::plan

#endif // PLAIT_LIB_PLAN_CHECKSITERULE_H
