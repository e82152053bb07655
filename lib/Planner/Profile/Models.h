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

namespace plait {

/// Sequences of the two microbatches that are compared.
inline constexpr int64_t kSmall = 2, kLarge = 4;

/// What a profile does not depend on.
struct ModelProfile::Model {
  Model() = default;
  /// One that is the same as `other` but for where its module is.
  Model(const Model &other, mlir::OwningOpRef<mlir::ModuleOp> module)
      : module(std::move(module)), folded(other.folded),
        parameters(other.parameters), flops(other.flops),
        sequence(other.sequence) {}

  mlir::OwningOpRef<mlir::ModuleOp> module;
  FoldedBlocks folded;
  double parameters = 0; // of the whole model
  double flops = 0;      // forward and backward of a sequence
  int64_t sequence = 0;
};

} // namespace plait

#endif // PLAIT_LIB_PLANNER_PROFILE_MODELS_H
