//===- AddSites.h - Copies a plan to several sites --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CONVERSION_TOPLAN_ADDSITES_H
#define PLAIT_LIB_CONVERSION_TOPLAN_ADDSITES_H

#include "plait/Configuration/Outer.h"
#include "plait/Plan/Plan_generated.h"

namespace plait {

/// Makes of a finished plan for one site one for `outer.sites` of them: adds
/// the axis, the lists in which they agree, and the state that these need. The
/// step of a site stays as it is. Fails where a fragment would be of nothing.
Status addSites(plan::fb::PlanT &plan, const Outer &outer);

} // namespace plait

#endif // PLAIT_LIB_CONVERSION_TOPLAN_ADDSITES_H
