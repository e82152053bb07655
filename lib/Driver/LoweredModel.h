//===- LoweredModel.h - Memory as the compiler places it --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_LOWEREDMODEL_H
#define PLAIT_LIB_DRIVER_LOWEREDMODEL_H

#include "ModelState.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Planner/Estimate.h"

#include <memory>
#include <vector>

namespace plait {

/// A model after phase lower.
struct LoweredModel {
  /// Not verified yet.
  mlir::OwningOpRef<mlir::ModuleOp> module;
  /// The model as imported, where what it becomes is to be proven; else null.
  mlir::OwningOpRef<mlir::ModuleOp> model;
  /// The memory that each stage's ranks hold: peak() is the arena that the plan
  /// will have, to the byte, and host what a GPU has on its host. What of the
  /// arena is neither a parameter, gradient, moment nor activation counts as
  /// workspace.
  std::vector<planner::StageMemory> memory;
};

/// Returns what a rank of `program` holds, by category.
planner::StageMemory findMemory(plan::ProgramOp program);

/// The bytes that sites keep beside what a rank of `program` holds.
int64_t countSiteBytes(plan::ProgramOp program);

/// Fails where a step is too large to be compiled: a plan has every action of
/// it. `stages` are virtual ones.
Status checkStepSize(int64_t stages, int64_t microbatches);

/// The line through the memory of `fewer` and `more` microbatches, `steps`
/// times their difference behind `more`.
std::vector<planner::StageMemory>
continueMemory(const std::vector<planner::StageMemory> &fewer,
               const std::vector<planner::StageMemory> &more, double steps);

} // namespace plait

#endif // PLAIT_LIB_DRIVER_LOWEREDMODEL_H
