//===- Memory.h - Memory as the compiler places it --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_MEMORY_H
#define PLAIT_LIB_DRIVER_MEMORY_H

#include "Model.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Planner/Estimate.h"

#include <memory>
#include <vector>

namespace plait {

/// A model after phase lower.
struct LoweredModel {
  explicit LoweredModel(const CompileOptions &options) : context(options) {}

  ModelContext context;
  /// Not verified yet.
  mlir::OwningOpRef<mlir::ModuleOp> module;
  /// As imported, where what it becomes is to be proven; else null.
  mlir::OwningOpRef<mlir::ModuleOp> model;
  /// What each stage's ranks hold: peak() is the arena that the plan will have,
  /// to the byte, and host what a GPU has on its host. What of the arena is
  /// neither a parameter, gradient, moment nor activation counts as workspace.
  std::vector<planner::StageMemory> memory;
};

/// What a rank of `program` holds, by category.
planner::StageMemory findMemory(plan::ProgramOp program);

/// Runs the phases up to placed buffers; null: failures have been reported.
std::shared_ptr<LoweredModel> lowerModel(CompileOptions options);

/// Fails where a step is too large to be compiled: a plan has every action of
/// it. `stages` are virtual ones.
Status checkStepSize(int64_t stages, int64_t microbatches);

struct PlacedMemory {
  std::vector<planner::StageMemory> stages; // as LoweredModel has it
  /// The largest number of microbatches that was placed.
  int64_t microbatches = 0;
};

/// What lowerModel() would find for `options`, which leave nothing open and
/// have `microbatches` on a pipeline of `ranks`. Of many, three smaller numbers
/// are placed; where each stage's memory lies on a line, that is continued,
/// and else all are placed. Failures have been reported.
mlir::FailureOr<PlacedMemory> placeMemory(CompileOptions options, int64_t ranks,
                                          int64_t microbatches);

} // namespace plait

#endif // PLAIT_LIB_DRIVER_MEMORY_H
