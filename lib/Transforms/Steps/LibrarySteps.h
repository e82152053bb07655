//===- LibrarySteps.h - Steps that libraries compute ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_STEPS_LIBRARYSTEPS_H
#define PLAIT_LIB_TRANSFORMS_STEPS_LIBRARYSTEPS_H

#include "plait/Transforms/Steps.h"

#include "mlir/IR/Builders.h"

namespace plait {

/// Creates the library calls that compute `op`, whose tensors are row-major at
/// `lhs`, `rhs` and `result`; the first treats the result's buffer as
/// `accumulate` says, the others add to it.
///
/// The letters of the contraction fall into four groups: those in all three
/// tensors (batch), in the left and the result (rows), in the right and the
/// result (columns), and in both operands (summed). A group whose letters lie
/// behind one another in both tensors is one long dimension. Where they do
/// not, the outer letters of rows and columns become batch dimensions, with
/// stride 0 in the operand that does not have them, and the outer summed
/// letters a sequence of GEMMs. Where a batch letter is innermost, columns
/// become batch dimensions as a whole, and rows too if they must: always right,
/// and slow where no rows are left. Nothing is ever copied or transposed.
llvm::SmallVector<plan::GemmOp>
createGemms(mlir::OpBuilder &builder, mlir::Location loc,
            ContractionOpInterface op, plan::MemoryAttr lhs,
            plan::MemoryAttr rhs, plan::MemoryAttr result,
            plan::Accumulate accumulate);

/// Appends the memory that a GPU's libraries use during the whole step to the
/// arena of `program`, whose functions are still in value form.
void addLibraryWorkspace(plan::ProgramOp program);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_STEPS_LIBRARYSTEPS_H
