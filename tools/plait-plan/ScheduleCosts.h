//===- ScheduleCosts.h - Files of layer costs -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAIT_PLAN_SCHEDULECOSTS_H
#define PLAIT_TOOLS_PLAIT_PLAN_SCHEDULECOSTS_H

#include "plait/Schedule/JointSearch.h"

namespace plait::tool {

/// Reads a pipeline and the layers of a model:
///
///   {"stages": 4, "microbatches": 8, "tcomm": 0, "memory_limit": null,
///    "layers": [{"name": "embed", "f": 2.7, "b": 4.3, "w": 1.8,
///                "activation": 1.0}, …]}
///
/// Milliseconds of one microbatch; activations in any unit, that of the limit.
/// tcomm, memory_limit, name and activation may be left out (0, null, "layer
/// 7", 1), and so may weight_share (0.5). Fails with the file and the field.
Result<schedule::JointProblem> readScheduleCosts(const std::string &path);

} // namespace plait::tool

#endif // PLAIT_TOOLS_PLAIT_PLAN_SCHEDULECOSTS_H
