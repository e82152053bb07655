//===- Halves.h - What halves of backward passes take -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_PROFILE_HALVES_H
#define PLAIT_LIB_PLANNER_PROFILE_HALVES_H

#include "plait/Planner/Work.h"

#include "mlir/IR/BuiltinOps.h"

namespace plait {

/// Puts the first block of `module`, which is sharded and has a stage for each
/// block, in the second one's stage: nobody waits for the gradients that an
/// embedding takes from the layer behind it.
void joinEmbedding(mlir::ModuleOp module);

/// Lists, by block, what either half of its backward pass takes, once the
/// functions of `module` are cut (pipe-split-phases). Types have shardings, and
/// `batch` sequences; elements of the type `activation` count as those of the
/// model's precision.
std::vector<planner::Halves> measureHalves(mlir::ModuleOp module,
                                           int64_t blocks,
                                           mlir::Type activation,
                                           int64_t batch);

} // namespace plait

#endif // PLAIT_LIB_PLANNER_PROFILE_HALVES_H
