//===- Models.h - The models that a profile is made of ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_PROFILE_MODELS_H
#define PLAIT_LIB_PLANNER_PROFILE_MODELS_H

#include "FoldLayers.h"
#include "plait/Planner/Profile.h"
#include "plait/Transforms/Pipelines.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"

#include <string>

namespace plait {

/// Sequences of the two microbatches that are compared.
inline constexpr int64_t kSmall = 2, kLarge = 4;

/// Keeps the first error as a reason, and has nobody else hear of any.
mlir::LogicalResult keepFirst(mlir::Diagnostic &diagnostic,
                              std::string &reason);

/// Holds what does not depend on how a model is split.
struct ModelProfile::Model {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::string bytes; // the same, for other contexts
  FoldedBlocks folded;
  double parameters = 0; // of the whole model
  double flops = 0;      // forward and backward of a sequence
  int64_t sequence = 0;
};

/// Holds a context with what is needed in it. Of one thread at a time.
struct ModelProfile::Worker {
  /// Works in the caller's context, which outlives it.
  explicit Worker(mlir::MLIRContext &context) : context(context) {}
  /// Works in one of its own, with the dialects of `registry`.
  explicit Worker(const mlir::DialectRegistry &registry);

  /// Runs phases of the compiler on a module of the context.
  mlir::LogicalResult run(mlir::ModuleOp module, llvm::ArrayRef<Phase> phases);

  std::unique_ptr<mlir::MLIRContext> own;
  mlir::MLIRContext &context;
  std::map<int64_t, mlir::OwningOpRef<mlir::ModuleOp>> copies; // by batch
  /// Pass managers by phases. What their passes have asked of kernels is known
  /// to the runs that follow.
  std::map<std::vector<Phase>, mlir::PassManager> managers;
};

} // namespace plait

#endif // PLAIT_LIB_PLANNER_PROFILE_MODELS_H
