//===- Companions.h - What rows of experts take besides ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_PROFILE_COMPANIONS_H
#define PLAIT_LIB_PLANNER_PROFILE_COMPANIONS_H

#include "plait/Planner/Work.h"

#include "mlir/IR/Operation.h"

#include <optional>

namespace plait {

/// Makes the kernel's work that comes with `operation`, which `op` is, and is
/// no op: a rank copies the rows that come back to it from itself, and has
/// zeros for those of other ranks' experts among the rows of a grouped matmul.
std::optional<planner::Operation>
makeCompanion(mlir::Operation *op, const planner::Operation &operation);

} // namespace plait

#endif // PLAIT_LIB_PLANNER_PROFILE_COMPANIONS_H
