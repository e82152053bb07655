//===- TryAll.h - Every configuration of a small space ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Searches are held against all configurations of their space, estimated one by
// one, without bounds and without the search's enumeration.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_PLANNER_TRYALL_H
#define PLAIT_TEST_UNIT_PLANNER_TRYALL_H

#include "SearchSetting.h"

#include <functional>

namespace plait::planner {

/// Visits every configuration of the setting's space that makes sense, with
/// what estimate() says of it.
void forEachConfiguration(
    const Setting &setting,
    const std::function<void(const Work &, const Configuration &,
                             const Estimate &)> &visit);

/// Everything about `setting` that trying everything can tell: the pick, the
/// runners-up and the bound.
void checkExact(Setting setting);

} // namespace plait::planner

#endif // PLAIT_TEST_UNIT_PLANNER_TRYALL_H
