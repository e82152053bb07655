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

/// Returns the bytes of a device that are live at each action of `program`, of
/// one category or all.
std::vector<int64_t> findLive(plan::ProgramOp program,
                              std::optional<plan::Category> category = {});

/// The bytes that sites keep beside what a rank of `program` holds.
int64_t countSiteBytes(plan::ProgramOp program);

/// Fails where a step is too large to be compiled: a plan has every action of
/// it. `stages` are virtual ones.
Status checkStepSize(int64_t stages, int64_t microbatches);

/// Returns what lies `steps` times their difference behind `more`, on the line
/// through the memory of `fewer` microbatches or layers and that of more.
planner::StageMemory continueMemory(const planner::StageMemory &fewer,
                                    const planner::StageMemory &more,
                                    double steps);

} // namespace plait

#endif // PLAIT_LIB_DRIVER_LOWEREDMODEL_H
