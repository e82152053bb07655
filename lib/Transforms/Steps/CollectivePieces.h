//===- CollectivePieces.h - Pieces of a collective over tp ------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_STEPS_COLLECTIVEPIECES_H
#define PLAIT_LIB_TRANSFORMS_STEPS_COLLECTIVEPIECES_H

#include "plait/Dialect/Plan/IR/PlanIR.h"

namespace plait {

/// Whether rows of it are pieces that can be exchanged one by one: a sum in
/// place, a scatter or a gather of all ranks of tp.
bool hasPieces(plan::CollectiveOp collective);

/// Creates piece `piece` of `pieces` equal ones: of a sum in place a run of its
/// elements, else some of the outer blocks.
plan::CollectiveOp createPiece(mlir::OpBuilder &builder,
                               plan::CollectiveOp collective, int64_t piece,
                               int64_t pieces);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_STEPS_COLLECTIVEPIECES_H
