//===- ExpertChunks.h - Experts in chunks of tokens -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In how many chunks of tokens a step computes the experts of a layer is said
// by the attribute `plait.expert_chunks` of a module, which whoever compiles
// pins as shardings are. nn-checkpoint reads it, and nn-chunk-loss, which cuts
// them.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PLAIT_IR_EXPERTCHUNKS_H
#define PLAIT_DIALECT_PLAIT_IR_EXPERTCHUNKS_H

#include "mlir/IR/BuiltinOps.h"

namespace plait {

/// More chunks have more code than a plan should have.
inline constexpr int64_t kMostExpertChunks = 64;

/// Returns 1 where experts are computed as a whole.
int64_t getExpertChunks(mlir::ModuleOp module);
void setExpertChunks(mlir::ModuleOp module, int64_t chunks);

/// Marks a module whose work is measured, and for which no memory is placed.
void setProfile(mlir::ModuleOp module);
bool isProfile(mlir::ModuleOp module);

} // namespace plait

#endif // PLAIT_DIALECT_PLAIT_IR_EXPERTCHUNKS_H
