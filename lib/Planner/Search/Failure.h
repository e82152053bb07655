//===- Failure.h - Explanation of failed searches ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SEARCH_FAILURE_H
#define PLAIT_LIB_PLANNER_SEARCH_FAILURE_H

#include "Search/Explore.h"

namespace plait::planner {

/// One line: what rules everything out, and the smallest change that was found
/// to help by trying it. `explorer` has run and found nothing.
Status explainFailure(const SearchInput &input, const Choices &choices,
                      Explorer &explorer);

/// Fails with what `estimate` needs in truth, where that is more than there is.
Status explainPlacement(const Configuration &configuration,
                        const Estimate &estimate, const Cluster &cluster);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SEARCH_FAILURE_H
