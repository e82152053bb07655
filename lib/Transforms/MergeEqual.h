//===- MergeEqual.h - Ops that are there twice ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Removes what nobody uses and what is computed twice, as MLIR's pass `cse`
// does in functions of one block, to the same IR. That one takes a seventh of
// the time of lowering a deep model: it hashes an op for each question to its
// table, and again whenever that grows.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_MERGEEQUAL_H
#define PLAIT_LIB_TRANSFORMS_MERGEEQUAL_H

#include "mlir/Pass/Pass.h"

#include <memory>

namespace plait {

/// Leaves the first of ops that are equal but for their locations; reads are
/// equal as long as nothing between them may write. Erases ops that nobody used
/// before. Expected linear in the ops of the block.
void mergeEqualOps(mlir::Block &block);

/// Creates a pass that does so in all functions of a module that have one
/// block.
std::unique_ptr<mlir::Pass> createMergeEqualPass();

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_MERGEEQUAL_H
