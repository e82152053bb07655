//===- Pipelines.h - The phases of a compilation ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_PIPELINES_H
#define PLAIT_TRANSFORMS_PIPELINES_H

#include "mlir/Pass/PassManager.h"
#include "plait/Dialect/Plait/IR/Plait.h"

namespace plait {

/// Describes what the IR is after a phase, in a few words.
llvm::StringRef describePhase(Phase phase);

/// All phases between a model and its plan, in order.
llvm::ArrayRef<Phase> getPhases();

/// Adds the passes of one phase, between those that check what it relies on and
/// say that it is complete. All that they need to know is in the module. After
/// the passes of `Plan`, of which there are none, the module can be converted.
/// `keepsOrigins`: the result is to be written (see the dialect). `verifies`:
/// what it relies on is checked, as it has to be where somebody may have edited
/// what the phase before has left.
void buildPhase(mlir::OpPassManager &manager, Phase phase,
                bool keepsOrigins = false, bool verifies = true);

/// Adds those passes of one phase that make the kernels of a microbatch, for a
/// cost model: no end of the step, and no addresses.
void buildKernels(mlir::OpPassManager &manager, Phase phase);

/// Adds those passes, of the phases up to `partition`, that make the step of a
/// model on one rank, which the proof holds plans against. They neither verify
/// nor mark phases.
void buildClaim(mlir::OpPassManager &manager);

} // namespace plait

#endif // PLAIT_TRANSFORMS_PIPELINES_H
