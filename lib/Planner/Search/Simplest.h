//===- Simplest.h - The simplest of what is as fast -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SEARCH_SIMPLEST_H
#define PLAIT_LIB_PLANNER_SEARCH_SIMPLEST_H

#include "Search/Explore.h"

namespace plait::planner {

/// Puts the simplest that is within the band in front of `families`, those that
/// `explorer` has found, the fastest first. The others keep their order.
void preferSimple(std::vector<Leaf> &families, const Explorer &explorer);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SEARCH_SIMPLEST_H
